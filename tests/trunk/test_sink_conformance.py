"""What every `Sink` must do: the same bodies over the sink in memory and the one in Postgres."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

import psycopg
import pytest

from trunkline.core.errors import LocalProtocolError
from trunkline.core.ids import START, Position
from trunkline.db.lease import acquire
from trunkline.db.pool import open_pool
from trunkline.queues.reader import heads, read
from trunkline.queues.receive import PostgresSink
from trunkline.trunk.log import LOST, Entry, Sink
from trunkline.trunk.memory import MemorySink

LOG = "5f0c1f0e-0000-4000-8000-000000000001"
OTHER_LOG = "5f0c1f0e-0000-4000-8000-000000000002"
Content = list[tuple[int, dict[str, str], bytes]]


class Destination(Protocol):
    """A sink with its reading side."""

    @property
    def sink(self) -> Sink: ...

    def begin(self, origin: str, *clients: str, log_id: str = LOG) -> None:
        """These clients' sessions take log entries from where they stand."""

    def lost(self, origin: str, log_id: str, upto: Position, *clients: str) -> None:
        """They lack entries up to here, and there is no snapshot to make up for them."""

    def received(self, origin: str, client: str = "app") -> Content:
        """(seq, headers, payload) in order of arrival."""


@dataclass
class InMemory:
    sink: MemorySink = field(default_factory=MemorySink)

    def begin(self, origin: str, *clients: str, log_id: str = LOG) -> None:
        """They do from the start."""

    def lost(self, origin: str, log_id: str, upto: Position, *clients: str) -> None:
        self.sink.lost(origin, log_id, upto, clients)

    def received(self, origin: str, client: str = "app") -> Content:
        arrived = self.sink.received.get(origin, [])
        return [(e.seq, e.headers, e.payload) for e in arrived if e.client == client]


@dataclass
class InPostgres:
    sink: PostgresSink
    conn: psycopg.Connection[Any]

    def begin(self, origin: str, *clients: str, log_id: str = LOG) -> None:
        for client in clients:
            assert self.sink.use_log(origin, client, log_id, START)
        self.sink.applied(origin)

    def lost(self, origin: str, log_id: str, upto: Position, *clients: str) -> None:
        self.sink.lost(origin, log_id, upto, clients)
        for client in self.sink.applied(origin).held:
            has = self.sink.applied(origin).clients.get(client, START)
            assert self.sink.use_log(origin, client, log_id, upto, (has.seq + 1, upto.seq))
        self.sink.applied(origin)

    def received(self, origin: str, client: str = "app") -> Content:
        name = f"LRQ_Recv_{client}_{origin}"
        head = heads(self.conn, client).get(name, 0)
        return [(r.seq, r.headers, r.payload) for r in read(self.conn, name, 0, head)] if head else []


@pytest.fixture(params=["memory", "postgres"])
def destination(request: pytest.FixtureRequest) -> Iterator[Destination]:
    if request.param == "memory":
        yield InMemory()
        return
    make_database: Callable[..., str] = request.getfixturevalue("make_database")
    dsn = make_database("queues")
    with closing(open_pool(dsn, 2, "test")) as pool, closing(psycopg.connect(dsn, autocommit=True)) as conn:
        grant = acquire(conn, "leader", 60)
        assert grant is not None
        yield InPostgres(PostgresSink(pool, grant), conn)


def entry(seq: int, client: str = "app") -> Entry:
    return Entry(seq, client, ("hub", "shop"), {"n": str(seq)}, b"%d" % seq)


def stands(destination: Destination, origin: str = "leaf") -> tuple[str, dict[str, Position]]:
    """Log, and positions above the start."""
    applied = destination.sink.applied(origin)
    return applied.log_id, {client: p for client, p in applied.clients.items() if p != START}


def content(*seqs: int) -> Content:
    return [(seq, {"n": str(seq)}, b"%d" % seq) for seq in seqs]


def test_nothing_is_applied_of_an_unknown_origin(destination: Destination) -> None:
    assert stands(destination) == ("", {})


def test_entries_and_position_arrive_together(destination: Destination) -> None:
    destination.begin("leaf", "app")
    destination.sink.append("leaf", LOG, [entry(1), entry(4)], Position(5, 77), ["app"])
    assert stands(destination) == (LOG, {"app": Position(5, 77)})
    assert destination.received("leaf") == content(1, 4)


def test_payloads_and_headers_arrive_as_they_were(destination: Destination) -> None:
    destination.begin("leaf", "app")
    blob, headers = bytes(range(256)), {"ü": '\U0001f600 \\ "', "": ""}
    destination.sink.append("leaf", LOG, [Entry(1, "app", ("*",), headers, blob)], Position(1, 1), ["app"])
    destination.sink.append("leaf", LOG, [Entry(2, "app", ("*",), {}, b"")], Position(2, 1), ["app"])
    assert destination.received("leaf") == [(1, headers, blob), (2, {}, b"")]


def test_a_repeated_call_adds_nothing(destination: Destination) -> None:
    destination.begin("leaf", "app")
    for _ in range(2):
        destination.sink.append("leaf", LOG, [entry(1), entry(2)], Position(2, 7), ["app"])
    destination.sink.append("leaf", LOG, [entry(2), entry(3)], Position(3, 8), ["app"])
    assert destination.received("leaf") == content(1, 2, 3)
    assert stands(destination)[1] == {"app": Position(3, 8)}


