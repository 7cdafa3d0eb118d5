"""A receiver group at work: one streaming query, what keeps it running, and a clock for filters that hold events back.

G1  A group runs while its lease is held. What begins with a lease writes down the routes it runs, and then runs them: from the
    batch on that its predecessor may have half done.
G2  A change of routes is a revision in Postgres: it takes effect with the next batch, and nothing is started anew.
G3  To drain, the batch under way ends or is interrupted, within the time the lease leaves: what is not committed by then is
    done again by the next holder, and the fence keeps the rest out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import structlog
from pyspark.sql import DataFrame

from trunkline.core.clock import Clock
from trunkline.core.errors import Fenced, TrunklineError
from trunkline.db.lease import PATIENCE, commit_fenced, connect_fenced
from trunkline.pipeline.jobs.batches import Batches, Tell
from trunkline.pipeline.jobs.deliver import Loop, Senders
from trunkline.pipeline.jobs.feed import feed_of
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.pipeline.jobs.source import FORMAT, JobSource
from trunkline.pipeline.jobs.stored import Member, begin, change, forget_batches
from trunkline.pipeline.query import BatchQuery, Supervisor
from trunkline.pipeline.session import ROUTES_POOL, Spark

TRIGGER_SECONDS = 0.1
DRAIN_SECONDS = 1.5
LOOK_SECONDS = 0.1
GONE_SECONDS = 1.0  # between two looks for routes that have gone and left something
FORGET_SECONDS = 600.0

log = structlog.get_logger(__name__)


class _Query(BatchQuery):
    def __init__(
        self, batches: Batches, name: str, stream: Callable[[], DataFrame], trigger_seconds: float, checkpoints: Path
    ) -> None:
        super().__init__(name, stream, trigger_seconds, checkpoints, batches.take, ROUTES_POOL, DRAIN_SECONDS)
        self._batches = batches

    @property
    def connection(self) -> psycopg.Connection[Any] | None:
        return self._batches.connection


class Job:
    """`failed` is called, from the job's thread, when it could not go on `let_go` times in a row, and each time after that."""

    def __init__(
        self, spark: Spark, settings: JobSettings, checkpoints: Path, loop: Loop, clock: Clock, tell: Tell,
        failed: Callable[[str], None], let_go: int = 3,
    ) -> None:  # fmt: skip
        self.settings = settings
        self._spark, self._clock, self._failed, self._let_go, self._loop = spark, clock, failed, let_go, loop
        self._senders = Senders(settings, loop)
        self._feed = feed_of(settings)
        self.batches = Batches(settings, self._feed, self._senders, tell)
        name = f"routes-{settings.of.plugin}"
        self._query = _Query(self.batches, name, self._stream, TRIGGER_SECONDS, checkpoints)
        self._supervisor = Supervisor(self._query, clock)
        self._conn: psycopg.Connection[object] | None = None
        self._writing = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"job-{settings.group}", daemon=True)
        self._members: Callable[[], Mapping[str, Member]] = dict
        self._begun = False
        self._forgets_at = self._looks_at = 0.0
        self._changes, self._settled, self._told = 1, 0, 0

    @property
    def senders(self) -> Senders:
        return self._senders

    @property
    def looked(self) -> bool:
        """Whether it has asked its source at least once: receivers that begin at the end have begun."""
        return self._query.has_looked

    @property
    def failing(self) -> str:
        """Why it does not read, or not all that it should."""
        return self._supervisor.reason if self._supervisor.failures else self._query.stuck()

    @property
    def behind(self) -> int:
        """How many events wait for the next batch, as far as it knows."""
        return self._query.behind()

    @property
    def settled(self) -> bool:
        """Whether nothing is held back, as of the last change: without routes, it may end."""
        return self._settled == self._changes

    def unsettle(self) -> None:
        """A change is on its way."""
        self._changes += 1

    def start(self, members: Callable[[], Mapping[str, Member]]) -> None:
        """`members`: what the group shall be, whenever it is asked for."""
        self._members = members
        self._thread.start()

    def write_all(self) -> None:
        """Nobody knows whether the last change was written down: soon all of the group is, as it shall be then."""
        self._begun = False

    def change(self, came: Sequence[Member], went: Collection[str]) -> None:
        """Blocks until it is committed, or has to wait until all is written down; raises what kept it from that."""
        with self._writing:
            self.unsettle()
            if self._begun:
                conn = self._connection()
                change(conn, self.settings.group, came, went)
                commit_fenced(conn, self.settings.grant)

    def stop(self) -> None:
        self._stopping.set()
        self._supervisor.stop()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(DRAIN_SECONDS)
        self.batches.close()
        with self._writing:
            if self._conn is not None:
                self._conn.close()
        self._feed.close()
        self._loop.start(self._senders.close())

    def _stream(self) -> DataFrame:
        self._spark.register(JobSource)
        return self._spark.session.readStream.format(FORMAT).options(**self.settings.options()).load()

    def _run(self) -> None:
        if not self._begin():
            return
        self._supervisor.start()
        while not self._stopping.wait(LOOK_SECONDS):
            self._supervisor.supervise()
            self._tend()
            self._tell_failures()

    def _tell_failures(self) -> None:
        """Each once: whoever hears of it rests longer every time."""
        failures = self._supervisor.failures
        if self._let_go <= failures != self._told and not self.batches.given_back:
            self._failed(self._supervisor.reason)
        self._told = failures

    def _begin(self) -> bool:
        while not self._stopping.is_set():
            try:
                self._write_members()
                return True
            except (psycopg.Error, TrunklineError) as error:
                log.warning("a route job cannot begin", group=self.settings.group, reason=str(error))
                if isinstance(error, Fenced):
                    return False
                self._stopping.wait(1.0)
        return False

    def _write_members(self) -> None:
        """If the group changes while they are written, that comes next, or all of it again."""
        with self._writing:
            self._begun = True
            try:
                self.unsettle()
                conn = self._connection()
                begin(conn, self.settings.group, self._members())
                commit_fenced(conn, self.settings.grant)
            except BaseException:
                self._begun = False
                raise

    def _tend(self) -> None:
        try:
            if not self._begun:
                self._write_members()
            self._flush()
            if self._clock.monotonic() >= self._forgets_at:
                self._forgets_at = self._clock.monotonic() + FORGET_SECONDS
                with self._writing:
                    conn = self._connection()
                    forget_batches(conn)
                    conn.commit()
        except Exception as error:  # without this thread the group would stand still, and keep its lease
            if not self._stopping.is_set():
                log.warning("a route job could not be tended; it is tried again", group=self.settings.group, reason=str(error))
                self._stopping.wait(1.0)

    def _flush(self) -> None:
        changes, now = self._changes, self._clock.monotonic()
        looks = now >= self._looks_at
        empty = self.batches.flush(looks)
        if looks:
            self._looks_at = now + GONE_SECONDS
            self._settled = changes if empty else 0

    def _connection(self) -> psycopg.Connection[object]:
        if self._conn is None or self._conn.closed:
            self._conn = connect_fenced(self.settings.dsn, "trunkline-job-routes", **PATIENCE)
        elif self._conn.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
            self._conn.rollback()
        return self._conn
