"""DB workers and their dispatcher: the apply half of the bridge, beside Spark and all the time.

Each worker is a thread with a connection of its own. A free worker asks the units for a job, so it is there first and
the bundle is chosen last. The units are fed from the inbox: by a full scan at the start and every second, and by
`notice` right after each intake commit; what one of the two misses the other brings.

W1  One hung or slow apply holds one worker; a statement ends by its timeout.
W2  A bundle that fails for what it holds is tried again with backoff, then moved to quarantine: it costs only itself.
W3  A failure that is not the bundle's (database down, deadlock) is waited out for as long as it takes.
W4  `Fenced` in any thread stops them all and is told to the owner once.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
import structlog
from psycopg.conninfo import make_conninfo

from trunkline.bridge.apply import apply_bundle, quarantine_bundle
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.units import Job, Units, Waiting
from trunkline.core.backoff import Backoff
from trunkline.core.bundle import Bundle, Dependency, Version
from trunkline.core.clock import Clock
from trunkline.core.errors import Fenced, Invalid
from trunkline.db.lease import Grant, connect_fenced

MAX_TRIES = 3
RESCAN_SECONDS = 1.0
STATEMENT_SECONDS = 30

_POISON = (psycopg.DataError, psycopg.IntegrityError, Invalid)
_SCAN_INBOX = """
SELECT site, type, key, incarnation, generation, dependency_type, dependency_incarnation, dependency_generation,
       extract(epoch FROM arrived_at)::float8
  FROM bridge.inbox
"""
_SCAN_LEDGER = "SELECT site, type, incarnation, generation FROM bridge.ledger"

log = structlog.get_logger(__name__)


def waiting_for(bundle: Bundle, since: float) -> Waiting:
    """What the units must know of a bundle that was just taken in."""
    declared = SHIPPED[bundle.type]
    key = declared.slot_key(bundle)
    return Waiting(bundle.source, bundle.type, key, bundle.version, bundle.dependency, declared.priority, since)


def _scanned(row: tuple[Any, ...]) -> Waiting:
    site, type_, key, incarnation, generation, needs, needs_incarnation, needs_generation, since = row
    dependency = Dependency(needs, Version(needs_incarnation, needs_generation)) if needs else None
    priority = SHIPPED[type_].priority if type_ in SHIPPED else 0
    return Waiting(site, type_, key, Version(incarnation, generation), dependency, priority, since)


class _Connection:
    """One thread's connection, made when it is needed and made anew after an error."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._conn: psycopg.Connection[Any] | None = None

    def get(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = connect_fenced(make_conninfo(self._dsn, connect_timeout=5))
            self._conn.execute(f"SET statement_timeout = '{STATEMENT_SECONDS}s'")
            self._conn.commit()
        return self._conn

    def cancel(self) -> None:
        if self._conn is not None and not self._conn.closed:
            self._conn.cancel_safe(timeout=2)

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()


class Workers:
    def __init__(self, dsn: str, grant: Grant, count: int, clock: Clock, on_fenced: Callable[[], None]) -> None:
        self._grant, self._clock, self._on_fenced = grant, clock, on_fenced
        self._units = Units()
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._connections = [_Connection(dsn) for _ in range(count + 1)]
        bodies = [self._dispatch, *[self._work] * count]
        self._threads = [
            threading.Thread(target=self._guarded, args=(body, conn), name=f"db-worker-{n}", daemon=True)
            for n, (body, conn) in enumerate(zip(bodies, self._connections, strict=True))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def notice(self, waiting: Iterable[Waiting]) -> None:
        """These are in the inbox now."""
        with self._changed:
            for entry in waiting:
                self._units.arrived(entry)
            self._changed.notify_all()

    def stop(self, seconds: float = 10.0) -> None:
        """Lets the applies in flight end; what does not end in time is cancelled and rolls back."""
        self._signal_stop()
        deadline = self._clock.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - self._clock.monotonic()))
        for thread, conn in zip(self._threads, self._connections, strict=True):
            if thread.is_alive():
                conn.cancel()
                thread.join(5)

    def _signal_stop(self) -> None:
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()

    def _guarded(self, body: Callable[[_Connection], None], conn: _Connection) -> None:
        try:
            body(conn)
        except Fenced:
            first = not self._stopping.is_set()
            self._signal_stop()
            if first:
                self._on_fenced()
        finally:
            conn.close()

    def _dispatch(self, conn: _Connection) -> None:
        backoff = Backoff(0.2, 5.0, random.random)
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                self._rescan(conn.get())
                backoff.success()
                pause = RESCAN_SECONDS
            except psycopg.Error as error:
                pause = backoff.after_failure()
                log.warning("inbox cannot be read", error=str(error).strip(), retry_seconds=round(pause, 2))

    def _rescan(self, conn: psycopg.Connection[Any]) -> None:
        """The ledger is read after the inbox: a bundle seen waiting is at most too new for it, never too old."""
        inbox = conn.execute(_SCAN_INBOX).fetchall()
        ledger = conn.execute(_SCAN_LEDGER).fetchall()
        conn.rollback()
        with self._changed:
            for site, type_, incarnation, generation in ledger:
                self._units.known(site, type_, Version(incarnation, generation))
            for row in inbox:
                self._units.arrived(_scanned(row))
            self._changed.notify_all()

    def _work(self, conn: _Connection) -> None:
        backoff = Backoff(0.2, 5.0, random.random)
        while (job := self._next_job()) is not None:
            try:
                self._apply(conn.get(), job)
                backoff.success()
            except Fenced:
                raise
            except Exception as error:
                conn.close()
                pause = backoff.after_failure()
                self._failed(job, pause, counts=False)
                log.warning("apply waits", **_named(job), error=str(error).strip(), retry_seconds=round(pause, 2))
                self._stopping.wait(pause)

    def _next_job(self) -> Job | None:
        with self._changed:
            while not self._stopping.is_set():
                now = self._clock.monotonic()
                self._units.tick(now)
                job = self._units.take()
                if job is not None:
                    return job
                retry = self._units.next_retry()
                self._changed.wait(max(0.0, retry - now) if retry is not None else None)
        return None

    def _apply(self, conn: psycopg.Connection[Any], job: Job) -> None:
        try:
            applied = apply_bundle(conn, self._grant, job.site, job.type, job.key)
        except _POISON as error:
            self._poisoned(conn, job, error)
        else:
            self._finished(job, applied)

    def _poisoned(self, conn: psycopg.Connection[Any], job: Job, error: Exception) -> None:
        reason = str(error).strip()
        if job.tries + 1 < MAX_TRIES:
            self._failed(job, Backoff(0.2, 5.0, random.random, job.tries).after_failure(), counts=True)
            return
        moved = quarantine_bundle(conn, self._grant, job.site, job.type, job.key, job.version, reason)
        self._finished(job, None)
        if moved:
            log.error("bundle quarantined", **_named(job), reason=reason)

    def _finished(self, job: Job, applied: Version | None) -> None:
        with self._changed:
            self._units.finished(job, applied)
            self._changed.notify_all()

    def _failed(self, job: Job, seconds: float, counts: bool) -> None:
        with self._changed:
            self._units.failed(job, self._clock.monotonic() + seconds, counts)
            self._changed.notify_all()


def _named(job: Job) -> dict[str, str]:
    return {"site": job.site, "type": job.type, "version": str(job.version)}
