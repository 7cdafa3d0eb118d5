"""Receive queues of a client as a feed: each live receiver is a named consumer of all of them.

Consumers have the names that the local runner gives them, so a group goes from a pipeline to a node and back from where it
stands.

Q1  A new consumer begins at the tails, or at the heads if it says `newest`: in the transaction of the plan. One that was away
    for too long goes on with what is kept, and asks for snapshots.
Q2  A batch is exactly the positions of its plan: they are dense, and one that is missing fails the task.
Q3  A consumer moves from where the plan began, or the batch does not count (H28).
Q4  A queue's share is read by one task. Marks of snapshots, and of what is lost, are passed and are no events.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
import psycopg
import structlog

from trunkline.core.errors import Terminal
from trunkline.db.away import attentive
from trunkline.pipeline.jobs.feed import Connection, Read
from trunkline.pipeline.jobs.feeds.spans import AT_ONCE, CHUNK_BYTES, Span, by_bytes, by_rows, packed, rows_of, still_there
from trunkline.pipeline.jobs.receivers import Receiver, Receivers
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.queues import consumers
from trunkline.queues.kinds import Kind
from trunkline.queues.reader import Received, read_queue
from trunkline.routes.receivers.queue_consumer import consumer_name
from trunkline.routes.receivers.queue_event import KINDS, queue_event
from trunkline.trunk.log import LOST

_SEEN_SECONDS = 10.0
_ATTACHED = "SELECT name, detached_at IS NOT NULL FROM queues.consumer WHERE client = %s AND name = ANY (%s)"
# Not a join, for the planner knows nothing of rows that come and go.
_SIZES = """
SELECT coalesce((SELECT r.total FROM queues.receive r WHERE r.queue = u.queue AND r.position = u.last LIMIT 1)
    - (SELECT r.total - length(r.payload) FROM queues.receive r WHERE r.queue = u.queue AND r.position = u.first LIMIT 1), 0)
  FROM unnest(%s::int[], %s::bigint[], %s::bigint[]) WITH ORDINALITY AS u (queue, first, last, nth) ORDER BY u.nth
"""

log = structlog.get_logger(__name__)


class QueueFeed:
    stuck = ""

    def __init__(self, settings: JobSettings) -> None:
        self._settings, self._client = settings, settings.of.cluster
        self._seen_again = -math.inf

    # -- planning

    def next(self, conn: Connection, receivers: Receivers, open_body: Any | None) -> tuple[Any | None, int]:
        self._attach(conn, receivers)
        waiting = [span for receiver in receivers.values() for span in self._waiting(conn, receiver)]
        if open_body is not None:
            planned = msgspec.convert(open_body, list[Span])
            if still_there(planned, waiting):
                return open_body, rows_of(waiting) - rows_of(planned)
        spans = self._admitted(conn, waiting)
        return msgspec.to_builtins(spans) if spans else None, rows_of(waiting) - rows_of(spans)

    def _attach(self, conn: Connection, receivers: Receivers) -> None:
        named = {consumer_name(name): receiver for name, receiver in receivers.items()}
        known: dict[str, bool] = dict(conn.execute(_ATTACHED, (self._client, list(named))).fetchall())
        for name, receiver in named.items():
            if name not in known:
                self._begin(conn, name, receiver.config.start_at == "newest")
            elif known[name]:
                log.warning("a route was away for too long; it goes on with what is kept", consumer=name, client=self._client)
                consumers.reattach(conn, self._client, name)
        if time.monotonic() >= self._seen_again:
            self._seen_again = time.monotonic() + _SEEN_SECONDS
            for name in named:
                consumers.seen(conn, self._client, name)

    def _begin(self, conn: Connection, name: str, newest: bool) -> None:
        consumers.attach(conn, self._client, name)
        for place in consumers.positions(conn, self._client, name) if newest else ():
            consumers.advance(conn, self._client, name, place.queue, place.head, place.position)

    def _waiting(self, conn: Connection, receiver: Receiver) -> Iterator[Span]:
        for place in consumers.positions(conn, self._client, consumer_name(receiver.name)):
            if place.head > place.position:
                yield Span(receiver.name, place.position + 1, place.head + 1, place.queue, place.remote)

    def _admitted(self, conn: Connection, waiting: Sequence[Span]) -> list[Span]:
        spans = by_rows(waiting, self._settings.max_rows)
        asked = ([s.queue for s in spans], [s.first for s in spans], [s.end - 1 for s in spans])
        sizes = [size for (size,) in conn.execute(_SIZES, asked)] if spans else []
        return by_bytes(spans, sizes, self._settings.max_bytes)

    def partition(self, source: str) -> str:
        return source.partition("/")[0]

    def rows(self, body: Any) -> int:
        return rows_of(msgspec.convert(body, list[Span]))

    def pieces(self, body: Any, tasks: int) -> Sequence[tuple[Span, ...]]:
        return packed(msgspec.convert(body, list[Span]), tasks)

    # -- in a task

    def read(self, piece: tuple[Span, ...], receivers: Receivers) -> Iterator[Read]:
        with closing(
            psycopg.connect(attentive(self._settings.dsn), autocommit=True, application_name="trunkline-job-queue")
        ) as conn:
            for span in piece:
                receiver = receivers[span.receiver]
                for entries in _chunks(span, read_queue(conn, span.queue, span.remote, span.first - 1, span.end - 1)):
                    now = time.time()
                    found = (entry for entry in entries if _is_event(entry))
                    events = [queue_event(self._client, entry, receiver.tenant, now) for entry in found]
                    if events:
                        yield receiver, events

    # -- in the driver

    def move(self, conn: Connection, body: Any) -> None:
        for span in msgspec.convert(body, list[Span]):
            name = consumer_name(span.receiver)
            consumers.advance(conn, self._client, name, span.queue, span.end - 1, after=span.first - 1)

    def check(self, body: Any, receivers: Receivers) -> None:
        """Tasks have checked every position."""

    def close(self) -> None:
        """It holds nothing."""


def _chunks(span: Span, entries: Iterable[Received]) -> Iterator[list[Received]]:
    chunk: list[Received] = []
    size, expected = 0, span.first
    for entry in entries:
        if entry.position != expected:
            break
        expected += 1
        chunk.append(entry)
        size += len(entry.payload)
        if len(chunk) >= AT_ONCE or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if expected != span.end:
        why = f"position {expected} is missing"
        raise Terminal(f"queue {span.queue} of {span.remote}", why, "look at it with `trunkline queues verify`")
    if chunk:
        yield chunk


def _is_event(entry: Received) -> bool:
    if entry.kind is Kind.LOST:
        log.error("entries are lost: their source had trimmed them", source=entry.source, which=entry.headers.get(LOST))
    return entry.kind in KINDS
