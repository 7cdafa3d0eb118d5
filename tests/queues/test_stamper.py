"""The stamper on a real database, with the interleavings forced."""

from __future__ import annotations

import threading

from queue_site import APP, Site

from trunkline.core.ids import START, Position
from trunkline.queues.client import QueueClient
from trunkline.queues.stamper import Stamped, random_mark, read_log_id
from waiting import eventually


def test_a_round_stamps_what_is_committed_in_ticket_order(site: Site) -> None:
    site.send(b"1", b"2")
    site.send(b"3")
    done = site.stamper(mark=lambda: 77).round()
    assert done == Stamped(Position(3, 77), 3)
    assert site.logged() == [b"1", b"2", b"3"]
    assert site.ask("SELECT first_seq, last_seq, mark, counts FROM queues.stamp") == [(1, 3, 77, [2, 1])]
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
    before = site.ask("SELECT xmin::text FROM queues.stamper")
    assert stamper.round().stamped == 0
    assert site.ask("SELECT xmin::text FROM queues.stamper") == before
    open_one.rollback()


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


def test_rows_taken_back_by_the_application_leave_no_trace(site: Site) -> None:
    conn = site.open_transaction(b"x")
    conn.execute("DELETE FROM queues.send_log")
    conn.commit()
    stamper = site.stamper()
    assert stamper.round() == Stamped(START, 0)
    site.send(b"y")
    assert stamper.round().stamped == 1
    assert site.logged() == [b"y"]


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
    assert site.holes() == [1]

    younger = site.connect()
    younger.execute("SELECT pg_current_xact_id()")
    bystander.rollback()
    eventually(lambda: stamper.round().stamped == 0 and site.holes() == [])
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
    eventually(lambda: stamper.round().stamped == 0 and site.holes() == [])
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
