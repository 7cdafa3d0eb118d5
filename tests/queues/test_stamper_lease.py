"""The stamper under its lease, with the lease changing in the middle of a round; and its loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from queue_site import APP, Site

from trunkline.core.errors import Fenced
from trunkline.core.ids import START, Position
from trunkline.db.lease import Grant, release, renew
from trunkline.queues.stamper import BULK_ENTRIES, BUSY_SECONDS, IDLE_SECONDS
from waiting import eventually

Meddle = Callable[[Site, psycopg.Connection[Any], Grant], None]


def _renewed_then_taken(site: Site, conn: psycopg.Connection[Any], grant: Grant) -> None:
    assert renew(conn, grant, 60)
    site.take_over()


def _released_then_taken(site: Site, conn: psycopg.Connection[Any], grant: Grant) -> None:
    release(conn, grant)
    site.acquire()


def _taken(site: Site, conn: psycopg.Connection[Any], grant: Grant) -> None:
    site.take_over()


def meddling_once(site: Site, grant: Grant, meddle: Meddle) -> Callable[[], int]:
    """A mark is drawn between a round's reads and its commit: there the lease changes under it."""
    todo = [meddle]
    conn = site.connect()

    def mark() -> int:
        if todo:
            todo.pop()(site, conn, grant)
        return 5

    return mark


def test_h01_a_round_passes_when_the_lease_was_renewed_meanwhile(site: Site) -> None:
    def renewed(site: Site, conn: psycopg.Connection[Any], grant: Grant) -> None:
        assert renew(conn, grant, 60)
        calls.append(1)

    calls: list[int] = []
    grant = site.acquire()
    site.send(b"1")
    stamper = site.stamper(grant, meddling_once(site, grant, renewed))
    assert (done := stamper.round()).head == Position(1, 5)
    assert done.stamped == 1
    assert calls == [1]


@pytest.mark.parametrize("meddle", [_taken, _renewed_then_taken, _released_then_taken])
def test_h01_a_round_fails_and_leaves_nothing_when_the_lease_was_taken_meanwhile(site: Site, meddle: Meddle) -> None:
    grant = site.acquire()
    site.send(b"1")
    stamper = site.stamper(grant, meddling_once(site, grant, meddle))
    with pytest.raises(Fenced):
        stamper.round()
    assert site.ask("SELECT count(*) FROM queues.stamp") == [0]
    assert site.ask("SELECT count(*) FROM queues.ticket") == [1]
    assert site.stamper(site.take_over()).round().stamped == 1
    site.send(b"2")
    with pytest.raises(Fenced):
        stamper.round()
    assert site.logged() == [b"1"]


def test_h01_a_round_under_a_lapsed_lease_fails(site: Site) -> None:
    stamper = site.stamper()
    site.send(b"1")
    site.do("UPDATE site.lease SET expires_at = '-infinity'")
    with pytest.raises(Fenced):
        stamper.round()
    assert site.ask("SELECT count(*) FROM queues.stamp") == [0]


def test_h01_a_takeover_waits_for_a_round_that_has_passed_the_fence(site: Site) -> None:
    grant = site.acquire()
    holder = site.connect()
    holder.execute("SELECT site.fence(%s, %s, %s)", (grant.name, grant.epoch, grant.holder))
    site.do("UPDATE site.lease SET expires_at = '-infinity'")
    rival = threading.Thread(target=site.acquire)
    rival.start()
    eventually(lambda: site.ask("SELECT count(*) FROM pg_locks WHERE NOT granted") == [1])
    holder.commit()
    rival.join(20)
    assert site.ask("SELECT epoch > %s FROM site.lease", (grant.epoch,)) == [True]


class Pauses(threading.Event):
    """A stop that records how long it was waited for, lets time pass at once, and ends after `script`."""

    def __init__(self, script: list[Callable[[], None]]) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._script = script

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seconds.append(timeout)
        if not self._script:
            return True
        self._script.pop(0)()
        return False


def test_h09_the_stamper_polls_often_when_busy_and_at_least_four_times_a_second(site: Site) -> None:
    def idle() -> None: ...

    pauses = Pauses([*[idle] * 8, lambda: site.send(b"1"), idle])
    heads: list[Position] = []
    site.stamper(mark=lambda: 9).run(pauses, heads.append)
    doubling = [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.25, 0.25, 0.25]
    assert pauses.seconds == pytest.approx([*doubling, BUSY_SECONDS, 2 * BUSY_SECONDS])
    assert max(pauses.seconds) == IDLE_SECONDS
    assert heads == [START, Position(1, 9)]


def test_h09_after_a_large_round_the_next_one_has_a_little_more_time(site: Site) -> None:
    def many() -> None:
        with site.connect() as conn:
            APP.transmit_many(conn, [b"x"] * BULK_ENTRIES, ["hub"])

    pauses = Pauses([many, lambda: site.send(b"1")])
    site.stamper().run(pauses, lambda head: None)
    assert pauses.seconds == [BUSY_SECONDS, 0.02, BUSY_SECONDS]


def test_h09_a_commit_is_found_without_any_wake_up(site: Site) -> None:
    stop, found = threading.Event(), threading.Event()
    stamper = site.stamper()

    def on_head(head: Position) -> None:
        if head.seq:
            found.set()

    running = threading.Thread(target=stamper.run, args=(stop, on_head))
    running.start()
    try:
        site.send(b"1")
        assert found.wait(20)
    finally:
        stop.set()
        running.join(20)


def test_h09_what_an_export_has_stamped_is_heard_of_though_nothing_comes_after_it(site: Site) -> None:
    stamper, heads = site.stamper(mark=lambda: 9), list[Position]()

    def send_and_export() -> None:
        site.send(b"1")
        stamper.export([]).close()

    stamper.run(Pauses([send_and_export, lambda: None]), heads.append)
    assert heads == [START, Position(1, 9)]


def test_h01_run_ends_with_fenced(site: Site) -> None:
    def send_under_another_holder() -> None:
        site.send(b"2")
        site.take_over()

    stamper = site.stamper()
    with pytest.raises(Fenced):
        stamper.run(Pauses([lambda: site.send(b"1"), send_under_another_holder]), lambda head: None)
    assert site.logged() == [b"1"]
