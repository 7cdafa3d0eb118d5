"""A streaming query whose batches one function takes in, and what keeps it running.

B1  Every start uses a new, empty checkpoint folder (H28); older folders are removed.
B2  To drain, the running batch ends and the next one raises before it does anything. One that does not end in time is cut off
    from its database.
B3  A query that ended, or could not start, is started anew at the stored offsets, with backoff.
B4  A query with a pool of its own gets its share of the cores, whatever other jobs there are.
B5  The first batch of a query may be empty and have no plan: Spark asks for one, whether there is anything new or not.
B6  A query has caught up when it saw all there was at its last look, and no batch is held up.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from trunkline.core.backoff import Backoff
from trunkline.core.clock import Clock
from trunkline.core.collector import collector_at_rest
from trunkline.core.errors import Invalid, Retryable, Terminal, TrunklineError
from trunkline.core.jsoncodec import loads
from trunkline.db.away import cancel, cut

# A batch that lasts longer is interrupted when the query stops, and rolls back.
_DRAIN_SECONDS = 15.0
# A batch that lasts longer is held up: nobody knows what came meanwhile.
_SOON_SECONDS = 5.0
_HOLD_SECONDS = 0.05
# For a cancelled batch to roll back.
_CANCEL_SECONDS = 3.0
_POOL = "spark.scheduler.pool"
# A JVM that has ended, or cannot be reached.
NO_ANSWER = (Py4JError, OSError)

log = structlog.get_logger(__name__)


class BatchQuery:
    """`start` and `stop` alternate; `failure` says why a query that was started is no longer running."""

    def __init__(
        self,
        name: str,
        stream: Callable[[], DataFrame],
        trigger_seconds: float,
        checkpoints: Path,
        take: Callable[[DataFrame], None],
        pool: str | None = None,
        drain_seconds: float = _DRAIN_SECONDS,
    ) -> None:
        self.name = name
        self._pool, self._drain_seconds = pool, drain_seconds
        self._taking_since: float | None = None
        self._stream, self._checkpoints, self._take = stream, checkpoints, take
        self._trigger = f"{round(trigger_seconds * 1000)} milliseconds"
        self._query: StreamingQuery | None = None
        self._draining = threading.Event()
        self._batch = threading.Lock()

    def start(self) -> None:
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        folder = self._checkpoints / uuid.uuid4().hex
        folder.mkdir(parents=True)
        self._draining.clear()
        stream = self._stream()
        writer = stream.writeStream.queryName(f"{self.name}-{folder.name}").trigger(processingTime=self._trigger)
        with in_pool(stream.sparkSession, self._pool):
            self._query = writer.option("checkpointLocation", folder.as_uri()).foreachBatch(self._take_one).start()

    def failure(self) -> str | None:
        query = self._query
        try:
            if query is None or query.isActive:
                return None
            error = query.exception()
        except NO_ANSWER as why:
            return f"Spark does not answer: {why}"
        return _reason(str(error)) if error else "the query ended by itself"

    @property
    def has_looked(self) -> bool:
        query = self._query
        return query is not None and query.isActive and query.lastProgress is not None

    def caught_up(self) -> bool:
        query, since = self._query, self._taking_since
        if query is None or not query.isActive or (since is not None and time.monotonic() - since > _SOON_SECONDS):
            return False
        progress = query.lastProgress
        return progress is not None and all(_behind(source.latestOffset) == 0 for source in progress.sources)

    def behind(self) -> int:
        """What its sources said at their last look of all that they left for later; 0 where that is not known."""
        return sum(_behind(latest) or 0 for latest in self._reported())

    def stuck(self) -> str:
        """Why some of what they should read stands still, as they said then."""
        return "; ".join(filter(None, [str(_said(latest).get("stuck", "")) for latest in self._reported()]))

    def _reported(self) -> list[str | None]:
        query = self._query
        progress = query.lastProgress if query is not None and query.isActive else None
        return [source.latestOffset for source in progress.sources] if progress is not None else []

    def stop(self) -> None:
        query, self._query = self._query, None
        self._draining.set()
        if not self._ends_in(self._drain_seconds):
            self._break_off()
        if query is not None:
            # It may have failed already, or met the drain; and a planner that hangs is not waited for.
            with suppress(PySparkException, *NO_ANSWER):
                query.stop()

    def _ends_in(self, seconds: float) -> bool:
        ended = self._batch.acquire(timeout=seconds)
        if ended:
            self._batch.release()
        return ended

    def _break_off(self) -> None:
        """Spark cannot interrupt a batch that waits for the database."""
        conn = self.connection
        if conn is not None and not conn.closed:
            cancel(conn)
            if not self._ends_in(_CANCEL_SECONDS):
                cut(conn)

    @property
    def connection(self) -> psycopg.Connection[Any] | None:
        """What a batch waits for besides Spark."""
        return None

    def _take_one(self, batch: DataFrame, _: int) -> None:
        with self._batch:
            self._taking_since = time.monotonic()
            try:
                self._require_running()
                with collector_at_rest():
                    self._take(batch)
            finally:
                self._taking_since = None

    def hold_while(self, is_full: Callable[[], bool]) -> None:
        """For within a batch: it waits, and raises when the query stops."""
        while is_full() and not self._draining.wait(_HOLD_SECONDS):
            pass
        self._require_running()

    def _require_running(self) -> None:
        if self._draining.is_set():
            raise Retryable("batch", "the query is stopping", "the next start takes it in")


def require_empty(batch: DataFrame, group: str) -> None:
    """For a batch without a plan (B5)."""
    if not batch.isEmpty():
        raise Terminal("batch", f"group {group} has no open plan", "start the query anew")


@contextmanager
def in_pool(session: SparkSession, pool: str | None) -> Iterator[None]:
    """Whatever is started within runs in `pool`: a query takes it over from the thread that starts it."""
    context = session.sparkContext
    before = context.getLocalProperty(_POOL)
    context.setLocalProperty(_POOL, pool)  # type: ignore[arg-type]
    try:
        yield
    finally:
        context.setLocalProperty(_POOL, before)  # type: ignore[arg-type]


def _behind(reported: str | None) -> int | None:
    try:
        return int(_said(reported)["behind"])
    except (KeyError, TypeError):
        return None


def _said(reported: str | None) -> dict[str, Any]:
    """What the source said of itself."""
    try:
        said = loads(reported or "{}")
    except Invalid:
        return {}
    return said if isinstance(said, dict) else {}


class Supervisor:
    """Called from one thread only; `supervise` as often as one likes."""

    def __init__(self, query: BatchQuery, clock: Clock, backoff: Backoff | None = None) -> None:
        self._query, self._clock = query, clock
        self._backoff = backoff or Backoff(0.5, 10.0, random.random)
        self._started_at = 0.0
        self._restart_at: float | None = None
        self.reason = ""

    def start(self) -> None:
        self._restart_at = None
        self._started_at = self._clock.monotonic()
        try:
            self._query.start()
        except (PySparkException, psycopg.Error, TrunklineError, *NO_ANSWER) as error:
            self._query.stop()
            self._wait_after((str(error) or type(error).__name__).splitlines()[0])

    def supervise(self) -> None:
        if self._restart_at is not None:
            if self._clock.monotonic() >= self._restart_at:
                self.start()
        elif (reason := self._query.failure()) is not None:
            self._query.stop()
            self._wait_after(reason)

    def caught_up(self) -> bool:
        return self._restart_at is None and self._query.caught_up()

    @property
    def failures(self) -> int:
        """How often it ended in a row, without having run for long."""
        return self._backoff.failures

    def stop(self) -> None:
        self._restart_at = None
        self._query.stop()

    def _wait_after(self, reason: str) -> None:
        now = self._clock.monotonic()
        if now - self._started_at > self._backoff.maximum:
            self._backoff.success()
        pause = self._backoff.after_failure()
        self._restart_at = now + pause
        self.reason = reason
        log.warning("query ended and starts anew", query=self._query.name, reason=reason, retry_seconds=round(pause, 2))


def _reason(text: str) -> str:
    """The line that says what happened, out of two languages' stack traces."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("trunkline.", "psycopg."))]
    return (named or lines or ["no reason given"])[0]
