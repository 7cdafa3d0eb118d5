"""Named consumers: where they begin, how they go on, and what is kept for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest
from receiving import LOG, REQUEST, Receiver, arrive, receiving_side, stands

from trunkline.core.errors import Invalid
from trunkline.core.ids import Position
from trunkline.queues.consumers import (
    Detached,
    Overtaken,
    advance,
    attach,
    detach,
    detach_idle,
    move_tails,
    positions,
    reattach,
    seen,
)
from waiting import eventually


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    return make_databases("queues")


@pytest.fixture
def site(database: str) -> Iterator[Receiver]:
    with receiving_side(database) as receiver:
        yield receiver


def tails(site: Receiver) -> list[tuple[int, int]]:
    """(tail, bytes passed) of the queues in their order."""
    return site.ask("SELECT tail, passed_bytes FROM queues.queue ORDER BY id")


def go_on(site: Receiver, name: str, position: int, after: int) -> None:
    with psycopg.connect(site.dsn) as conn:
        advance(conn, "app", name, site.queue(), position, after)


def test_c1_an_entry_is_kept_until_every_consumer_has_passed_it(site: Receiver) -> None:
    sink = site.sink("app")
    site.attach("app", "bridge", "ledger")
    arrive(sink, 8, 12)
    go_on(site, "bridge", 4, 0)
    assert site.move_tails() == 0
    assert tails(site) == [(0, 0)], "ledger has read nothing"
    go_on(site, "ledger", 3, 0)
    assert site.move_tails() == 1
    assert tails(site) == [(3, 4)]
    with psycopg.connect(site.dsn) as conn:
        detach(conn, "app", "ledger")
    site.move_tails()
    assert tails(site) == [(4, 6)]


def test_c1_without_any_consumer_nothing_passes(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 5)
    assert site.move_tails() == 0
    assert tails(site) == [(0, 0)]


def test_c3_a_consumer_that_comes_later_begins_at_the_tail_and_at_the_start_of_new_queues(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 5)
    site.attach("app", "first")
    go_on(site, "first", 3, 0)
    site.move_tails()
    site.attach("app", "second")
    arrive(site.sink("app", origin="shop"), 1, 2, origin="shop")
    with psycopg.connect(site.dsn) as conn:
        places = positions(conn, "app", "second")
    assert [(p.name, p.remote, p.position, p.head) for p in places] == [
        ("LRQ_Recv_app_leaf", "leaf", 3, 5),
        ("LRQ_Recv_app_shop", "shop", 0, 2),
    ]
    site.attach("app", "second")
    with psycopg.connect(site.dsn) as conn:
        assert positions(conn, "app", "second") == places, "one that is there goes on"


def test_c3_no_tail_passes_a_consumer_that_is_just_arriving(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 5)
    site.attach("app", "first")
    go_on(site, "first", 5, 0)
    arriving = site.connect()
    attach(arriving, "app", "second")
    mover = threading.Thread(target=site.move_tails)
    mover.start()
    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    eventually(lambda: site.ask(waits) == [1])
    arriving.commit()
    mover.join()
    assert tails(site) == [(0, 0)]


def test_c2_a_position_moves_only_from_where_its_reader_read(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 5)
    site.attach("app", "ledger")
    go_on(site, "ledger", 3, 0)
    with pytest.raises(Overtaken, match="ledger"):
        go_on(site, "ledger", 2, 0)
    with pytest.raises(Overtaken):
        go_on(site, "ledger", 5, 4)
    with psycopg.connect(site.dsn) as conn:
        advance(conn, "app", "ledger", site.queue(), 4)
        advance(conn, "app", "ledger", site.queue(), 4)
        with pytest.raises(Overtaken):
            advance(conn, "app", "ledger", site.queue(), 3)
    assert site.ask("SELECT position FROM queues.consumed") == [4]


def test_c2_of_two_that_move_at_once_one_is_overtaken(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 5)
    site.attach("app", "ledger")
    one, result = site.connect(), []
    advance(one, "app", "ledger", site.queue(), 3, 0)

    def other() -> None:
        try:
            go_on(site, "ledger", 5, 0)
        except Overtaken as error:
            result.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    eventually(lambda: site.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == [1])
    one.commit()
    thread.join()
    assert len(result) == 1
    assert site.ask("SELECT position FROM queues.consumed") == [3]


def test_a_position_moves_in_the_callers_transaction(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 5)
    site.attach("app", "ledger")
    conn = site.connect()
    advance(conn, "app", "ledger", site.queue(), 5, 0)
    conn.rollback()
    assert site.ask("SELECT position FROM queues.consumed") == [0]


def test_h23_an_idle_consumer_is_detached_and_told_so_and_a_resync_is_wanted_when_it_returns(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 5)
    site.attach("app", "busy", "idle")
    go_on(site, "busy", 4, 0)
    site.do("UPDATE queues.consumer SET seen_at = now() - interval '2 hours' WHERE name = 'idle'")
    with psycopg.connect(site.dsn) as conn:
        assert detach_idle(conn, 3600) == [("app", "idle")]
        assert detach_idle(conn, 3600) == []
        assert move_tails(conn) == 1
    assert tails(site) == [(4, 4)], "nothing waits for it"
    for act in (seen, attach):
        with psycopg.connect(site.dsn) as conn, pytest.raises(Detached, match="reattach"):
            act(conn, "app", "idle")
    with pytest.raises(Detached):
        go_on(site, "idle", 5, 4)
    assert site.state() == ("log", "", 5)

    with psycopg.connect(site.dsn) as conn:
        reattach(conn, "app", "idle")
        assert [p.position for p in positions(conn, "app", "idle")] == [4]
        seen(conn, "app", "idle")
    assert site.state() == ("new", "resync", 5), "the session is negotiated, so that a snapshot makes up for what it missed"


@pytest.mark.parametrize(("stored", "begins"), [(3, 3), (4, 4)])
def test_c3_a_consumer_never_begins_in_the_midst_of_a_snapshot(site: Receiver, stored: int, begins: int) -> None:
    """START and two records, and perhaps LAST; the other consumer has read the half of it."""
    sink = site.sink("app")
    assert sink.begin_snapshot("leaf", "app", LOG, REQUEST, Position(9, 9), False)
    assert sink.store_chunk("leaf", "app", REQUEST, 0, [({}, b"one"), ({}, b"two")])
    if stored == 4:
        assert sink.finish_snapshot("leaf", "app", REQUEST)
    site.attach("app", "busy")
    go_on(site, "busy", 2, 0)
    site.move_tails()
    site.attach("app", "late")
    with psycopg.connect(site.dsn) as conn:
        assert [p.position for p in positions(conn, "app", "late")] == [begins]
    assert site.state()[:2] == (("new", "resync") if stored == 4 else ("new", "resume"))
    assert not sink.store_chunk("leaf", "app", REQUEST, 1, [({}, b"three")]), "nothing more of the half one"
    assert sink.begin_snapshot("leaf", "app", LOG, REQUEST, Position(9, 9), False) is (stored == 3), "from its beginning"


def test_h23_the_sink_notices_that_a_resync_is_wanted(site: Receiver) -> None:
    sink = site.sink("app")
    arrive(sink, 1, 5)
    site.attach("app", "idle")
    site.do("UPDATE queues.consumer SET detached_at = now()")
    assert sink.room() == frozenset()
    with psycopg.connect(site.dsn) as conn:
        reattach(conn, "app", "idle")
    assert sink.room() == {"leaf"}
    assert stands(sink)[2] == {"app"}
    assert sink.room() == frozenset()


def test_h23_a_consumer_that_is_seen_is_not_idle(site: Receiver) -> None:
    site.attach("app", "ledger")
    site.do("UPDATE queues.consumer SET seen_at = now() - interval '2 hours'")
    with psycopg.connect(site.dsn) as conn:
        seen(conn, "app", "ledger")
        assert detach_idle(conn, 3600) == []
        with pytest.raises(Invalid, match="not detached"):
            reattach(conn, "app", "ledger")


def test_h23_positions_are_kept_apart_per_client(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 2)
    arrive(site.sink("policy"), 1, 1, "policy")
    site.attach("app", "same")
    site.attach("policy", "same")
    go_on(site, "same", 2, 0)
    site.move_tails()
    assert tails(site) == [(2, 2), (0, 0)]


def test_names_are_checked(site: Receiver) -> None:
    with psycopg.connect(site.dsn) as conn, pytest.raises(Invalid, match="Ledger"):
        attach(conn, "app", "Ledger")
