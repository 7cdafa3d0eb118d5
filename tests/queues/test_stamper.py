"""The stamper on a real database, with the interleavings forced."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import psycopg
import pytest
from queue_site import APP, Site

from trunkline.core.errors import Fenced
from trunkline.core.ids import START, Position
from trunkline.db.lease import connect_fenced
from trunkline.queues.client import QueueClient
from trunkline.queues.stamper import Stamped, Stamper, random_mark, read_log_id
from waiting import eventually


def test_a_round_stamps_what_is_committed_in_ticket_order(site: Site) -> None:
    site.send(b"1", b"2")
    site.send(b"3")
    done = site.stamper(mark=lambda: 77).round()
    assert (done.head, done.stamped) == (Position(3, 77), 3)
    assert [(b.client, b.entries, b.bytes, b.last) for b in done.sets] == [("app", 3, 3, 3)]
    assert site.logged() == [b"1", b"2", b"3"]
    stamps = site.ask("SELECT first_seq, last_seq, mark, counts, bytes, slots, cursor, holes FROM queues.stamp")
    assert stamps == [(1, 3, 77, [2, 1], [2, 1], [0], 2, [])]
    assert site.ask("SELECT count(*) FROM queues.ticket") == [0]


def test_every_round_has_a_row_and_a_mark_of_its_own(site: Site) -> None:
    stamper = site.stamper()
    for payload in (b"1", b"2"):
        site.send(payload)
        stamper.round()
    assert [row[:2] for row in site.ask("SELECT first_seq, last_seq FROM queues.stamp ORDER BY 1")] == [(1, 1), (2, 2)]
    assert len(set(site.ask("SELECT mark FROM queues.stamp"))) == 2


def test_marks_are_random_and_fit_a_bigint() -> None:
    marks = {random_mark() for _ in range(1000)}
    assert len(marks) == 1000
    assert all(0 < mark < 2**63 for mark in marks)


def test_a_limited_round_leaves_the_rest_to_the_next(site: Site) -> None:
    stamper = site.stamper()
    for n in range(5):
        site.send(b"%d" % n)
    assert [stamper.round(limit=2).stamped for _ in range(4)] == [2, 2, 1, 0]
    assert site.logged() == [b"0", b"1", b"2", b"3", b"4"]


def test_s2_a_round_that_finds_nothing_takes_no_xid(site: Site) -> None:
    stamper = site.stamper()
    site.send(b"1")
    stamper.round()
    conn = site.connect(autocommit=True)

    def next_xid() -> int:
        row = conn.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
        assert row is not None
        return int(row[0])

    def five_rounds_take_none() -> bool:
        before = next_xid()
        assert [stamper.round().stamped for _ in range(5)] == [0] * 5
        return next_xid() == before  # the server's own housekeeping may take one now and then

    eventually(five_rounds_take_none)


def test_s2_an_open_hole_alone_makes_no_round_write(site: Site) -> None:
    open_one = site.drawn(b"open")
    site.send(b"done")
    stamper = site.stamper()
    stamper.round()
    before = site.ask("SELECT xmin::text, cursor FROM queues.stamp")
    assert stamper.round().stamped == 0
    assert site.ask("SELECT xmin::text, cursor FROM queues.stamp") == before
    open_one.rollback()


def test_s2_a_dropped_hole_is_forgotten_at_once_and_written_with_the_next_round(site: Site) -> None:
    failing = site.drawn(b"never")
    site.send(b"1")
    stamper = site.stamper()
    stamper.round()
    failing.rollback()
    eventually(lambda: stamper.round().stamped == 0 and stamper.cursor.holes == ())
    assert site.holes() == [1]
    assert site.ask("SELECT count(*) FROM queues.stamp") == [1]
    site.send(b"2")
    stamper.round()
    assert site.holes() == []


def test_clients_are_known_with_the_seq_of_their_first_entry(site: Site) -> None:
    site.send(b"1")
    conn = site.connect()
    for name in ("app", "policy", "app", "audit", "policy"):
        QueueClient(name).transmit(conn, name.encode(), ["hub"])
    conn.commit()
    stamper = site.stamper()
    stamper.round()
    site.send(b"7")
    stamper.round()
    known = dict(site.ask("SELECT name, first_seq FROM queues.client"))
    assert known == {"app": 1, "policy": 3, "audit": 5}


def test_rows_taken_back_by_their_owner_leave_no_trace(site: Site) -> None:
    conn = site.open_transaction(b"x")
    conn.execute("DELETE FROM queues.send_log")
    conn.commit()
    stamper = site.stamper()
    assert stamper.round() == Stamped(START, 0)
    site.send(b"y")
    assert stamper.round().stamped == 1
    assert site.logged() == [b"y"]
    assert site.ask("SELECT count(*) FROM queues.ticket") == [0]


def test_any_number_of_empty_transactions_does_not_stop_a_limited_round(site: Site) -> None:
    stamper = site.stamper()
    for _ in range(5):
        conn = site.open_transaction(b"x")
        conn.execute("DELETE FROM queues.send_log WHERE xid = pg_current_xact_id()")
        conn.commit()
    site.send(b"y")
    eventually(lambda: stamper.round(limit=2).stamped == 1)
    assert site.ask("SELECT count(*) FROM queues.ticket") == [0]


def test_a_transaction_that_forgot_its_first_row_is_stamped_once_and_whole(site: Site) -> None:
    conn = site.open_transaction(b"1")
    conn.execute("RESET ALL")
    site.do("UPDATE queues.stamper SET slot = 7")
    APP.transmit(conn, b"2", ["hub"])
    conn.commit()
    stamper = site.stamper()
    assert (stamper.round().stamped, stamper.round().stamped) == (2, 0)
    assert site.logged() == [b"1", b"2"]
    assert site.ask("SELECT slots FROM queues.stamp") == [[0, 7]]


def test_the_log_id_is_the_databases_own(site: Site) -> None:
    conn = site.connect()
    assert read_log_id(conn) == str(site.ask("SELECT log_id FROM queues.stamper")[0])


def test_h05_a_drawn_but_open_ticket_is_neither_lost_nor_waited_for(site: Site) -> None:
    slow = site.drawn(b"slow 1", b"slow 2")
    site.send(b"quick")
    stamper = site.stamper()
    assert stamper.round().stamped == 1
    assert site.holes() == [1]
    assert stamper.round().stamped == 0
    slow.commit()
    assert stamper.round().stamped == 2
    assert site.logged() == [b"quick", b"slow 1", b"slow 2"]
    assert stamper.cursor.holes == ()
    assert site.holes() == []


def test_h05_a_transaction_caught_inside_its_commit_is_neither_lost_nor_waited_for(site: Site) -> None:
    site.do("CREATE TABLE account (id int)")
    site.do(
        "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END'"
    )
    site.do(
        "CREATE CONSTRAINT TRIGGER dawdle AFTER INSERT ON account DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION dawdle()"
    )
    gate = site.connect()
    gate.execute("SELECT pg_advisory_lock(4711)")
    slow = site.open_transaction(b"slow")
    slow.execute("INSERT INTO account VALUES (1)")
    committing = threading.Thread(target=slow.commit)
    committing.start()
    eventually(lambda: site.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == [1])

    site.send(b"quick")
    stamper = site.stamper()
    assert stamper.round().stamped == 1
    assert site.holes() == [1]
    gate.execute("SELECT pg_advisory_unlock(4711)")
    committing.join(20)
    stamper.round()
    assert site.logged() == [b"quick", b"slow"]


def test_h05_the_hole_of_a_failed_transaction_goes_only_when_xmin_allows(site: Site) -> None:
    bystander = site.connect()
    bystander.execute("SELECT pg_current_xact_id()")  # older than the round: could be the hole's, for all one knows
    failing = site.drawn(b"never")
    site.send(b"done")
    stamper = site.stamper()
    stamper.round()
    assert site.holes() == [1]
    failing.rollback()
    stamper.round()
    assert [h.ticket for h in stamper.cursor.holes] == [1]

    younger = site.connect()
    younger.execute("SELECT pg_current_xact_id()")
    bystander.rollback()
    eventually(lambda: stamper.round().stamped == 0 and stamper.cursor.holes == ())
    assert site.logged() == [b"done"]
    younger.rollback()


def test_h05_a_snapshots_xmax_would_not_have_been_enough(site: Site) -> None:
    """Between the round that found the hole and its commit, any number of transactions come and go."""
    slow = site.drawn(b"slow")
    site.send(b"0")
    stamper = site.stamper()
    for n in range(1, 20):
        stamper.round()
        site.send(b"%d" % n)
    assert site.holes() == [1]
    slow.commit()
    stamper.round()
    log = site.logged()
    assert log.count(b"slow") == 1
    assert [p for p in log if p != b"slow"] == [b"%d" % n for n in range(20)]


def test_h05_interleaved_ids_do_not_split_a_transaction(site: Site) -> None:
    one, other = site.connect(), site.connect()
    for n in range(5):
        APP.transmit(one, b"one %d" % n, ["hub"])
        APP.transmit(other, b"other %d" % n, ["hub"])
    stamper = site.stamper()
    other.commit()
    stamper.round()
    one.commit()
    stamper.round()
    assert site.logged() == [b"other %d" % n for n in range(5)] + [b"one %d" % n for n in range(5)]


def test_h05_an_undone_ticket_is_a_hole_that_is_dropped(site: Site) -> None:
    conn = site.connect()
    conn.execute("SAVEPOINT s")
    APP.transmit(conn, b"undone", ["hub"])
    conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
    conn.execute("ROLLBACK TO s")
    APP.transmit(conn, b"kept", ["hub"])
    conn.commit()
    stamper = site.stamper()
    stamper.round()
    eventually(lambda: stamper.round().stamped == 0 and stamper.cursor.holes == ())
    assert site.logged() == [b"kept"]


def test_h05_a_limited_round_reaches_holes_first_and_keeps_those_it_did_not_reach(site: Site) -> None:
    slow = [site.drawn(b"slow 0"), site.drawn(b"slow 1")]
    site.send(b"quick")
    stamper = site.stamper()
    stamper.round()
    for conn in slow:
        conn.commit()
    site.send(b"later")
    assert [stamper.round(limit=1).stamped for _ in range(3)] == [1, 1, 1]
    assert site.logged() == [b"quick", b"slow 0", b"slow 1", b"later"]


def test_h06_the_transaction_that_waited_comes_second(site: Site) -> None:
    """The first to transmit waits for the other's row lock, commits last, and so has the last word in the log too."""
    site.do("CREATE TABLE account (id int PRIMARY KEY, value text)")
    site.do("INSERT INTO account VALUES (1, 'old')")
    first = site.open_transaction(b"T1")
    second = site.open_transaction(b"T2")
    second.execute("UPDATE account SET value = 'T2'")

    def wait_and_commit() -> None:
        first.execute("UPDATE account SET value = 'T1'")
        first.commit()

    waiting = threading.Thread(target=wait_and_commit)
    waiting.start()
    eventually(lambda: site.ask("SELECT count(*) FROM pg_locks WHERE NOT granted") == [1])
    second.commit()
    waiting.join(20)
    site.stamper().round()
    assert site.logged() == [b"T2", b"T1"]
    assert site.ask("SELECT value FROM account") == ["T1"]


