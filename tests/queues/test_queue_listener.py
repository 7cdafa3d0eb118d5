"""A listener: batches in order and of one kind, refusals, dead letters, and what happens around it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from listening import Application, waiting
from receiving import LOG, OTHER_REQUEST, QUICK, REQUEST, Receiver, arrive, entry, receiving_side, snapshot

from trunkline.core.errors import Invalid
from trunkline.core.ids import Position
from trunkline.queues.callbacks import Batch, Refused
from trunkline.queues.consumers import Detached, Overtaken
from trunkline.queues.kinds import Kind
from trunkline.queues.listener import Callbacks, Pace, QueueListener
from waiting import eventually


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    return make_databases("queues")


@pytest.fixture
def site(database: str) -> Iterator[Receiver]:
    with receiving_side(database) as receiver:
        yield receiver


# -- batches


def test_s24_a_late_subscriber_gets_snapshot_last_and_log_apart_then_live_data_and_the_queue_is_empty(site: Receiver) -> None:
    sink = site.sink()
    snapshot(sink, 5)
    arrive(sink, 11, 20)
    app = Application()
    with app.listener(site):
        eventually(lambda: waiting(site) == [0])
        arrive(sink, 21, 21)
        eventually(lambda: len(app.offered) == 4 and waiting(site) == [0])
    assert app.offered == [
        (Kind.SNAPSHOT, [b"s%d" % n for n in range(5)]),
        (Kind.LAST, [b""]),
        (Kind.LOG_ENTRY, [b"%d" % seq for seq in range(11, 21)]),
        (Kind.LOG_ENTRY, [b"21"]),
    ]
    assert app.told == [("site", "leaf"), ("start", "leaf", REQUEST, False), ("complete", "leaf", REQUEST)]
    assert app.errors == []
    site.move_tails()
    assert site.ask("SELECT head - tail FROM queues.queue") == [0]


def test_message_ids_are_of_source_seq_and_index_and_order_inside_a_transaction_is_kept(site: Receiver) -> None:
    sink = site.sink("app")
    same = [entry(seq, payload=payload) for seq, payload in enumerate([b"z", b"a", b"m", b"a"], 1)]
    sink.append("leaf", LOG, same, Position(4, 1), ["app"])
    app = Application()
    app.listen(site, lambda: waiting(site) == [0])
    assert app.offered == [(Kind.LOG_ENTRY, [b"z", b"a", b"m", b"a"])]
    assert app.ids == ["leaf/1/0", "leaf/2/0", "leaf/3/0", "leaf/4/0"]


def test_an_unfinished_snapshot_is_followed_by_another_start(site: Receiver) -> None:
    sink = site.sink()
    assert sink.begin_snapshot("leaf", "app", LOG, REQUEST, Position(5, 1), False)
    assert sink.store_chunk("leaf", "app", REQUEST, 0, [({}, b"old")])
    assert sink.begin_snapshot("leaf", "app", LOG, OTHER_REQUEST, Position(9, 1), True)
    assert sink.store_chunk("leaf", "app", OTHER_REQUEST, 0, [({}, b"new")])
    assert sink.finish_snapshot("leaf", "app", OTHER_REQUEST)
    app = Application()
    app.listen(site, lambda: waiting(site) == [0])
    assert app.offered == [(Kind.SNAPSHOT, [b"old"]), (Kind.SNAPSHOT, [b"new"]), (Kind.LAST, [b""])]
    assert app.told[1:] == [
        ("start", "leaf", REQUEST, False), ("start", "leaf", OTHER_REQUEST, True), ("complete", "leaf", OTHER_REQUEST),
    ]  # fmt: skip


def test_h20_a_loss_is_told(site: Receiver) -> None:
    sink = site.sink("app")
    arrive(sink, 1, 2)
    sink.lost("leaf", LOG, Position(8, 1), ["app"])
    sink.use_log("leaf", "app", LOG, Position(8, 1), (3, 8))
    app = Application()
    app.listen(site, lambda: waiting(site) == [0])
    assert app.told == [("site", "leaf"), ("lost", "leaf", 3, 8)]
    assert app.taken == [b"1", b"2"]


def test_a_batch_has_its_bounds_in_entries_and_bytes(site: Receiver) -> None:
    sink = site.sink("app")
    sink.append("leaf", LOG, [entry(seq, payload=bytes(400)) for seq in range(1, 8)], Position(7, 1), ["app"])
    by_bytes, by_entries = Application(), Application()
    by_bytes.listen(site, lambda: waiting(site) == [0], pace=Pace(batch_bytes=1000))
    assert [len(payloads) for _, payloads in by_bytes.offered] == [2, 2, 2, 1]
    arrive(sink, 8, 14)
    by_entries.listen(site, lambda: waiting(site) == [0], pace=Pace(batch=3))
    assert [len(payloads) for _, payloads in by_entries.offered] == [3, 3, 1]


# -- discovery


def test_s30_a_new_site_is_told_once_also_where_names_have_underscores(site: Receiver) -> None:
    app = Application()
    with app.listener(site, client="pol_x"):
        eventually(lambda: site.ask("SELECT count(*) FROM queues.consumer") == [1])
        assert app.told == []
        sink = site.sink("pol_x", "pol", origin="site_1")
        eventually(lambda: app.told)
        sink.append("site_1", LOG, [entry(1, "pol_x")], Position(1, 1), ["pol_x", "pol"])
        eventually(lambda: app.taken == [b"1"])
        snapshot_path = site.sink()
        assert snapshot_path.begin_snapshot("site_2", "pol_x", LOG, REQUEST, Position(3, 1), False)
        eventually(lambda: ("start", "site_2", REQUEST, False) in app.told)
    assert app.told == [("site", "site_1"), ("site", "site_2"), ("start", "site_2", REQUEST, False)]


def test_s30_one_look_is_enough_to_find_a_new_site(site: Receiver) -> None:
    app, conn = Application(), site.connect()
    listener = app.listener(site, client="pol_x")
    site.attach("pol_x", "ledger")
    listener._round(conn)
    assert app.told == []
    sink = site.sink("pol_x", origin="site_1")
    listener._round(conn)
    assert app.told == [("site", "site_1")]
    listener._round(conn)
    sink.append("site_1", LOG, [entry(1, "pol_x")], Position(1, 1), ["pol_x"])
    listener._round(conn)
    assert (app.told, app.taken) == ([("site", "site_1")], [b"1"])


def test_s30_a_callback_that_fails_is_called_again(site: Receiver) -> None:
    site.sink("app")
    calls: list[str] = []

    def fail_once(source: str) -> None:
        calls.append(source)
        if len(calls) == 1:
            raise ValueError("not yet")

    errors: list[Exception] = []
    callbacks = Callbacks(on_new_site=fail_once, on_error=errors.append)
    with QueueListener(site.dsn, "app", "ledger", lambda batch: True, callbacks=callbacks, pace=QUICK):
        eventually(lambda: len(calls) == 2)
        arrive(site.sink("app"), 1, 1)
        eventually(lambda: waiting(site) == [0])
    assert calls == ["leaf", "leaf"]
    assert [str(e) for e in errors] == ["not yet"]


# -- refusals


def test_l2_false_is_tried_again_in_order_and_nothing_overtakes_it_while_other_queues_go_on(site: Receiver) -> None:
    sink, shop = site.sink("app"), site.sink("app", origin="shop")
    arrive(sink, 1, 3)
    app = Application(refuses={b"2"})
    with app.listener(site):
        eventually(lambda: len(app.offered) > 3)
        arrive(sink, 4, 5)
        shop.append("shop", LOG, [entry(1, payload=b"other")], Position(1, 1), ["app"])
        eventually(lambda: app.taken == [b"other"])
        offered = len(app.offered)
        eventually(lambda: len(app.offered) > offered + 2)
        assert app.taken == [b"other"]
        app.refuses.clear()
        eventually(lambda: waiting(site) == [0, 0])
    assert app.taken == [b"other", b"1", b"2", b"3", b"4", b"5"]
    refused = [payloads for _, payloads in app.offered if payloads != [b"other"]][:-1]
    assert all(payloads[:3] == [b"1", b"2", b"3"] for payloads in refused)
    assert all(isinstance(error, Refused) for error in app.errors)


def test_an_exception_is_a_refusal_and_is_told(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 2)
    calls, errors = [], list[Exception]()

    def process(batch: Batch) -> bool:
        calls.append([m.payload for m in batch])
        if len(calls) < 3:
            raise ValueError("disk full")
        return True

    with QueueListener(site.dsn, "app", "ledger", process, callbacks=Callbacks(on_error=errors.append), pace=QUICK):
        eventually(lambda: waiting(site) == [0])
    assert calls == [[b"1", b"2"]] * 3
    assert [str(error) for error in errors] == ["disk full", "disk full"]


def test_a_callback_that_raises_holds_up_what_follows(site: Receiver) -> None:
    snapshot(site.sink(), 1)
    order: list[str] = []

    def start(source: str, request: str, forced: bool) -> None:
        order.append("start")
        if order.count("start") < 3:
            raise ValueError("not ready")

    def process(batch: Batch) -> bool:
        order.append(batch[0].kind.name)
        return True

    callbacks = Callbacks(on_snapshot_start=start, on_error=lambda error: None)
    with QueueListener(site.dsn, "app", "ledger", process, callbacks=callbacks, pace=QUICK):
        eventually(lambda: waiting(site) == [0])
    assert order == ["start", "start", "start", "SNAPSHOT", "LAST"]


# -- exactly once


def into_ledger(conn: psycopg.Connection[Any], batch: Batch) -> bool:
    conn.cursor().executemany("INSERT INTO ledger VALUES (%s)", [(m.payload.decode(),) for m in batch])
    return True


def test_l1_process_in_writes_and_moves_in_one_transaction(site: Receiver) -> None:
    site.do("CREATE TABLE IF NOT EXISTS ledger (value text PRIMARY KEY); TRUNCATE ledger")
    arrive(site.sink("app"), 1, 6)
    answers = iter([False, True, True])
    seen: list[list[bytes]] = []

    def process_in(conn: psycopg.Connection[Any], batch: Batch) -> bool:
        seen.append([m.payload for m in batch])
        return into_ledger(conn, batch) and next(answers)

    callbacks, pace = Callbacks(on_error=lambda error: None), Pace(batch=4, first_retry=0.005)
    with QueueListener(site.dsn, "app", "ledger", process_in=process_in, callbacks=callbacks, pace=pace):
        eventually(lambda: waiting(site) == [0])
    assert seen == [[b"1", b"2", b"3", b"4"], [b"1", b"2", b"3", b"4"], [b"5", b"6"]]
    assert site.ask("SELECT value FROM ledger ORDER BY value") == ["1", "2", "3", "4", "5", "6"]


def test_l1_process_in_that_ends_the_transaction_itself_is_refused(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 1)
    errors: list[Exception] = []

    def process_in(conn: psycopg.Connection[Any], batch: Batch) -> bool:
        conn.commit()
        return True

    callbacks = Callbacks(on_error=errors.append)
    with QueueListener(site.dsn, "app", "ledger", process_in=process_in, callbacks=callbacks, pace=QUICK):
        eventually(lambda: errors)
    assert "leave commit and rollback to the listener" in str(errors[0])
    assert waiting(site) == [1]


def test_c2_a_listener_that_was_overtaken_leaves_nothing_behind_and_reads_again(site: Receiver) -> None:
    """Somebody moves its position while the application works: neither success nor refusal of that work counts."""
    arrive(site.sink("app"), 1, 6)
    answers, taken, errors = iter([True, False]), list[list[bytes]](), list[Exception]()

    def process(batch: Batch) -> bool:
        taken.append([m.payload for m in batch])
        if len(taken) > 2:
            return True
        site.do("UPDATE queues.consumed SET position = position + 2")
        return next(answers)

    callbacks = Callbacks(on_error=errors.append)
    with QueueListener(site.dsn, "app", "ledger", process, callbacks=callbacks, tries=1, pace=Pace(batch=1)):
        eventually(lambda: waiting(site) == [0])
    assert taken == [[b"1"], [b"3"], [b"5"], [b"6"]]
    assert [type(error) for error in errors] == [Overtaken, Refused, Overtaken]
    assert site.ask("SELECT count(*) FROM queues.dead_letter") == [0]


# -- its life


def test_l5_of_two_listeners_under_one_name_one_works_and_the_other_takes_over(site: Receiver) -> None:
    sink = site.sink("app")
    apps = [Application(), Application()]
    with apps[0].listener(site) as first:
        eventually(lambda: site.ask("SELECT count(*) FROM queues.consumer") == [1])
        with apps[1].listener(site):
            arrive(sink, 1, 3)
            eventually(lambda: waiting(site) == [0])
            assert [app.taken for app in apps] == [[b"1", b"2", b"3"], []]
            first.stop()
            arrive(sink, 4, 4)
            eventually(lambda: waiting(site) == [0])
    assert [*apps[0].taken, *apps[1].taken] == [b"1", b"2", b"3", b"4"]


def test_listeners_of_other_names_read_the_same_queue_apart(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 3)
    taken: dict[str, list[bytes]] = {"ledger": [], "mirror": []}

    def of(name: str) -> QueueListener:
        return QueueListener(site.dsn, "app", name, lambda batch: not taken[name].extend(m.payload for m in batch), pace=QUICK)

    with of("ledger"), of("mirror"):
        eventually(lambda: site.ask("SELECT position FROM queues.consumed") == [3, 3])
    assert taken == {"ledger": [b"1", b"2", b"3"], "mirror": [b"1", b"2", b"3"]}


def test_a_lost_connection_is_made_again(site: Receiver) -> None:
    sink = site.sink("app")
    app = Application()
    with app.listener(site):
        arrive(sink, 1, 1)
        eventually(lambda: app.taken == [b"1"] and waiting(site) == [0])
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'trunkline-listener-ledger'"
        assert site.ask(ended) == [True]
        arrive(sink, 2, 2)
        eventually(lambda: app.taken == [b"1", b"2"])
    assert any(isinstance(error, psycopg.OperationalError) for error in app.errors)


def test_h23_a_detached_listener_ends_and_says_why(site: Receiver) -> None:
    app = Application()
    site.attach("app", "ledger")
    site.do("UPDATE queues.consumer SET detached_at = now()")
    listener = app.listener(site)
    with pytest.raises(Detached, match="reattach"), listener:
        eventually(lambda: listener.failure)
    assert [type(error) for error in app.errors] == [Detached]
    with pytest.raises(Detached):
        app.listener(site).run()


def test_a_listener_with_nothing_to_read_is_seen(site: Receiver) -> None:
    site.attach("app", "ledger")
    site.do("UPDATE queues.consumer SET seen_at = now() - interval '1 day'")
    recent = "SELECT count(*) FROM queues.consumer WHERE seen_at > now() - interval '1 hour'"
    Application().listen(site, lambda: site.ask(recent) == [1])


def test_run_returns_after_the_batch_that_is_being_processed(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 2)
    working, go_on = threading.Event(), threading.Event()

    def process(batch: Batch) -> bool:
        working.set()
        return go_on.wait(30)

    listener = QueueListener(site.dsn, "app", "ledger", process, pace=Pace(batch=1))
    thread = threading.Thread(target=listener.run)
    thread.start()
    assert working.wait(30)
    listener.stop()
    go_on.set()
    thread.join(30)
    assert not thread.is_alive()
    assert waiting(site) == [1]


def test_it_needs_one_of_process_and_process_in(site: Receiver) -> None:
    with pytest.raises(Invalid, match="exactly one"):
        QueueListener(site.dsn, "app", "ledger")
    with pytest.raises(Invalid, match="exactly one"):
        QueueListener(site.dsn, "app", "ledger", lambda batch: True, process_in=lambda conn, batch: True)
    with pytest.raises(Invalid, match="Ledger"):
        QueueListener(site.dsn, "app", "Ledger", lambda batch: True)
