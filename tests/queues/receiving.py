"""The receiving side of one site as these tests use it: a sink, what arrives through it, and who reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool

from trunkline.core.ids import START, Position
from trunkline.db.lease import Grant, acquire
from trunkline.db.pool import open_pool
from trunkline.queues.consumers import attach, move_tails
from trunkline.queues.kinds import Kind
from trunkline.queues.listener import Pace
from trunkline.queues.receive import Limits, PostgresSink
from trunkline.trunk.log import Entry

LOG = "5f0c1f0e-0000-4000-8000-000000000001"
OTHER_LOG = "5f0c1f0e-0000-4000-8000-000000000002"
REQUEST = "0c0ffee0-0000-4000-8000-000000000001"
OTHER_REQUEST = "0c0ffee0-0000-4000-8000-000000000002"
QUICK = Pace(busy=0.005, idle=0.02, first_retry=0.005, last_retry=0.02, replay_every=0.02)

_EMPTY = """
TRUNCATE queues.receive, queues.queue, queues.session, queues.consumer, queues.consumed, queues.dead_letter,
         queues.closed_slot, site.lease RESTART IDENTITY;
UPDATE queues.receiver SET slot = 0, slot_since = now();
"""


def entry(seq: int, client: str = "app", payload: bytes | None = None) -> Entry:
    return Entry(seq, client, ("hub",), {"n": str(seq)}, b"%d" % seq if payload is None else payload)


@dataclass
class Receiver:
    dsn: str
    stack: ExitStack
    grant: Grant = field(init=False)

    def __post_init__(self) -> None:
        self.do(_EMPTY)
        self.grant = self.acquire()

    def connect(self) -> psycopg.Connection[Any]:
        return self.stack.enter_context(closing(psycopg.connect(self.dsn)))

    def pool(self) -> ConnectionPool[psycopg.Connection[Any]]:
        return self.stack.enter_context(closing(open_pool(self.dsn, 2, "test")))

    def ask(self, query: str, args: Sequence[Any] = ()) -> list[Any]:
        """The rows, or for one column its values."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            rows = conn.execute(query.encode(), args).fetchall()
        return [row[0] if len(row) == 1 else row for row in rows]

    def do(self, statement: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute(statement.encode())

    def acquire(self) -> Grant:
        with psycopg.connect(self.dsn) as conn:
            grant = acquire(conn, "leader", 60)
        assert grant is not None
        return grant

    def take_over(self) -> Grant:
        self.do("UPDATE site.lease SET expires_at = '-infinity'")
        return self.acquire()

    def sink(self, *clients: str, origin: str = "leaf", limits: Limits | None = None) -> PostgresSink:
        """These clients' sessions take log entries."""
        sink = PostgresSink(self.pool(), self.grant, limits)
        for client in clients:
            assert sink.use_log(origin, client, LOG, START)
        sink.applied(origin)
        return sink

    def attach(self, client: str, *names: str) -> None:
        with psycopg.connect(self.dsn) as conn:
            for name in names:
                attach(conn, client, name)

    def move_tails(self) -> int:
        with psycopg.connect(self.dsn) as conn:
            return move_tails(conn)

    def queue(self, client: str = "app", remote: str = "leaf") -> int:
        (found,) = self.ask("SELECT id FROM queues.queue WHERE client = %s AND remote = %s", (client, remote))
        return int(found)

    def stored(self, client: str = "app", remote: str = "leaf") -> list[tuple[Kind, bytes]]:
        """(kind, payload) in order of position; proves on the way that positions are dense."""
        rows = self.ask(
            "SELECT r.position, r.type, r.payload FROM queues.receive r JOIN queues.queue q ON q.id = r.queue "
            "WHERE q.client = %s AND q.remote = %s ORDER BY r.position",
            (client, remote),
        )
        assert [position for position, _, _ in rows] == list(range(1, len(rows) + 1))
        return [(Kind(kind), payload) for _, kind, payload in rows]

    def payloads(self, client: str = "app", remote: str = "leaf") -> list[bytes]:
        return [payload for _, payload in self.stored(client, remote)]

    def state(self, client: str = "app", origin: str = "leaf") -> tuple[str, str, int]:
        """(state, reason, seq) of its session."""
        asked = "SELECT state, reason, seq FROM queues.session WHERE origin = %s AND client = %s"
        (found,) = self.ask(asked, (origin, client))
        state, reason, seq = found
        return state, reason, seq


def stands(sink: PostgresSink, origin: str = "leaf") -> tuple[str, dict[str, Position], set[str]]:
    """Log, positions above the start, and the clients it holds, as `applied` says them; the stream begins anew."""
    applied = sink.applied(origin)
    return applied.log_id, {c: p for c, p in applied.clients.items() if p != START}, set(applied.held)


def arrive(sink: PostgresSink, first: int, last: int, client: str = "app", origin: str = "leaf") -> bool:
    """Entries first to last, as one append."""
    entries = [entry(seq, client) for seq in range(first, last + 1)]
    return sink.append(origin, LOG, entries, Position(last, 1), [client])


def snapshot(sink: PostgresSink, count: int, base: int = 10, client: str = "app", request: str = REQUEST) -> None:
    """START, s0, s1 … in one chunk, LAST."""
    assert sink.begin_snapshot("leaf", client, LOG, request, Position(base, 1), False)
    assert sink.store_chunk("leaf", client, request, 0, [({}, b"s%d" % n) for n in range(count)])
    assert sink.finish_snapshot("leaf", client, request)
    sink.applied("leaf")


@contextmanager
def receiving_side(dsn: str) -> Iterator[Receiver]:
    """On a database of the whole module, emptied for every test."""
    with ExitStack() as stack:
        yield Receiver(dsn, stack)