def test_an_open_transaction_holds_back_only_itself(site: Site) -> None:
    written = site.open_transaction(b"written, not drawn")
    drawn = site.drawn(b"drawn, not committed")
    stamper = site.stamper()
    for n in range(3):
        site.send(b"%d" % n)
        assert stamper.round().stamped == 1
    drawn.commit()
    assert stamper.round().stamped == 1
    written.commit()
    assert stamper.round().stamped == 1
    assert site.logged() == [b"0", b"1", b"2", b"drawn, not committed", b"written, not drawn"]


def test_an_unrelated_open_transaction_holds_back_nothing(site: Site) -> None:
    site.do("CREATE TABLE account (id int)")
    foreign = site.connect()
    foreign.execute("INSERT INTO account VALUES (1)")
    looking = site.connect()
    looking.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    looking.execute("SELECT count(*) FROM queues.ticket")
    stamper = site.stamper()
    for n in range(3):
        site.send(b"%d" % n)
        assert stamper.round().stamped == 1
    assert stamper.cursor.holes == ()
    foreign.rollback()
    looking.rollback()
    assert site.logged() == [b"0", b"1", b"2"]


def test_s5_a_round_costs_the_same_however_many_went_before_while_a_transaction_stays_open(site: Site) -> None:
    foreign = site.connect()
    foreign.execute("SELECT pg_current_xact_id()")  # no dead row goes while it is open
    conn = site.stack.enter_context(closing(connect_fenced(site.dsn)))
    stamper = Stamper(conn, site.acquire(600), random_mark)
    app = site.connect(autocommit=True)

    def index_entries_read_by(rounds: int) -> int:
        for n in range(rounds):
            APP.transmit(app, b"%d" % n, ["hub"])
        entries, scans = _read_so_far(site, conn)
        assert [stamper.round(limit=1).stamped for _ in range(rounds)] == [1] * rounds
        now, scans_now = _read_so_far(site, conn)
        assert scans_now == scans, "a table was read without its index"
        return now - entries

    index_entries_read_by(10)
    early = index_entries_read_by(10)
    for _ in range(30):
        index_entries_read_by(10)
    assert 10 <= index_entries_read_by(10) <= 2 * early
    assert site.ask("SELECT n_dead_tup >= 300 FROM pg_stat_user_tables WHERE relname = 'ticket'") == [True]
    foreign.rollback()


