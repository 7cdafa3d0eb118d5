"""The intake query: a micro-batch becomes one transaction of the bridge's inbox.

N1  Every start begins at the offsets of Postgres (H28; `trunkline.pipeline.query`).
N2  A batch is taken in only if exactly the positions of its plan were read; positions are dense, so counts prove it.
N3  A batch that is not taken in raises: returning would tell Spark that it is done.
N4  A batch that was drained leaves its plan open: it is the first batch of the next start.
N5  The bridge is a named consumer of its queues: behind what it has taken in, entries may leave them. Its position follows its
    offsets, which alone say where it goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import structlog
from pyspark.sql import DataFrame

from trunkline.bridge.inbox import Arrived, Rejected, take_in
from trunkline.bridge.plan import Plan, open_plan
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.workers import Workers, waiting_for
from trunkline.core.bundle import parse_bundle
from trunkline.core.clock import Clock
from trunkline.core.errors import Invalid, Terminal
from trunkline.core.jsoncodec import loads
from trunkline.db.lease import commit_fenced, connect_fenced
from trunkline.pipeline.conflate import Conflated, Survivor, conflate
from trunkline.pipeline.query import BatchQuery
from trunkline.pipeline.queue_source import FORMAT, QueueSource, Settings
from trunkline.pipeline.session import Spark
from trunkline.queues.consumers import Detached, advance, attach, positions, reattach

log = structlog.get_logger()

# The name carries the version of what a query's checkpoint would mean.
QUERY_NAME = "bridge-intake-v1"


def judge(survivors: Sequence[Survivor]) -> tuple[list[Arrived], list[Rejected]]:
    """Bundles of their authenticated sender, as declared; and the rest, each with its reason."""
    arrived: list[Arrived] = []
    rejected: list[Rejected] = []
    for s in survivors:
        headers = loads(s.headers)
        try:
            bundle = SHIPPED.accept(parse_bundle(headers, s.payload, s.remote))
        except Invalid as error:
            rejected.append(Rejected(s.remote, headers, s.payload, str(error), s.queue, s.position))
        else:
            arrived.append(Arrived(bundle, s.queue, s.position))
    return arrived, rejected


def require_all_read(plan: Plan, conflated: Conflated) -> None:
    planned = {queue: len(span) for queue, span in plan.ranges().items()}
    read = dict(conflated.read())
    if read != planned:
        raise Terminal("batch", f"planned were {planned}, read were {read}", "see what is missing in queues.receive")


class Intake(BatchQuery):
    def __init__(
        self, spark: Spark, settings: Settings, trigger_seconds: float, checkpoints: Path, workers: Workers, clock: Clock
    ) -> None:
        super().__init__(QUERY_NAME, self._read, trigger_seconds, checkpoints, self._take_in)
        self._spark, self._settings, self._workers, self._clock = spark, settings, workers, clock
        self._conn: psycopg.Connection[Any] | None = None

    def stop(self) -> None:
        super().stop()
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _read(self) -> DataFrame:
        self._attach()
        self._spark.register(QueueSource)
        return self._spark.session.readStream.format(FORMAT).options(**self._settings.options()).load()

    def _take_in(self, batch: DataFrame) -> None:
        settings = self._settings
        conn = self._connection()
        plan = open_plan(conn, settings.group)
        conn.rollback()
        if plan is None:
            raise Terminal("batch", f"group {settings.group} has no open plan", "start the query anew")
        conflated = conflate(batch, plan.rows())
        require_all_read(plan, conflated)
        arrived, rejected = judge(conflated.survivors)
        take_in(conn, settings.grant, settings.group, plan, arrived, rejected, conflated.received())
        self._pass(conn, plan)
        now = self._clock.wall()
        self._workers.notice(waiting_for(a.bundle, now) for a in arrived)

    def _attach(self) -> None:
        conn, settings = self._connection(), self._settings
        try:
            attach(conn, settings.client, settings.group)
        except Detached as error:
            log.error("entries may have left the queues unread; ask the sites for a resync", reason=str(error))
            reattach(conn, settings.client, settings.group)
        commit_fenced(conn, settings.grant)

    def _pass(self, conn: psycopg.Connection[Any], plan: Plan) -> None:
        settings = self._settings
        for place in positions(conn, settings.client, settings.group):
            read = plan.end.get(place.name, 0) - 1
            if read > place.position:
                advance(conn, settings.client, settings.group, place.queue, read)
        commit_fenced(conn, settings.grant)

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = connect_fenced(self._settings.dsn)
        return self._conn
