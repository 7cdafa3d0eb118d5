"""The intake query: a micro-batch becomes one transaction of the bridge's inbox.

N1  Every start uses a new, empty checkpoint folder and the offsets of Postgres (H28); older folders are removed.
N2  A batch is taken in only if exactly the positions of its plan were read; positions are dense, so counts prove it.
N3  A batch that is not taken in raises: returning would tell Spark that it is done.
N4  To drain, the running batch ends and the next one raises before it writes; its plan stays open and is the first batch
    of the next start.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from trunkline.bridge.inbox import Arrived, Rejected, take_in
from trunkline.bridge.plan import Plan, open_plan
from trunkline.bridge.types import accept
from trunkline.bridge.workers import Workers, waiting_for
from trunkline.core.bundle import parse_bundle
from trunkline.core.clock import Clock
from trunkline.core.errors import Invalid, Retryable, Terminal
from trunkline.core.jsoncodec import loads
from trunkline.db.lease import connect_fenced
from trunkline.pipeline.conflate import Conflated, Survivor, conflate
from trunkline.pipeline.queue_source import FORMAT, QueueSource, Settings
from trunkline.pipeline.session import Spark

# The name carries the version of what a query's checkpoint would mean.
QUERY_NAME = "bridge-intake-v1"
# A batch that lasts longer is interrupted when the pipeline stops, and rolls back.
_DRAIN_SECONDS = 15.0


def judge(survivors: Sequence[Survivor]) -> tuple[list[Arrived], list[Rejected]]:
    """Bundles of their authenticated sender, as declared; and the rest, each with its reason."""
    arrived: list[Arrived] = []
    rejected: list[Rejected] = []
    for s in survivors:
        headers = loads(s.headers)
        try:
            bundle = accept(parse_bundle(headers, s.payload, s.remote))
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


class Intake:
    """`start` and `stop` alternate; `failure` says why a query that was started is no longer running."""

    def __init__(
        self, spark: Spark, settings: Settings, trigger_seconds: float, checkpoints: Path, workers: Workers, clock: Clock
    ) -> None:
        self._spark, self._settings, self._workers, self._clock = spark, settings, workers, clock
        self._trigger = f"{round(trigger_seconds * 1000)} milliseconds"
        self._checkpoints = checkpoints
        self._conn: psycopg.Connection[Any] | None = None
        self._query: StreamingQuery | None = None
        self._draining = threading.Event()
        self._batch = threading.Lock()

    def start(self) -> None:
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        folder = self._checkpoints / uuid.uuid4().hex
        folder.mkdir(parents=True)
        self._spark.register(QueueSource)
        stream = self._spark.session.readStream.format(FORMAT).options(**self._settings.options()).load()
        self._draining.clear()
        self._query = (
            stream.writeStream.queryName(f"{QUERY_NAME}-{folder.name}")
            .option("checkpointLocation", folder.as_uri())
            .trigger(processingTime=self._trigger)
            .foreachBatch(self._take_in)
            .start()
        )

    def failure(self) -> str | None:
        query = self._query
        if query is None or query.isActive:
            return None
        error = query.exception()
        return _reason(str(error)) if error else "the query ended by itself"

    def stop(self) -> None:
        query, self._query = self._query, None
        self._draining.set()
        if self._batch.acquire(timeout=_DRAIN_SECONDS):
            self._batch.release()
        if query is not None:
            _stop_quietly(query)
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _take_in(self, batch: DataFrame, _: int) -> None:
        with self._batch:
            if self._draining.is_set():
                raise Retryable("batch", "the pipeline is stopping", "the next holder takes it in")
            self._take_in_plan(batch)

    def _take_in_plan(self, batch: DataFrame) -> None:
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
        now = self._clock.wall()
        self._workers.notice(waiting_for(a.bundle, now) for a in arrived)

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = connect_fenced(self._settings.dsn)
        return self._conn


def _stop_quietly(query: StreamingQuery) -> None:
    """It may have failed already, or met the drain."""
    with suppress(PySparkException):
        query.stop()


def _reason(text: str) -> str:
    """The line that says what happened, out of two languages' stack traces."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("trunkline.", "psycopg."))]
    return (named or lines or ["no reason given"])[0]
