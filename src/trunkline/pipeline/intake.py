"""The intake query over receive queues: a micro-batch becomes one transaction of the bridge's inbox.

N1  Every start begins at the offsets of Postgres (H28; `trunkline.pipeline.query`).
N2  A batch is taken in only if exactly the positions of its plan were read; positions are dense, so counts prove it.
N3  A batch that is not taken in raises: returning would tell Spark that it is done.
N4  A batch that was drained leaves its plan open: it is the first batch of the next start.
N5  The bridge is a named consumer of its queues: behind what it has taken in, entries may leave them. Its position follows its
    offsets, which alone say where it goes on. Was it away for so long that entries left unread, it goes on behind them, and
    their sites are asked for what was lost.
N6  While too much waits for the workers nothing more is taken in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import structlog
from psycopg.types.json import Jsonb
from pyspark.sql import DataFrame

from trunkline.bridge.inbox import Batch, Lost, take_in, write_batch
from trunkline.bridge.plan import Plan, open_plan, read_offsets
from trunkline.bridge.types import Types
from trunkline.bridge.workers import Workers
from trunkline.core.errors import Terminal
from trunkline.db.lease import PATIENCE, commit_fenced, connect_fenced
from trunkline.pipeline.conflate import Conflated, Conflation
from trunkline.pipeline.query import BatchQuery, require_empty
from trunkline.pipeline.queue_source import FORMAT, QueueSource, Settings
from trunkline.pipeline.session import BRIDGE_POOL, Spark
from trunkline.pipeline.sort_out import sort_out
from trunkline.queues.consumers import Detached, Place, advance, attach, positions, reattach

log = structlog.get_logger()

TRANSPORT = "queues"
# The name carries the version of what a query's checkpoint would mean.
QUERY_NAME = "bridge-intake-v1"

_GO_ON_AT = """
INSERT INTO status.transport AS t (reader_group, queue, payload) VALUES (%s, %s, %s)
ON CONFLICT (reader_group, queue) DO UPDATE SET payload = excluded.payload, updated_at = now()
"""


def require_all_read(plan: Plan, conflated: Conflated) -> None:
    planned = {queue: len(span) for queue, span in plan.ranges().items()}
    read = dict(conflated.read())
    if read != planned:
        raise Terminal("batch", f"planned were {planned}, read were {read}", "see what is missing in queues.receive")


class Intake(BatchQuery):
    def __init__(
        self,
        spark: Spark,
        settings: Settings,
        trigger_seconds: float,
        checkpoints: Path,
        workers: Workers,
        types: Types,
        most_waiting: int,
    ) -> None:
        super().__init__(QUERY_NAME, self._read, trigger_seconds, checkpoints, self._take_in, BRIDGE_POOL)
        self._spark, self._settings, self._workers, self._types = spark, settings, workers, types
        self._conflation = Conflation(types)
        self._most_waiting = most_waiting
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
        self.hold_while(lambda: self._workers.backlog() > self._most_waiting)
        settings = self._settings
        conn = self._connection()
        plan = open_plan(conn, settings.group)
        conn.rollback()
        if plan is None:
            return require_empty(batch, settings.group)
        conflated = self._conflation.conflate(batch, plan.rows())
        require_all_read(plan, conflated)
        sorted_out = sort_out(self._types, conflated, TRANSPORT)
        waiting = take_in(conn, settings.grant, settings.group, plan, self._types, sorted_out)
        self._pass(conn, plan)
        return self._workers.notice(waiting)

    def _attach(self) -> None:
        conn, settings = self._connection(), self._settings
        try:
            attach(conn, settings.client, settings.group)
        except Detached as error:
            log.error("entries may have left the queues unread", reason=str(error))
            reattach(conn, settings.client, settings.group)
            self._go_on_behind(conn, positions(conn, settings.client, settings.group))
        commit_fenced(conn, settings.grant)

    def _go_on_behind(self, conn: psycopg.Connection[Any], places: list[Place]) -> None:
        group = self._settings.group
        offsets = read_offsets(conn, group)
        missed = [place for place in places if offsets.get(place.name, 1) <= place.position]
        for place in missed:
            conn.execute(_GO_ON_AT, (group, place.name, Jsonb({"next": place.position + 1})))
        lost = [Lost(p.remote, f"entries up to {p.position} of {p.name} left it unread") for p in missed]
        write_batch(conn, self._types, Batch((), (), {}, lost, TRANSPORT))

    def _pass(self, conn: psycopg.Connection[Any], plan: Plan) -> None:
        settings = self._settings
        for place in positions(conn, settings.client, settings.group):
            read = plan.end.get(place.name, 0) - 1
            if read > place.position:
                advance(conn, settings.client, settings.group, place.queue, read)
        commit_fenced(conn, settings.grant)

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = connect_fenced(self._settings.dsn, **PATIENCE)
        return self._conn

    @property
    def connection(self) -> psycopg.Connection[Any] | None:
        return self._conn
