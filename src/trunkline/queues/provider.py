"""A snapshot provider: the application's side of a full sync.

Theory. The leader turns a request into an exported snapshot and a base, both of one instant of the log: what is in the
snapshot is at or before the base, what is not comes after it as log entries (H19). The provider takes the request up, reads
*inside that snapshot* and supplies records; returning from `provide` is the end marker.

V1  The provider looks for rows, nobody calls it: a request from before it started is served like any other.
V2  While it provides, it holds the request's lock on the connection that writes the chunks. When the process dies, the lock
    is free, and the leader asks anew with a new base: half a snapshot is never taken for a whole one.
V3  Its reading transaction has imported the snapshot and exported it again, so that it depends on no other process.
V4  What does not end well does not end the request: a `provide` that raises is tried again, with a new base, after a pause
    of 2, 4, 8 … 60 s. A newer request ends the pause.
V5  A request that is superseded or cancelled is heard of within a moment: `transmit` raises, `context.cancelled` is true.
V6  Who reads elsewhere supplies a state of some instant before its end: listeners are told which entries it may know.
"""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
import structlog
from psycopg import IsolationLevel, sql

from trunkline.core.backoff import Backoff
from trunkline.core.errors import Terminal
from trunkline.core.ids import check_name
from trunkline.db.away import attentive
from trunkline.queues.reapplied import known_upto
from trunkline.queues.requests import again
from trunkline.queues.snapshot_chunks import ChunkWriter, SnapshotCancelled, cancelled

POLL_SECONDS = 0.1
SEEN_SECONDS = 5.0

_REGISTER = """
INSERT INTO queues.provider (client, owner) VALUES (%s, %s)
ON CONFLICT (client) DO UPDATE SET owner = excluded.owner, seen_at = now()
"""
_NEXT = "SELECT id FROM queues.request WHERE client = %s AND state = 'ready' ORDER BY created_at, id LIMIT 1"
_HOLD = "SELECT pg_try_advisory_lock(hashtextextended('trunkline.providing ' || %s::uuid, 0))"
_LET_GO = "SELECT pg_advisory_unlock(hashtextextended('trunkline.providing ' || %s::uuid, 0))"
_TAKE = """
UPDATE queues.request SET state = 'providing', provider = %s, updated_at = now() WHERE id = %s AND state = 'ready'
RETURNING id, destinations, reason, forced, snapshot
"""
_STILL_MINE = "SELECT FROM queues.request WHERE id = %s AND state = 'providing' AND provider = %s"
_NOTE = "UPDATE queues.request SET error = %s, updated_at = now() WHERE id = %s AND state = 'providing'"
_SNAPSHOT = "SELECT pg_current_snapshot()::text"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class SnapshotContext:
    """`connection` reads the database as it was at the base; leave its transaction open. `snapshot` lets other connections
    read the same: SET TRANSACTION SNAPSHOT, while `provide` runs. The records go to all `destinations` alike."""

    client: str
    request_id: UUID
    destinations: tuple[str, ...]
    reason: str
    forced: bool
    dsn: str
    connection: psycopg.Connection[Any]
    snapshot: str
    _writer: ChunkWriter
    _over: threading.Event
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def cancelled(self) -> bool:
        return self._over.is_set()

    def transmit(self, payload: bytes, headers: Mapping[str, str] | None = None, progress: int | None = None) -> None:
        """One record, after those before it; from any thread. `progress`, 0 to 100, is for people to see."""
        with self._lock:
            self._go_on().add(payload, headers or {}, progress)

    def working(self, progress: int | None = None) -> None:
        """For one whose next record takes minutes: who says nothing for ten is taken to be stuck, and asked anew."""
        with self._lock:
            self._go_on().working(progress)

    def _go_on(self) -> ChunkWriter:
        if self.cancelled:
            self._writer.fail()
            raise cancelled(self.request_id)
        return self._writer


@dataclass(frozen=True)
class _Taken:
    request: UUID
    destinations: list[str]
    reason: str
    forced: bool
    snapshot: str


def unregister(conn: psycopg.Connection[Any], client: str) -> None:
    """The client has no snapshots any more: its destinations begin with what the log still has."""
    conn.execute("DELETE FROM queues.provider WHERE client = %s", (client,))


