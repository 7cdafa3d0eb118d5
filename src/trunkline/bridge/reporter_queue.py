"""`StatusReporter`: a site's status over the queues, sent in the application's own transaction.

Q1  A bundle and what is remembered of it (its version, its digest) commit together with the application's change, or not at
    all: whatever dies, no version has two contents, and no content is thought sent that was not.
Q2  Who sends a type has its row locked until the transaction ends, and the row of its base against a newer base. What a source
    reads is read after that, so a higher generation never holds older rows.
Q3  A request of the hub is a row, in the transaction that takes it from the queue; the answer deletes it, in the transaction
    that sends it.
Q4  A source that fails costs its own type: the request stays, the type is tried again after a while, the others are answered.

In one transaction report bases before what depends on them: rows are locked in that order everywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from random import random
from types import TracebackType
from typing import Any, Self

import psycopg
import structlog

from trunkline.bridge.askers import control_client, parse_request
from trunkline.bridge.pauses import Pauses
from trunkline.bridge.reporter import FULL_SECONDS, Changes, Composer, Known, Last, Outgoing
from trunkline.bridge.types import Types
from trunkline.core.backoff import Backoff
from trunkline.core.bundle import Version
from trunkline.core.clock import Clock, SystemClock
from trunkline.core.errors import Invalid, TrunklineError
from trunkline.db.away import attentive, in_one_line
from trunkline.queues.client import Message, QueueClient
from trunkline.queues.kinds import Kind
from trunkline.queues.listener import QueueListener, QueueMessage

Connection = psycopg.Connection[Any]
Source = Callable[[Connection], Any]
"""Reads all there is of a type: rows, or the objects of a hybrid type."""

CONSUMER = "reporter"
LOOK_SECONDS = 0.5

_START = """
INSERT INTO reporter.run AS r (client, incarnation) VALUES (%s, extract(epoch FROM clock_timestamp())::bigint)
ON CONFLICT (client) DO UPDATE SET incarnation = greatest(r.incarnation + 1, excluded.incarnation), started_at = now()
RETURNING incarnation
"""
_RUN = "SELECT incarnation FROM reporter.run WHERE client = %s"
_ROW = "incarnation, generation, digest, extract(epoch FROM greatest(sent_at, 'epoch'))::float8 FROM reporter.sent"
_OWN = f"SELECT {_ROW} WHERE client = %s AND type = %s FOR UPDATE"
_BASE = f"SELECT {_ROW} WHERE client = %s AND type = %s FOR SHARE"
_ALL = f"SELECT type, {_ROW} WHERE client = %s"
_FIRST = "INSERT INTO reporter.sent (client, type) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_SENT = """
UPDATE reporter.sent SET incarnation = %s, generation = %s, digest = %s, sent_at = to_timestamp(%s)
 WHERE client = %s AND type = %s
