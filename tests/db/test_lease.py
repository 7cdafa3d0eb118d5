"""Leases: who may act, who may not any more, and who never waits for whom (H01, H02, H03)."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from trunkline.core.clock import ManualClock
from trunkline.core.errors import Fenced
from trunkline.db.keeper import Tenure
from trunkline.db.lease import Grant, Holding, Terms, acquire, commit_fenced, connect_fenced, look, raise_above, release, renew
from waiting import eventually

Conn = psycopg.Connection[Any]


@pytest.fixture
def dsn(make_database: Callable[..., str]) -> str:
    dsn = make_database()
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE work (text text)")
    return dsn


@pytest.fixture
def connect(dsn: str) -> Iterator[Callable[[], Conn]]:
    with ExitStack() as opened:
        yield lambda: opened.enter_context(psycopg.connect(dsn))


def test_a_host_that_is_gone_without_a_word_is_noticed_soon_unless_the_dsn_says_when(dsn: str) -> None:
    with connect_fenced(make_conninfo(dsn, keepalives_idle=60)) as conn, socket.socket(fileno=os.dup(conn.fileno())) as wire:
        options = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [wire.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [10_000, 60, 2, 3]
        assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert conn.info.get_parameters()["connect_timeout"] == "5"


def take(conn: Conn, seconds: float = 60.0) -> Grant:
    grant = acquire(conn, "leader", seconds)
    assert grant is not None
    return grant


def lapse(conn: Conn) -> None:
    conn.execute("UPDATE site.lease SET expires_at = clock_timestamp() - interval '1 ms'")
    conn.commit()


def work(conn: Conn) -> list[str]:
    rows = [text for (text,) in conn.execute("SELECT text FROM work")]
    conn.commit()
    return rows


@contextmanager
def fence_in_flight(conn: Conn, grant: Grant) -> Iterator[None]:
    """The instant between the fence and its COMMIT, held open."""
    conn.execute("SELECT site.fence(%s, %s, %s)", (grant.name, grant.epoch, grant.holder))
    yield
    conn.commit()


def test_a_lease_has_one_holder(connect: Callable[[], Conn]) -> None:
    a, b = connect(), connect()
    grant = take(a)
    assert acquire(b, "leader", 60) is None
    assert renew(a, grant, 60)
    release(a, grant)
    assert not renew(a, grant, 60)
    assert take(b).epoch > grant.epoch


def test_names_are_leases_of_their_own(connect: Callable[[], Conn]) -> None:
    conn = connect()
    take(conn)
    assert acquire(conn, "stamper", 60) is not None


def test_releasing_what_another_holds_changes_nothing(connect: Callable[[], Conn]) -> None:
    a, b = connect(), connect()
    old = take(a)
    lapse(a)
    new = take(b)
    release(a, old)
    assert renew(b, new, 60)


@pytest.mark.parametrize("fresh", [True, False], ids=["the first row", "a takeover"])
def test_of_many_who_ask_at_once_one_wins_and_the_others_hear_no(connect: Callable[[], Conn], fresh: bool) -> None:
    conns = [connect() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for n in range(150):
            name = f"lease-{n}" if fresh else "leader"
            answers = list(pool.map(lambda conn, name=name: acquire(conn, name, 60), conns))
            assert sum(grant is not None for grant in answers) == 1
            lapse(conns[0])


def test_h01_fenced_work_commits_while_the_lease_is_held(connect: Callable[[], Conn]) -> None:
    conn = connect()
    grant = take(conn)
    conn.execute("INSERT INTO work VALUES ('mine')")
    commit_fenced(conn, grant)
    assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert work(connect()) == ["mine"]


def test_h01_the_fence_refuses_after_a_takeover(connect: Callable[[], Conn]) -> None:
    old, new = connect(), connect()
    grant = take(old)
    old.execute("INSERT INTO work VALUES ('too late')")
    lapse(new)
    taken = take(new)
    with pytest.raises(Fenced):
        commit_fenced(old, grant)
    new.execute("INSERT INTO work VALUES ('mine')")
    commit_fenced(new, taken)
    assert work(old) == ["mine"]


def test_h01_an_expired_lease_fails_the_fence_though_nobody_took_it(connect: Callable[[], Conn]) -> None:
    conn = connect()
    grant = take(conn)
    lapse(connect())
    conn.execute("INSERT INTO work VALUES ('too late')")
    with pytest.raises(Fenced):
        commit_fenced(conn, grant)
    assert work(conn) == []


def test_h01_a_takeover_waits_for_fenced_work_in_flight(connect: Callable[[], Conn]) -> None:
    old, new, watcher = connect(), connect(), connect()
    watcher.autocommit = True
    grant = take(old)

    def blocker() -> Any:
        row = watcher.execute("SELECT pg_blocking_pids(%s)", (new.info.backend_pid,)).fetchone()
        return row and row[0]

    with ThreadPoolExecutor(1) as pool:
        old.execute("INSERT INTO work VALUES ('in time')")
        with fence_in_flight(old, grant):
            lapse(watcher)
            taken = pool.submit(acquire, new, "leader", 60)
            eventually(lambda: blocker() == [old.info.backend_pid])
            assert not taken.done()
        won = taken.result(20)
    assert won is not None
    assert work(new) == ["in time"]


def test_h01_a_renewal_does_not_wait_for_fenced_work_in_flight(connect: Callable[[], Conn]) -> None:
    keeper = connect()
    grant = take(keeper)
    keeper.execute("SET lock_timeout = '100ms'")
    with ExitStack() as open_transactions:
        for _ in range(8):
            open_transactions.enter_context(fence_in_flight(connect(), grant))
        assert renew(keeper, grant, 60)


def test_h01_a_standby_that_asks_for_a_live_lease_waits_for_nobody(connect: Callable[[], Conn]) -> None:
    holder, standby = connect(), connect()
    grant = take(holder)
    standby.execute("SET lock_timeout = '100ms'")
    with fence_in_flight(connect(), grant):
        assert acquire(standby, "leader", 60) is None


def test_h01_a_renewal_takes_less_than_100_ms_under_8_busy_workers(
    dsn: str, connect: Callable[[], Conn], record_testsuite_property: Callable[[str, object], None]
) -> None:
    keeper = connect()
    grant = take(keeper)
    # The wait for a lock is what must not be: the bound on it is strict, a busy machine spoils only the clock's.
    keeper.execute("SET lock_timeout = '100ms'")
    keeper.commit()
    done, rounds = threading.Event(), [0] * 8

    def busy(n: int) -> None:
        with connect_fenced(dsn) as conn:
            while not done.is_set():
                conn.execute("INSERT INTO work VALUES ('busy')")
                commit_fenced(conn, grant)
                rounds[n] += 1

    with ThreadPoolExecutor(8) as pool:
        workers = [pool.submit(busy, n) for n in range(8)]
        try:
            eventually(lambda: min(rounds) > 0 or any(worker.done() for worker in workers))
            took = [_timed_renewal(keeper, grant) for _ in range(100)]
        finally:
            done.set()
        for worker in workers:
            worker.result(20)
    p99 = sorted(took)[98]
    record_testsuite_property("renewal_p99_ms", round(p99 * 1000, 1))
    assert median(took) < 0.1
    assert p99 < 1.0, "the keeper gives up a statement after 1 s"
    assert len(work(keeper)) == sum(rounds)


def _timed_renewal(conn: Conn, grant: Grant) -> float:
    begun = time.monotonic()
    assert renew(conn, grant, 60)
    return time.monotonic() - begun


def test_h01_a_transaction_with_an_old_snapshot_is_fenced_all_the_same(connect: Callable[[], Conn]) -> None:
    old, new = connect(), connect()
    old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    grant = take(old)
    old.execute("INSERT INTO work VALUES ('before a renewal')")
    assert renew(new, grant, 60)
    commit_fenced(old, grant)
    old.execute("INSERT INTO work VALUES ('before a takeover')")
    lapse(new)
    take(new)
    with pytest.raises((Fenced, psycopg.errors.SerializationFailure)):
        commit_fenced(old, grant)
    assert work(new) == ["before a renewal"]


def test_h01_a_holder_that_falls_asleep_in_a_transaction_loses_it(dsn: str, connect: Callable[[], Conn]) -> None:
    grant = take(connect())
    sleeper = connect_fenced(dsn)
    sleeper.execute("INSERT INTO work VALUES ('asleep')")
    watcher, pid = connect(), sleeper.info.backend_pid
    eventually(lambda: _backend_gone(watcher, pid))
    with pytest.raises(psycopg.Error):
        commit_fenced(sleeper, grant)
    sleeper.close()
    assert work(connect()) == []


def _backend_gone(conn: Conn, pid: int) -> bool:
    with conn.transaction():
        return conn.execute("SELECT FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is None


def test_h02_every_acquisition_has_a_higher_epoch_and_a_holder_of_its_own(connect: Callable[[], Conn]) -> None:
    conn = connect()
    grants = []
    for _ in range(5):
        grants.append(take(conn))
        release(conn, grants[-1])
    epochs = [grant.epoch for grant in grants]
    assert epochs == sorted(set(epochs))
    assert len({grant.holder for grant in grants}) == 5
    assert epochs[0] >= int(time.time()) - 60


def test_h02_epochs_do_not_repeat_after_a_restore_of_an_older_state(connect: Callable[[], Conn]) -> None:
    conn = connect()
    take(conn)
    now = int(time.time())
    forgotten = [Grant("leader", uuid.uuid4(), now - 1000 + n) for n in range(1, 500)]
    conn.execute("UPDATE site.lease SET epoch = %s, expires_at = '-infinity'", (now - 1000,))
    conn.commit()
    grant = take(conn)
    assert grant.epoch > max(old.epoch for old in forgotten)
    conn.execute("INSERT INTO work VALUES ('forgotten')")
    with pytest.raises(Fenced):
        commit_fenced(conn, forgotten[-1])


def test_h02_raising_an_epoch_fences_what_was_done_under_the_old_one(connect: Callable[[], Conn]) -> None:
    conn = connect()
    old = take(conn)
    new = raise_above(conn, old, old.epoch + 100, 60)
    assert new is not None
    assert new.epoch == old.epoch + 101
    assert new.holder != old.holder
    conn.execute("INSERT INTO work VALUES ('under the old one')")
    with pytest.raises(Fenced):
        commit_fenced(conn, old)
    assert not renew(conn, old, 60)
    conn.execute("INSERT INTO work VALUES ('under the new one')")
    commit_fenced(conn, new)
    assert work(conn) == ["under the new one"]
    again = raise_above(conn, new, 1, 60)
    assert again is not None
    assert again.epoch == new.epoch + 1


def test_h02_only_the_holder_raises(connect: Callable[[], Conn]) -> None:
    conn = connect()
    old = take(conn)
    lapse(conn)
    assert raise_above(conn, old, old.epoch + 100, 60) is None
    new = take(conn)
    assert raise_above(conn, old, old.epoch + 100, 60) is None
    assert renew(conn, new, 60)


def test_h01_raising_an_epoch_waits_for_fenced_work_in_flight(connect: Callable[[], Conn]) -> None:
    holder, keeper = connect(), connect()
    grant = take(keeper)
    keeper.execute("SET lock_timeout = '100ms'")
    keeper.commit()
    with fence_in_flight(holder, grant), pytest.raises(psycopg.errors.LockNotAvailable):
        raise_above(keeper, grant, grant.epoch + 1, 60)
    keeper.rollback()
    assert raise_above(keeper, grant, grant.epoch + 1, 60) is not None


def test_looking_tells_who_holds_it(connect: Callable[[], Conn]) -> None:
    conn = connect()
    assert look(conn, "leader") is None
    grant = acquire(conn, "leader", 60, "a/n1")
    assert grant is not None
    assert look(conn, "leader") == Holding("a/n1", grant.epoch, True)
    release(conn, grant)
    assert look(conn, "leader") == Holding("a/n1", grant.epoch, False)


def test_h02_an_equal_epoch_with_another_holder_is_fenced(connect: Callable[[], Conn]) -> None:
    conn = connect()
    grant = take(conn)
    twin = Grant(grant.name, uuid.uuid4(), grant.epoch)
    conn.execute("INSERT INTO work VALUES ('twin')")
    with pytest.raises(Fenced):
        commit_fenced(conn, twin)
    assert not renew(conn, twin, 60)
    release(conn, twin)
    assert renew(conn, grant, 60)
    assert work(conn) == []


def test_h03_a_tenure_is_counted_from_the_start_of_its_renewal() -> None:
    clock = ManualClock()
    tenure = Tenure(clock, Terms(seconds=10, renew_every=3, margin=1))
    grant = Grant("leader", uuid.uuid4(), 1)
    asked_at = clock.monotonic()
    clock.advance(2)  # the answer took so long
    assert not tenure.holds()
    tenure.won(grant, asked_at)
    clock.advance(6.9)
    assert tenure.holds()
    clock.advance(0.1)
    assert not tenure.holds()


def test_h03_a_renewal_prolongs_a_tenure_and_a_loss_ends_it() -> None:
    clock = ManualClock()
    tenure = Tenure(clock, Terms(seconds=10, renew_every=3, margin=1))
    grant = Grant("leader", uuid.uuid4(), 1)
    for _ in range(5):
        tenure.won(grant, clock.monotonic())
        clock.advance(8)
        assert tenure.holds()
    tenure.lost()
    assert not tenure.holds()