def _read_so_far(site: Site, conn: psycopg.Connection[Any]) -> tuple[int, int]:
    """Index entries of the tables that every round reads, dead ones too; and scans of whole tables."""
    conn.execute("SELECT pg_stat_force_next_flush()")
    conn.rollback()
    tables = "WHERE schemaname = 'queues' AND relname IN ('ticket', 'stamp')"
    (entries,) = site.ask(f"SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes {tables}")
    (scans,) = site.ask(f"SELECT sum(seq_scan)::bigint FROM pg_stat_user_tables {tables}")
    return int(entries), int(scans)


def test_h08_sets_are_interned_by_the_round_once_and_later_messages_name_them_by_number(site: Site) -> None:
    one, other = site.connect(), site.connect()
    APP.transmit(one, b"1", ["shop", "hub", "shop"])
    APP.transmit(other, b"2", ["hub", "shop"])  # waits for nobody
    other.commit()
    one.commit()
    stamper = site.stamper()
    stamper.round()
    site.send(b"3", to=["hub", "shop"])
    stamper.round()
    assert site.ask("SELECT sites FROM queues.destination_set") == [["hub", "shop"]]
    assert site.ask("SELECT destination_set IS NOT NULL FROM queues.send_log ORDER BY id") == [False, False, True]
    assert site.ask("SELECT set_counts, set_lasts FROM queues.stamp ORDER BY first_seq") == [([2], [2]), ([1], [3])]
    assert site.logged() == [b"2", b"1", b"3"]


def test_h08_a_set_interned_by_a_round_that_failed_does_not_dangle(site: Site) -> None:
    grant = site.acquire()
    stamper = site.stamper(grant)
    site.send(b"1")
    rival = site.take_over()
    with pytest.raises(Fenced):
        stamper.round()
    assert site.ask("SELECT count(*) FROM queues.destination_set") == [0]
    site.stamper(rival).round()
    assert site.logged() == [b"1"]
    assert site.ask("SELECT sets = ARRAY(SELECT id FROM queues.destination_set) FROM queues.stamp") == [True]


def test_two_stampers_of_one_grant_never_number_twice(site: Site) -> None:
    """As after a lost connection: what the one remembers is old."""
    grant = site.acquire()
    one, other = site.stamper(grant), site.stamper(grant)
    for n in range(6):
        site.send(b"%d" % n)
        assert (one, other)[n % 2].round().head.seq == n + 1
    assert site.logged() == [b"%d" % n for n in range(6)]