"""
_WANT = "INSERT INTO reporter.wanted (client, type) SELECT %s, unnest(%s::text[]) ORDER BY 2 ON CONFLICT DO NOTHING"
_WANTED = "SELECT type FROM reporter.wanted WHERE client = %s"
_ANSWERED = "DELETE FROM reporter.wanted WHERE client = %s AND type = %s"

log = structlog.get_logger(__name__)


class StatusReporter:
    """Reports as `site` to `hub`. With a source for each type it also answers the hub's requests, and sends all there is from
    time to time: `with reporter.serving(dsn): ...`. The first call of a process is `start`."""

    def __init__(
        self,
        site: str,
        hub: str,
        types: Types,
        sources: Mapping[str, Source] | None = None,
        client: str = "status",
        full_seconds: float = FULL_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._hub, self._client, self._queue = hub, client, QueueClient(client)
        self._composer = Composer(site, types, full_seconds)
        self._sources = dict(sources or {})
        self._clock = clock or SystemClock()
        self._pauses = Pauses(self._clock)

    @property
    def client(self) -> str:
        return self._client

    def start(self, conn: Connection) -> int:
        """Raises the incarnation, in a transaction of its own."""
        with conn.transaction():
            row = conn.execute(_START, (self._client,)).fetchone()
        assert row is not None
        return int(row[0])

    def report(self, conn: Connection, type_: str, rows: Any = None) -> Version | None:
        """In the caller's transaction: all rows of a complete type, or some of a delta or append type. Without `rows` the
        source of the type is read. None: nothing has changed, and nothing is sent."""
        return self._send(conn, type_, lambda: self._read(conn, type_) if rows is None else rows)

    def changed(
        self, conn: Connection, type_: str, create: Iterable[Any] = (), update: Iterable[Any] = (), delete: Iterable[Any] = ()
    ) -> Version | None:
        """The same for a hybrid type."""
        changes = Changes(tuple(create), tuple(update), tuple(delete))
        return self._send(conn, type_, lambda: changes)

    def restore(self, conn: Connection, type_: str) -> Version:
        """All there is of a complete or hybrid type, from its source."""
        known = self._locked(conn, type_)
        return self._transmit(conn, type_, self._composer.restore(type_, self._read(conn, type_), known, self._clock.wall()))

    def wanted(self, conn: Connection, types: Iterable[str]) -> None:
        """The hub has asked for these; without any, for all."""
        asked = self._composer.to_send(list(types) or self._sources)
        conn.execute(_WANT, (self._client, [name for name in asked if name in self._sources]))

    def answer(self, conn: Connection) -> list[str]:
        """What was asked for or is due, each in a transaction of its own; bases first. What is returned was sent.
        The connection is in autocommit mode."""
        with conn.transaction():
            due = self._due(conn)
            if due:
                self.wanted(conn, due)
            wanted = {name for (name,) in conn.execute(_WANTED, (self._client,))}
        todo = [name for name in self._composer.to_send(wanted) if name in self._sources]
        return [name for name in todo if not self._pauses.rests(name) and self._answered(conn, name)]

    def _answered(self, conn: Connection, type_: str) -> bool:
        try:
            with conn.transaction():
                self.restore(conn, type_)
                conn.execute(_ANSWERED, (self._client, type_))
        except Exception as error:
            if conn.closed:
                raise
            self._pauses.failed(type_, error)
            return False
        self._pauses.worked(type_)
        return True

    def serving(self, dsn: str) -> Serving:
        return Serving(self, dsn)

    def take_requests(self, conn: Connection, batch: list[QueueMessage]) -> bool:
        """For a listener of the control queue: in its transaction. What is not the hub's is left alone."""
        types: set[str] = set()
        for message in batch:
            if message.kind is Kind.LOG_ENTRY and message.remote == self._hub:
                types |= self._requested(message)
        if types:
            self.wanted(conn, types)
        return True

    def _requested(self, message: QueueMessage) -> set[str]:
        try:
            request = parse_request(message.headers, message.payload)
        except Invalid as error:
            log.warning("request not understood", error=str(error))
            return set()
        return set(request.types or self._sources) if request else set()

    def _due(self, conn: Connection) -> list[str]:
        """Without locks: it is a matter of hours."""
        run = self._incarnation(conn.execute(_RUN, (self._client,)).fetchone())
        sent = {row[0]: _last(row[1:]) for row in conn.execute(_ALL, (self._client,))}
        now = self._clock.wall()
        return [name for name in self._sources if self._composer.is_due(Known(run, sent.get(name)), now)]

    def _send(self, conn: Connection, type_: str, content: Callable[[], Any]) -> Version | None:
        known = self._locked(conn, type_)
        sent = self._composer.compose(type_, content(), known, self._clock.wall())
        return self._transmit(conn, type_, sent) if sent else None

    def _transmit(self, conn: Connection, type_: str, sent: Outgoing) -> Version:
        last = sent.last
        self._queue.transmit_messages(conn, [Message(one.data, [self._hub], one.headers()) for one in sent.bundles])
        row = (last.version.incarnation, last.version.generation, last.digest, last.at, self._client, type_)
        conn.execute(_SENT, row)
        return sent.version

    def _read(self, conn: Connection, type_: str) -> Any:
        source = self._sources.get(type_)
        if source is None:
            raise Invalid(f"report of {type_}", "it has no rows and no source", "give it rows, or the reporter a source")
        return source(conn)

    def _locked(self, conn: Connection, type_: str) -> Known:
        base = self._composer.types[type_].depends_on
        run = self._incarnation(conn.execute(_RUN + " FOR SHARE", (self._client,)).fetchone())
        found = _last(conn.execute(_BASE, (self._client, base)).fetchone()) if base else None
        own = _last(conn.execute(_OWN, (self._client, type_)).fetchone())
        if own is None:
            conn.execute(_FIRST, (self._client, type_))
            own = _last(conn.execute(_OWN, (self._client, type_)).fetchone())
        return Known(run, own, found if found and found.version.generation else None)

    def _incarnation(self, row: tuple[Any, ...] | None) -> int:
        if row is None:
            raise Invalid(f"reporter {self._client}", "it was never started", "call start() when the process begins")
        return int(row[0])


def _last(row: tuple[Any, ...] | None) -> Last | None:
    return Last(Version(row[0], row[1]), row[2], row[3]) if row else None


class Serving:
    """Takes the hub's requests and answers them, in threads of its own, until the block ends."""

    def __init__(self, reporter: StatusReporter, dsn: str) -> None:
        self._reporter, self._dsn = reporter, dsn
        self._listener = QueueListener(dsn, control_client(reporter.client), CONSUMER, process_in=reporter.take_requests)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._answer, name="status-reporter", daemon=True)

    def __enter__(self) -> Self:
        self._listener.__enter__()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._listener.__exit__(kind, error, trace)

    def _answer(self) -> None:
        backoff = Backoff(0.2, 30.0, random)
        pause = 0.0
        while not self._stop.wait(pause):
            try:
                with closing(
                    psycopg.connect(attentive(self._dsn), autocommit=True, application_name="trunkline-reporter")
                ) as conn:
                    while not self._stop.wait(LOOK_SECONDS):
                        self._reporter.answer(conn)
                        backoff.success()
            except Exception as failure:
                pause = backoff.after_failure()
                defect = None if isinstance(failure, (psycopg.Error, TrunklineError)) else failure
                log.warning("report waits", error=in_one_line(failure), retry_seconds=round(pause, 2), exc_info=defect)
