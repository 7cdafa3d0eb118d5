"""The threads that keep a lease: on_won and on_lost alternate, on_lost is never late, nobody waits for the broken (H02-H04)."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from trunkline.core.clock import SystemClock
from trunkline.db.embedded import EmbeddedPostgres
from trunkline.db.keeper import FREE_SECONDS, LeaseKeeper
from trunkline.db.lease import Grant, Holding, Terms
from trunkline.db.migrate import migrate
from waiting import eventually

QUICK = Terms(seconds=4.0, renew_every=0.3, margin=1.0)
LONG = Terms(seconds=300.0, renew_every=0.2, margin=1.0)


class Watched:
    """A keeper with its words in order: ("won", grant, wall time) and ("lost", None, wall time)."""

    def __init__(self, dsn: str, terms: Terms, owner: str, preferred: Callable[[], bool]) -> None:
        self.words: queue.Queue[tuple[str, Grant | None, float]] = queue.Queue()
        self.keeper = LeaseKeeper(
            dsn, "leader", terms, SystemClock(),
            on_won=lambda grant: self.words.put(("won", grant, time.time())),
            on_lost=lambda: self.words.put(("lost", None, time.time())),
            owner=owner, preferred=preferred,
        )  # fmt: skip

    def next(self) -> tuple[str, Grant | None, float]:
        return self.words.get(timeout=30)


@pytest.fixture
def start() -> Iterator[Callable[..., Watched]]:
    started: list[Watched] = []

    def make(dsn: str, terms: Terms, owner: str = "", preferred: Callable[[], bool] = lambda: True, heard: int = 0) -> Watched:
        started.append(Watched(dsn, terms, owner, preferred))
        started[-1].keeper.raise_above(heard)
        started[-1].keeper.start()
        return started[-1]

    yield make
    for watched in started:
        watched.keeper.stop()


def expires_at(dsn: str) -> float:
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT extract(epoch FROM expires_at) FROM site.lease WHERE name = 'leader'").fetchone()
    assert row is not None
    return float(row[0])


def test_stopping_hands_the_lease_over_without_waiting_for_it_to_lapse(
    make_database: Callable[..., str], start: Callable[..., Watched]
) -> None:
    dsn = make_database()
    first = start(dsn, LONG)
    _, grant, _ = first.next()
    second = start(dsn, LONG)
    assert first.keeper.grant == grant
    assert second.keeper.grant is None
    first.keeper.stop()
    assert first.next()[0] == "lost"
    word, next_grant, _ = second.next()
    assert word == "won"
    assert grant is not None
    assert next_grant is not None
    assert next_grant.epoch > grant.epoch


def test_a_lease_that_another_has_is_lost_at_the_next_renewal(
    make_database: Callable[..., str], start: Callable[..., Watched]
) -> None:
    dsn = make_database()
    watched = start(dsn, LONG)
    _, grant, _ = watched.next()
    with psycopg.connect(dsn) as conn:
        conn.execute("UPDATE site.lease SET epoch = epoch + 1, holder = gen_random_uuid()")
    assert watched.next()[0] == "lost"
    with psycopg.connect(dsn) as conn:
        conn.execute("UPDATE site.lease SET expires_at = '-infinity'")
    word, again, _ = watched.next()
    assert word == "won"
    assert again != grant


def test_h03_the_lease_is_renewed_for_as_long_as_it_is_kept(
    make_database: Callable[..., str], start: Callable[..., Watched]
) -> None:
    dsn = make_database()
    watched = start(dsn, QUICK)
    _, grant, _ = watched.next()
    first = expires_at(dsn)
    eventually(lambda: expires_at(dsn) >= first + QUICK.seconds)
    assert watched.keeper.grant == grant
    assert watched.words.empty()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(tmp_path / "postgres", {"fsync": "off"}) as server:
        migrate(server.dsn)
        yield server


@contextmanager
def stopped(server: EmbeddedPostgres) -> Iterator[None]:
    server.stop()
    yield
    server.start()


@contextmanager
def killed(server: EmbeddedPostgres) -> Iterator[None]:
    server.stop(signal.SIGKILL)
    yield
    server.start()


@contextmanager
def frozen(server: EmbeddedPostgres) -> Iterator[None]:
    """Connections stay open, new ones are accepted by the kernel, and nobody ever answers."""
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for child in children:
        os.kill(child, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in (*children, pid):
            os.kill(process, signal.SIGCONT)


def test_h03_after_a_database_came_back_the_lease_is_won_anew(server: EmbeddedPostgres, start: Callable[..., Watched]) -> None:
    watched = start(server.dsn, QUICK)
    words = [watched.next()]
    with frozen(server):
        words.append(watched.next())
    words.append(watched.next())
    assert [word for word, _, _ in words] == ["won", "lost", "won"]
    (_, first, _), _, (_, second, _) = words
    assert first is not None
    assert second is not None
    assert second.epoch > first.epoch


@pytest.mark.parametrize("fault", [stopped, killed, frozen])
def test_h03_a_holder_without_database_stops_before_its_lease_can_lapse(
    server: EmbeddedPostgres, start: Callable[..., Watched], fault: Callable[[EmbeddedPostgres], Iterator[None]]
) -> None:
    watched = start(server.dsn, QUICK)
    assert watched.next()[0] == "won"
    lapses_at = expires_at(server.dsn)  # or later, if one more renewal comes through
    with fault(server):
        word, _, lost_at = watched.next()
        assert word == "lost"
        assert watched.keeper.grant is None
    assert lost_at < lapses_at


def test_h02_whoever_hears_of_a_higher_epoch_exchanges_its_grant_for_one_above_it(
    make_database: Callable[..., str], start: Callable[..., Watched]
) -> None:
    dsn = make_database()
    watched = start(dsn, LONG)
    _, first, _ = watched.next()
    assert first is not None
    watched.keeper.raise_above(first.epoch + 500)
    assert watched.next()[0] == "lost"
    word, second, _ = watched.next()
    assert word == "won"
    assert second is not None
    assert second.epoch == first.epoch + 501
    assert watched.keeper.grant == second
    watched.keeper.raise_above(first.epoch + 100)
    eventually(lambda: expires_at(dsn) > time.time() + LONG.seconds - 0.5)
    assert watched.words.empty(), "what is below changes nothing"


def test_h02_a_keeper_that_heard_of_a_higher_epoch_before_it_won_begins_above_it(
    make_database: Callable[..., str], start: Callable[..., Watched]
) -> None:
    ahead = int(time.time()) + 5000
    watched = start(make_database(), LONG, heard=ahead)
    word, grant, _ = watched.next()
    assert word == "won"
    assert grant is not None
    assert grant.epoch == ahead + 1
    assert watched.words.empty()


def test_h04_the_preferred_one_takes_a_free_lease_at_once_the_other_after_a_while(
    make_database: Callable[..., str], start: Callable[..., Watched]
) -> None:
    dsn = make_database()
    begun = time.monotonic()
    other = start(dsn, LONG, preferred=lambda: False)
    preferred = start(dsn, LONG)
    assert preferred.next()[0] == "won"
    assert time.monotonic() - begun < FREE_SECONDS
    assert other.keeper.grant is None
    preferred.keeper.stop()
    freed = time.monotonic()
    assert other.next()[0] == "won"
    assert time.monotonic() - freed > FREE_SECONDS - 0.5


def test_h04_a_preferred_one_that_is_alive_but_does_not_try_is_not_waited_for(
    make_database: Callable[..., str], start: Callable[..., Watched]
) -> None:
    dsn = make_database()
    broken = start(dsn, LONG)
    _, grant, _ = broken.next()
    other = start(dsn, LONG, preferred=lambda: False)
    broken.keeper.give_up(300.0)
    assert broken.next()[0] == "lost"
    word, taken, _ = other.next()
    assert word == "won"
    assert grant is not None
    assert taken is not None
    assert taken.epoch > grant.epoch
    assert broken.keeper.grant is None
    assert broken.keeper.rests > 200


def test_h04_a_holder_that_gave_up_tries_again_after_its_rest_when_nobody_else_did(
    make_database: Callable[..., str], start: Callable[..., Watched]
) -> None:
    watched = start(make_database(), LONG)
    watched.next()
    begun = time.monotonic()
    watched.keeper.give_up(1.0)
    assert [watched.next()[0] for _ in range(2)] == ["lost", "won"]
    assert time.monotonic() - begun >= 1.0


def test_h04_a_hand_over_drains_before_the_lease_is_free(make_database: Callable[..., str]) -> None:
    dsn = make_database()
    held_while_draining: list[bool] = []
    won: queue.Queue[Grant] = queue.Queue()
    keeper = LeaseKeeper(
        dsn, "leader", LONG, SystemClock(), won.put, lambda: held_while_draining.append(expires_at(dsn) > time.time())
    )
    keeper.start()
    try:
        won.get(timeout=30)
        keeper.give_up(300.0)
        eventually(lambda: expires_at(dsn) < time.time())
        assert held_while_draining == [True]
    finally:
        keeper.stop()


def test_a_standby_knows_who_holds_the_lease_and_why_it_cannot_ask(
    server: EmbeddedPostgres, start: Callable[..., Watched]
) -> None:
    holder = start(server.dsn, LONG, owner="a/n1")
    _, grant, _ = holder.next()
    assert grant is not None
    standby = start(server.dsn, LONG, owner="a/n2")
    eventually(lambda: standby.keeper.seen == Holding("a/n1", grant.epoch, True))
    server.stop()
    eventually(lambda: "refused" in standby.keeper.trouble)
