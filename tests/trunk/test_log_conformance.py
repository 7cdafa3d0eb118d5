"""What every `Log` must do: the same bodies over the log in memory and the one in Postgres."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

import psycopg
import pytest

from trunkline.core.ids import START, Position
from trunkline.db.lease import acquire, connect_fenced
from trunkline.db.pool import open_pool
from trunkline.queues.client import QueueClient
from trunkline.queues.log import PostgresLog
from trunkline.queues.registry import remember_site
from trunkline.queues.slots import forget
from trunkline.queues.stamper import Stamper
from trunkline.trunk.log import NOTHING_APPLIED, Applied, Entry, Log
from trunkline.trunk.memory import MemoryLog, Message
from trunkline.trunk.wants import open_subscription

SITES = ("hub", "shop", "plant")
LOG_ID = "5f0c1f0e-0000-4000-8000-000000000001"


class Origin(Protocol):
    """A log with its writing side."""

    @property
    def log(self) -> Log: ...

    def stamp(self, mark: int, *transactions: Sequence[Message]) -> Position:
        """Each sequence is a transaction; all of them are one round with this mark."""

    def trim(self, seq: int) -> None:
        """Forgets whole rounds up to `seq`."""


@dataclass
class InMemory:
    log: MemoryLog = field(default_factory=lambda: MemoryLog(LOG_ID))

    def stamp(self, mark: int, *transactions: Sequence[Message]) -> Position:
        for messages in transactions:
            self.log.commit(messages, mark)
        return self.log.head()

    def trim(self, seq: int) -> None:
        self.log.trim(seq)


@dataclass
class InPostgres:
    log: PostgresLog
    app: psycopg.Connection[Any]
    stamper: Stamper
    mark: list[int]

    def stamp(self, mark: int, *transactions: Sequence[Message]) -> Position:
        for messages in transactions:
            for client, destinations, headers, payload in messages:
                QueueClient(client).transmit(self.app, payload, destinations, headers)
            self.app.commit()
        self.mark[:] = [mark]
        return self.stamper.round().head

    def trim(self, seq: int) -> None:
        forget(self.app, seq)
        self.app.commit()


@pytest.fixture(params=["memory", "postgres"])
def origin(request: pytest.FixtureRequest) -> Iterator[Origin]:
    if request.param == "memory":
        yield InMemory()
        return
    make_database: Callable[..., str] = request.getfixturevalue("make_database")
    dsn = make_database("queues")
    mark: list[int] = []
    with (
        closing(open_pool(dsn, 2, "test")) as pool,
        closing(psycopg.connect(dsn)) as app,
        closing(connect_fenced(dsn)) as fenced,
    ):
        for site in SITES:
            remember_site(app, site)
        app.commit()
        grant = acquire(app, "leader", 60)
        assert grant is not None
        yield InPostgres(PostgresLog(pool), app, Stamper(fenced, grant, lambda: mark[0]), mark)


def message(payload: bytes, *to: str, client: str = "app", headers: dict[str, str] | None = None) -> Message:
    return client, to or ("hub",), headers or {}, payload


def payloads(entries: Sequence[Entry]) -> list[bytes]:
    return [e.payload for e in entries]


def read_all(log: Log, limit: int, sites: set[str]) -> list[Entry]:
    """As a subscriber would: from chunk to chunk, until there is no more."""
    out: list[Entry] = []
    at = 0
    while (chunk := log.read(at, limit, sites)).upto.seq > at:
        assert all(at < e.seq <= chunk.upto.seq for e in chunk.entries)
        out += chunk.entries
        at = chunk.upto.seq
    return out


def test_an_empty_log_is_at_the_start(origin: Origin) -> None:
    assert origin.log.head() == START
    assert origin.log.clients() == {}
    chunk = origin.log.read(0, 10, {"hub"})
    assert (chunk.entries, chunk.upto) == ((), START)


def test_the_log_has_an_id_that_stays(origin: Origin) -> None:
    before = origin.log.log_id
    origin.stamp(1, [message(b"x")])
    assert before
    assert origin.log.log_id == before


def test_an_entry_comes_back_as_it_was_sent(origin: Origin) -> None:
    blob = bytes(range(256))
    origin.stamp(7, [message(blob, "hub", "shop", headers={"ce_type": "a", "ü": '\U0001f600 \\ "'})])
    chunk = origin.log.read(0, 10, {"hub"})
    assert chunk.entries == (Entry(1, "app", ("hub", "shop"), {"ce_type": "a", "ü": '\U0001f600 \\ "'}, blob),)
    assert chunk.upto == Position(1, 7)


def test_seqs_are_dense_over_all_clients(origin: Origin) -> None:
    head = origin.stamp(3, [message(b"1"), message(b"2", client="policy")], [message(b"3")])
    entries = origin.log.read(0, 10, {"hub"}).entries
    assert [(e.seq, e.client) for e in entries] == [(1, "app"), (2, "policy"), (3, "app")]
    assert origin.log.head() == head == Position(3, 3)
    assert origin.log.clients() == {"app": 1, "policy": 2}


def test_reading_goes_on_after_a_position(origin: Origin) -> None:
    origin.stamp(1, [message(b"1")], [message(b"2")])
    origin.stamp(2, [message(b"3")])
    chunk = origin.log.read(1, 10, {"hub"})
    assert (payloads(chunk.entries), chunk.upto) == ([b"2", b"3"], Position(3, 2))
    assert origin.log.read(3, 10, {"hub"}).entries == ()
    assert origin.log.read(3, 10, {"hub"}).upto == Position(3, 2)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_chunks_are_whole_transactions(origin: Origin, limit: int) -> None:
    sizes = [1, 3, 2, 5, 1, 1, 4]
    numbers = iter(range(100))
    transactions = [[message(b"%d" % next(numbers)) for _ in range(size)] for size in sizes]
    origin.stamp(1, *transactions[:3])
    origin.stamp(2, *transactions[3:])
    ends = {sum(sizes[: n + 1]) for n in range(len(sizes))}
    at, seen = 0, []
    while at < sum(sizes):
        chunk = origin.log.read(at, limit, {"hub"})
        assert chunk.upto.seq in ends
        assert len(chunk.entries) <= limit + max(sizes)
        seen += payloads(chunk.entries)
        at = chunk.upto.seq
    assert seen == [b"%d" % n for n in range(sum(sizes))]


def test_only_what_meets_the_destinations_is_read(origin: Origin) -> None:
    origin.stamp(1, [message(b"1", "hub"), message(b"2", "shop"), message(b"3", "*"), message(b"4", "shop", "plant")])
    assert payloads(read_all(origin.log, 10, {"hub"})) == [b"1", b"3"]
    assert payloads(read_all(origin.log, 10, {"plant", "hub"})) == [b"1", b"3", b"4"]
    assert payloads(read_all(origin.log, 10, {"elsewhere"})) == [b"3"]
    assert [e.seq for e in read_all(origin.log, 10, {"plant"})] == [3, 4]


def test_a_stretch_without_a_match_advances(origin: Origin) -> None:
    for mark in range(1, 6):
        origin.stamp(mark, [message(b"x", "shop"), message(b"y", "shop")])
    origin.stamp(6, [message(b"mine")])
    assert payloads(read_all(origin.log, 2, {"hub"})) == [b"mine"]
    at = 0
    while at < 10:
        at, before = origin.log.read(at, 2, {"plant"}).upto.seq, at
        assert at > before


def test_h11_every_entry_has_its_rounds_mark(origin: Origin) -> None:
    origin.stamp(11, [message(b"1")], [message(b"2"), message(b"3")])
    origin.stamp(12, [message(b"4")])
    assert [origin.log.mark_at(seq) for seq in range(6)] == [0, 11, 11, 11, 12, None]
    assert origin.log.mark_at(-1) is None
    assert origin.log.read(0, 1, {"hub"}).upto == Position(1, 11)


def test_asked_beyond_its_head_it_has_nothing(origin: Origin) -> None:
    origin.stamp(1, [message(b"1")])
    chunk = origin.log.read(9, 10, {"hub"})
    assert (chunk.entries, chunk.upto.seq) == ((), 9)


def test_h20_the_log_says_what_was_trimmed_and_serves_the_rest(origin: Origin) -> None:
    assert origin.log.lowest() == START
    for mark in (1, 2, 3):
        origin.stamp(mark, [message(b"%d" % mark)])
    assert origin.log.lowest() == START
    origin.trim(2)
    assert origin.log.lowest().seq == 2
    assert origin.log.lowest().mark in (0, 2)
    assert [origin.log.mark_at(seq) for seq in (0, 1, 3)] == [0, None, 3]
    assert payloads(origin.log.read(2, 10, {"hub"}).entries) == [b"3"]
    assert origin.log.clients() == {"app": 1}, "who ever wrote is not forgotten"
    origin.trim(3)
    assert origin.log.lowest().seq == origin.log.head().seq == 3


def test_h20_wants_below_what_was_trimmed_are_gaps_and_not_another_history(origin: Origin) -> None:
    for mark in (1, 2, 3, 4):
        origin.stamp(mark, [message(b"x", "*", client="policy" if mark == 4 else "app")])
    origin.trim(2)
    log_id = origin.log.log_id
    opened = open_subscription(
        origin.log,
        {
            "behind": Applied(log_id, {"app": Position(1, 1)}),
            "new": NOTHING_APPLIED,
            "there": Applied(log_id, {"app": Position(2, 2)}),
            "ahead": Applied(log_id, {"app": Position(3, 3)}),
            "other": Applied(log_id, {"app": Position(3, 77)}),
        },
    )
    assert opened.gaps == {"behind": ("app",), "new": ("app",)}
    assert opened.reset == ("other",)
    assert opened.lowest.seq == 2


def test_h17_what_was_trimmed_is_a_gap_only_for_those_it_was_for(origin: Origin) -> None:
    origin.stamp(1, [message(b"1", "hub")])
    origin.stamp(2, [message(b"2", "plant")], [message(b"3", "*", client="policy")])
    origin.stamp(3, [message(b"4", "hub")])
    origin.trim(3)
    has = Applied(origin.log.log_id, {"app": Position(1, 1), "policy": Position(1, 1)})
    assert dict(origin.log.trimmed_for("hub")) == {"app": 1, "policy": 3}
    opened = open_subscription(origin.log, {"hub": has, "shop": has, "plant": has})
    assert opened.gaps == {"hub": ("policy",), "shop": ("policy",), "plant": ("app", "policy")}
    held = Applied(has.log_id, has.clients, held=("policy",))
    quiet = open_subscription(origin.log, {"hub": held})
    assert (quiet.gaps, quiet.start) == ({}, origin.log.lowest())