class SnapshotProvider:
    """`run` serves until told to stop; as a context manager it does so in a thread of its own. `reads_elsewhere`: the state is
    not in this database, so that it cannot be read at the base (V6)."""

    def __init__(
        self,
        dsn: str,
        client: str,
        provide: Callable[[SnapshotContext], None],
        owner: str | None = None,
        backoff: Backoff | None = None,
        reads_elsewhere: bool = False,
    ) -> None:
        self._dsn, self._client, self._provide = dsn, check_name("client", client), provide
        self._owner = owner or f"{socket.gethostname()}/{os.getpid()}"
        self._backoff = backoff or Backoff(2.0, 60.0, random.random)
        self._reads_elsewhere = reads_elsewhere
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> SnapshotProvider:
        self._thread = threading.Thread(target=self.run, args=(self._stop,), name=f"snapshots-{self._client}")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def run(self, stop: threading.Event) -> None:
        backoff = Backoff(0.2, 5.0, random.random)
        while not stop.is_set():
            try:
                with closing(self._connect()) as conn:
                    self._serve(conn, stop, backoff)
            except psycopg.OperationalError as error:
                pause = backoff.after_failure()
                log.warning("database does not answer", client=self._client, error=str(error).strip(), retry_seconds=pause)
                stop.wait(pause)

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(attentive(self._dsn), autocommit=True, application_name=f"trunkline-provider-{self._client}")

    def _serve(self, conn: psycopg.Connection[Any], stop: threading.Event, backoff: Backoff) -> None:
        for nth in count():
            if stop.is_set():
                return
            self._be_seen(conn, nth)
            backoff.success()
            with self._taken(conn) as taken:
                if taken is not None:
                    self._serve_one(conn, taken, stop)
            stop.wait(POLL_SECONDS)

    def _be_seen(self, conn: psycopg.Connection[Any], nth: int) -> None:
        if nth % round(SEEN_SECONDS / POLL_SECONDS) == 0:
            conn.execute(_REGISTER, (self._client, self._owner))

    @contextmanager
    def _taken(self, conn: psycopg.Connection[Any]) -> Iterator[_Taken | None]:
        request = conn.execute(_NEXT, (self._client,)).fetchone()
        held = request and conn.execute(_HOLD, request).fetchone()
        if not request or not held or not held[0]:
            yield None
            return
        try:
            row = conn.execute(_TAKE, (self._owner, *request)).fetchone()
            yield _Taken(*row) if row else None
        finally:
            if not conn.broken:
                conn.execute(_LET_GO, request)

    def _serve_one(self, conn: psycopg.Connection[Any], taken: _Taken, stop: threading.Event) -> None:
        why = "its provider stopped"
        words = log.bind(client=self._client, request=str(taken.request), destinations=taken.destinations)
        with self._watched(taken.request, stop) as over:
            try:
                self._fill(conn, taken, over)
            except SnapshotCancelled as error:
                words.info("snapshot cancelled", reason=error.why)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                words.warning("snapshot failed and is tried again", error=why)
                conn.execute(_NOTE, (why, taken.request))
                over.wait(self._backoff.after_failure())
            else:
                self._backoff.success()
                words.info("snapshot provided", reason=taken.reason)
                return
        with conn.transaction():
            again(conn, taken.request, why)

    def _fill(self, conn: psycopg.Connection[Any], taken: _Taken, over: threading.Event) -> None:
        writer = ChunkWriter(conn, taken.request, self._owner)
        with closing(_reading(self._dsn, taken.snapshot)) as reading:
            before = _one(reading, _SNAPSHOT)
            context = SnapshotContext(
                self._client, taken.request, tuple(taken.destinations), taken.reason, taken.forced, self._dsn,
                reading, str(_one(reading, "SELECT pg_export_snapshot()")), writer, over,
            )  # fmt: skip
            self._provide(context)
            _require_same(before, reading)
        writer.complete(self._known_upto(conn, taken, writer, over) if self._reads_elsewhere else 0)

    def _known_upto(self, conn: psycopg.Connection[Any], taken: _Taken, writer: ChunkWriter, over: threading.Event) -> int:
        def go_on() -> bool:
            writer.working(None)
            return not over.wait(POLL_SECONDS)

        upto = known_upto(conn, go_on)
        if upto is None:
            raise cancelled(taken.request)
        return upto

    @contextmanager
    def _watched(self, request: UUID, stop: threading.Event) -> Iterator[threading.Event]:
        """Set as soon as the request is over for this provider, or it is told to stop."""
        over, ended = threading.Event(), threading.Event()

        def look() -> None:
            with closing(self._connect()) as conn:
                for nth in count():
                    self._be_seen(conn, nth)
                    mine = conn.execute(_STILL_MINE, (request, self._owner)).fetchone() is not None
                    if not mine or ended.wait(POLL_SECONDS) or stop.is_set():
                        return

        def watch() -> None:
            backoff = Backoff(0.2, 5.0, random.random)
            try:
                while not (ended.is_set() or stop.is_set()):
                    try:
                        look()
                        return
                    except psycopg.OperationalError as error:  # of this connection alone: it says nothing of the request
                        log.warning("database does not answer", client=self._client, error=str(error).strip())
                        ended.wait(backoff.after_failure())
            finally:
                over.set()

        watcher = threading.Thread(target=watch, name=f"snapshot-{request}")
        watcher.start()
        try:
            yield over
        finally:
            ended.set()
            watcher.join()


def _reading(dsn: str, snapshot: str) -> psycopg.Connection[Any]:
    conn = psycopg.connect(dsn, options="-c idle_in_transaction_session_timeout=0", application_name="trunkline-snapshot")
    try:
        conn.isolation_level = IsolationLevel.REPEATABLE_READ
        conn.read_only = True
        conn.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
    except BaseException:
        conn.close()
        raise
    return conn


def _one(conn: psycopg.Connection[Any], query: str) -> Any:
    row = conn.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def _require_same(before: str, reading: psycopg.Connection[Any]) -> None:
    if reading.closed or _one(reading, _SNAPSHOT) != before:
        why = "the provider ended the transaction that it was given: what it read later is of another instant"
        raise Terminal("snapshot", why, "neither commit nor roll back nor close context.connection")
