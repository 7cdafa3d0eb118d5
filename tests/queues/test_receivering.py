"""The ring of slots of the receive table: left when large or old, emptied when everybody passed, never too early."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from receiving import LOG, Receiver, arrive, entry, receiving_side

from trunkline.core.errors import Fenced
from trunkline.core.ids import Position
from trunkline.queues.consumers import advance, move_tails
from trunkline.queues.reader import read_queue
from trunkline.queues.receivering import SLOTS, ReceiveRing, RingStep

EAGER = ReceiveRing(bytes=1)
PATIENT = ReceiveRing(bytes=1 << 30)
NOTHING = RingStep(None, ())


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    return make_databases("queues")


@pytest.fixture
def site(database: str) -> Iterator[Receiver]:
    with receiving_side(database) as receiver:
        yield receiver


def step(site: Receiver, ring: ReceiveRing = EAGER) -> RingStep:
    with psycopg.connect(site.dsn) as conn:
        return ring.step(conn, site.grant)


def passed(site: Receiver, position: int) -> None:
    with psycopg.connect(site.dsn) as conn:
        advance(conn, "app", "reader", site.queue(), position)
    site.move_tails()


def slots(site: Receiver) -> list[tuple[int, int]]:
    """(slot, rows in it) of those that have any."""
    return site.ask("SELECT slot, count(*) FROM queues.receive GROUP BY slot ORDER BY slot")


def test_a_slot_is_left_when_it_is_large_and_emptied_when_everybody_passed(site: Receiver) -> None:
    sink = site.sink("app")
    site.attach("app", "reader")
    arrive(sink, 1, 5)
    assert step(site, PATIENT) == NOTHING
    assert step(site) == RingStep(0, ())
    arrive(sink, 6, 7)
    assert slots(site) == [(0, 5), (1, 2)]
    passed(site, 4)
    assert step(site, PATIENT) == NOTHING
    passed(site, 5)
    assert step(site, PATIENT) == RingStep(None, (0,))
    assert slots(site) == [(1, 2)]
    assert site.ask("SELECT pg_relation_size('queues.receive_0')") == [0]


def test_an_old_slot_is_left_too_but_not_an_empty_one(site: Receiver) -> None:
    old = ReceiveRing(bytes=1 << 30, seconds=60)
    sink = site.sink("app")
    site.do("UPDATE queues.receiver SET slot_since = now() - interval '61 s'")
    assert step(site, old) == NOTHING
    arrive(sink, 1, 1)
    assert step(site, old).left == 0
    arrive(sink, 2, 2)
    assert step(site, old) == NOTHING


def test_r1_a_queue_that_nobody_reads_keeps_the_slot_for_all(site: Receiver) -> None:
    sink = site.sink("app", "policy")
    site.attach("app", "reader")
    sink.append("leaf", LOG, [entry(1), entry(2, "policy")], Position(2, 1), ["app", "policy"])
    step(site)
    passed(site, 1)
    assert step(site, PATIENT) == NOTHING
    assert slots(site) == [(0, 2)]


def test_r2_what_was_written_late_into_a_slot_that_was_left_is_not_lost(site: Receiver) -> None:
    """Its writer had chosen the slot before, and commits after everything in it was seen to be passed."""
    sink = site.sink("app")
    site.attach("app", "reader")
    arrive(sink, 1, 3)
    step(site)
    passed(site, 3)
    late = site.connect()
    late.execute("UPDATE queues.queue SET head = 4")
    late.execute(
        "INSERT INTO queues.receive (slot, queue, position, type, seq, index, total, payload) "
        "SELECT 0, id, 4, 1, 4, 0, 4, '4' FROM queues.queue"
    )
    assert step(site, PATIENT) == NOTHING, "its lock is not to be had"
    late.commit()
    assert step(site, PATIENT) == NOTHING
    assert site.payloads() == [b"1", b"2", b"3", b"4"]
    passed(site, 4)
    assert step(site, PATIENT).emptied == (0,)


def test_r3_a_reader_at_work_is_not_waited_for(site: Receiver) -> None:
    sink = site.sink("app")
    site.attach("app", "reader")
    arrive(sink, 1, 3)
    step(site)
    passed(site, 3)
    reader = site.connect()
    reader.execute("SELECT FROM queues.receive")
    assert step(site, PATIENT) == NOTHING
    reader.rollback()
    assert step(site, PATIENT).emptied == (0,)


def test_when_all_slots_are_waited_for_the_last_one_grows_and_the_ring_goes_on_later(site: Receiver) -> None:
    sink = site.sink("app")
    site.attach("app", "reader")
    for seq in range(1, SLOTS + 4):
        arrive(sink, seq, seq)
        with psycopg.connect(site.dsn) as conn:
            ReceiveRing(bytes=0).step(conn, site.grant)
    assert slots(site) == [(slot, 1) for slot in range(SLOTS - 1)] + [(SLOTS - 1, 4)]
    passed(site, 3)
    assert step(site, PATIENT).emptied == (0, 1, 2)
    assert step(site, ReceiveRing(bytes=0)) == RingStep(SLOTS - 1, ())
    arrive(sink, 50, 50)
    assert slots(site)[0] == (0, 1)
    positions = site.ask("SELECT position FROM queues.receive ORDER BY position")
    assert positions == list(range(4, SLOTS + 5))


def test_slots_grow_with_the_number_that_are_waited_for(site: Receiver) -> None:
    sink = site.sink("app")
    ring = ReceiveRing(bytes=20_000)
    left = []
    for seq in range(1, 41):
        sink.append("leaf", LOG, [entry(seq, payload=os.urandom(7000))], Position(seq, 1), ["app"])
        if step(site, ring).left is not None:
            left.append(seq)
    stretches = [last - first for first, last in zip([0, *left], left, strict=False)]
    assert stretches == sorted(stretches)
    assert stretches[-1] > stretches[0]


def test_h01_an_old_holder_leaves_and_empties_nothing(site: Receiver) -> None:
    sink = site.sink("app")
    site.attach("app", "reader")
    arrive(sink, 1, 3)
    step(site)
    passed(site, 3)
    site.take_over()
    with pytest.raises(Fenced):
        step(site)
    assert slots(site) == [(0, 3)]


def test_readers_and_writers_at_work_lose_nothing_while_slots_go(site: Receiver) -> None:
    sink, last = site.sink("app"), 120
    site.attach("app", "reader")
    seen: list[bytes] = []
    failed: list[Exception] = []

    def consume(conn: psycopg.Connection[Any], queue: int) -> None:
        try:
            while len(seen) < last:
                for message in read_queue(conn, queue, "leaf", len(seen), last):
                    seen.append(message.payload)
                advance(conn, "app", "reader", queue, len(seen))
                conn.commit()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=consume, args=(site.connect(), site.queue()))
    thread.start()
    emptied, leader = [], site.connect()
    for seq in range(1, last + 1, 4):
        arrive(sink, seq, seq + 3)
        move_tails(leader)
        emptied += EAGER.step(leader, site.grant).emptied
    thread.join(60)
    assert failed == []
    assert seen == [b"%d" % seq for seq in range(1, last + 1)]
    site.move_tails()
    emptied += EAGER.step(leader, site.grant).emptied
    assert len(emptied) > 10