def test_a_position_never_goes_back(destination: Destination) -> None:
    destination.begin("leaf", "app")
    destination.sink.append("leaf", LOG, [entry(5)], Position(5, 7), ["app"])
    destination.sink.append("leaf", LOG, [entry(2)], Position(3, 6), ["app"])
    assert stands(destination)[1] == {"app": Position(5, 7)}
    assert destination.received("leaf") == content(5)


def test_a_position_advances_without_entries(destination: Destination) -> None:
    destination.begin("leaf", "app", "policy")
    destination.sink.append("leaf", LOG, [], Position(9, 3), ["app", "policy"])
    assert stands(destination)[1] == {"app": Position(9, 3), "policy": Position(9, 3)}
    assert destination.received("leaf") == []


def test_clients_have_positions_of_their_own(destination: Destination) -> None:
    destination.begin("leaf", "app", "policy")
    destination.sink.append("leaf", LOG, [entry(1)], Position(1, 1), ["app"])
    destination.sink.append("leaf", LOG, [entry(1), entry(2, "policy"), entry(3)], Position(3, 1), ["app", "policy"])
    destination.sink.append("leaf", LOG, [entry(4, "policy")], Position(4, 2), ["policy"])
    assert destination.received("leaf") == content(1, 3)
    assert destination.received("leaf", "policy") == content(2, 4)
    assert stands(destination)[1] == {"app": Position(3, 1), "policy": Position(4, 2)}


def test_origins_have_positions_and_queues_of_their_own(destination: Destination) -> None:
    destination.begin("leaf", "app")
    destination.begin("shop", "app", log_id=OTHER_LOG)
    destination.sink.append("leaf", LOG, [entry(1)], Position(1, 1), ["app"])
    destination.sink.append("shop", OTHER_LOG, [entry(1), entry(2)], Position(2, 2), ["app"])
    assert destination.received("leaf") == content(1)
    assert destination.received("shop") == content(1, 2)
    assert stands(destination) == (LOG, {"app": Position(1, 1)})
    assert stands(destination, "shop") == (OTHER_LOG, {"app": Position(2, 2)})


def test_h11_another_log_is_refused_until_reset(destination: Destination) -> None:
    destination.begin("leaf", "app")
    destination.sink.append("leaf", LOG, [entry(1), entry(2)], Position(2, 1), ["app"])
    with pytest.raises(LocalProtocolError):
        destination.sink.append("leaf", OTHER_LOG, [entry(1)], Position(1, 5), ["app"])
    assert stands(destination) == (LOG, {"app": Position(2, 1)})
    assert destination.received("leaf") == content(1, 2)

    destination.sink.reset("leaf", OTHER_LOG)
    assert stands(destination) == (OTHER_LOG, {})
    destination.begin("leaf", "app", log_id=OTHER_LOG)
    destination.sink.append("leaf", OTHER_LOG, [entry(1)], Position(1, 5), ["app"])
    assert stands(destination) == (OTHER_LOG, {"app": Position(1, 5)})
    assert destination.received("leaf") == content(1, 2, 1)


def test_h11_reset_within_the_same_log_begins_at_its_start(destination: Destination) -> None:
    destination.begin("leaf", "app")
    destination.sink.append("leaf", LOG, [entry(1)], Position(1, 1), ["app"])
    for _ in range(2):
        destination.sink.reset("leaf", LOG)
    assert stands(destination) == (LOG, {})
    destination.begin("leaf", "app")
    destination.sink.append("leaf", LOG, [entry(1)], Position(1, 2), ["app"])
    assert destination.received("leaf") == content(1, 1)


def test_h20_a_loss_is_on_record_in_the_queue_of_each_client_that_lacks_something(destination: Destination) -> None:
    destination.begin("leaf", "app", "policy")
    destination.sink.append("leaf", LOG, [entry(1), entry(2, "policy")], Position(2, 1), ["app", "policy"])
    destination.sink.append("leaf", LOG, [entry(9, "policy")], Position(9, 2), ["policy"])
    for _ in range(2):
        destination.lost("leaf", LOG, Position(8, 0), "app", "policy", "unheard-of")
    assert destination.received("leaf") == [*content(1), (8, {LOST: "3-8"}, b"")]
    assert destination.received("leaf", "unheard-of") == [(8, {LOST: "1-8"}, b"")]
    assert destination.received("leaf", "policy") == content(2, 9), "it lacks nothing"
    behind = Position(8, 0)
    assert stands(destination)[1] == {"app": behind, "policy": Position(9, 2), "unheard-of": behind}
    destination.sink.append("leaf", LOG, [entry(10)], Position(10, 3), ["app"])
    assert destination.received("leaf")[-1:] == content(10)


def test_h20_a_loss_in_another_log_is_refused(destination: Destination) -> None:
    destination.begin("leaf", "app")
    destination.sink.append("leaf", LOG, [entry(1)], Position(1, 1), ["app"])
    with pytest.raises(LocalProtocolError):
        destination.sink.lost("leaf", OTHER_LOG, Position(8, 0), ["app"])
    assert destination.received("leaf") == content(1)
