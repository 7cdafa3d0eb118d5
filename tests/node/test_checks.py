"""What each state of a node reads like, and which of them make it unready."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest

from trunkline.core.clock import ManualClock, SystemClock
from trunkline.core.health import Check
from trunkline.db.lease import Grant, Holding
from trunkline.node.checks import LeaseState, database_check, lease_check, links_check, start_check, store_check, trunk_check
from trunkline.node.probe import Answer, DatabaseProbe, moved
from trunkline.queues.client import QueueClient
from trunkline.queues.registry import remember_site
from waiting import eventually

IDLE = LeaseState(None, None, None, 0.0, "", 0.0, "")
GRANT = Grant("leader", uuid.uuid4(), 7)


@pytest.mark.parametrize(
    ("state", "ok", "reason"),
    [
        (IDLE, False, "nobody leads"),
        (replace(IDLE, grant=GRANT), False, "holds epoch 7 and is about to lead"),
        (replace(IDLE, grant=GRANT, led_since=1.0), True, "leads with epoch 7"),
        (replace(IDLE, grant=GRANT, led_since=1.0, trouble="refused"), True, "leads with epoch 7"),
        (replace(IDLE, seen=Holding("a/n2", 9, True)), True, "follows a/n2, epoch 9"),
        (replace(IDLE, seen=Holding("", 9, True)), True, "follows another node, epoch 9"),
        (replace(IDLE, seen=Holding("a/n2", 9, False)), False, "nobody leads"),
        (replace(IDLE, seen=Holding("a/n2", 9, True), seen_age=9.0), False, "not known who leads: no answer for 9 s"),
        (replace(IDLE, seen=Holding("a/n2", 9, True), trouble="refused"), False, "not known who leads: refused"),
        (
            replace(IDLE, rests=8.0, why_resting="ValueError: no"),
            False,
            "nobody leads; this node rests for 8 s after its work failed: ValueError: no",
        ),
        (replace(IDLE, seen=Holding("a/n2", 9, True), rests=8.0), True, "follows a/n2, epoch 9"),
    ],
)
def test_the_lease_says_who_leads(state: LeaseState, ok: bool, reason: str) -> None:
    assert lease_check(state) == Check("lease", ok, reason)


def test_a_database_that_answers_late_or_not_at_all_is_told_with_since_when() -> None:
    answer = Answer(at=100.0, head=1, waiting=0, moved_at=100.0)
    assert database_check(answer, "", 101.0) == Check("database", True, "answers")
    assert database_check(answer, "", 112.0) == Check("database", False, "no answer for 12 s")
    assert database_check(answer, "refused", 101.0) == Check("database", False, "no answer for 1 s: refused")
    assert database_check(None, "refused", 101.0) == Check("database", False, "no answer yet: refused")


def test_a_start_that_waits_says_for_what_and_why() -> None:
    assert start_check("database", 10.0, "refused", 14.0) == Check("start", False, "database, waiting for 4 s: refused")
    assert start_check("links", 10.0, "", 14.0) == Check("start", False, "links")


def test_a_node_without_a_single_link_stays_ready_and_tells() -> None:
    listening = Check("links", True, "0 up")
    assert links_check(listening, {"hub": False}) == Check("links", True, "0 up; not connected: hub")
    assert links_check(Check("links", True, "2 up"), {"hub": True, "east": False}).reason == (
        "2 up; connected: hub; not connected: east"
    )
    assert not links_check(Check("links", False, "not listening"), {}).ok


def test_a_head_that_stands_still_while_commits_wait_is_the_leader_s_affair() -> None:
    clock = ManualClock(100.0)
    answer = None
    for _ in range(8):
        answer = moved(answer, 5, 3, clock.monotonic())
        clock.advance(1.0)
    now = clock.monotonic()
    assert trunk_check(answer, 0.0, now) == Check("trunk", False, "head 5 has not moved for 7 s while 3 commits wait")
    assert trunk_check(answer, None, now).ok
    assert trunk_check(answer, now - 2, now).ok, "it leads for 2 s only"
    assert trunk_check(answer, 0.0, now + 60).reason == "not known while the database does not answer"
    assert trunk_check(moved(answer, 6, 3, now), 0.0, now) == Check("trunk", True, "head 6, 3 commits wait")
    assert trunk_check(moved(answer, 5, 0, now), 0.0, now).ok


def test_the_probe_counts_commits_that_wait_and_forgets_its_trouble(make_database: Callable[..., str]) -> None:
    dsn = make_database("queues")
    with psycopg.connect(dsn) as conn:
        remember_site(conn, "b")
    probe, stop = DatabaseProbe(dsn, SystemClock()), threading.Event()
    thread = threading.Thread(target=probe.run, args=(stop,))
    thread.start()
    try:
        eventually(lambda: probe.answer is not None and probe.answer.waiting == 0)
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'trunkline-probe'")
            eventually(lambda: probe.trouble)
            QueueClient("policy").transmit(conn, b"1", ["b"])
        eventually(lambda: probe.answer is not None and probe.answer.waiting == 1)
        assert probe.trouble == ""
    finally:
        stop.set()
        thread.join(20)


def test_the_store_is_not_ready_only_before_its_first_sync() -> None:
    assert store_check(False, 0, 2, 1) == Check("store", False, "not yet synced: 0 of 2 peers in step, 1 keys")
    assert store_check(True, 0, 2, 1) == Check("store", True, "0 of 2 peers in step, 1 keys")
    assert store_check(True, 2, 2, 40).reason == "2 of 2 peers in step, 40 keys"
