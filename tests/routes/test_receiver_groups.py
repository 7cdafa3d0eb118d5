"""A receiver group runs at exactly one instance, and at one that can: decided, simulated with crashes, and on Postgres."""

from __future__ import annotations

import asyncio
import queue
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline.core.backoff import Backoff
from trunkline.core.clock import ManualClock, SystemClock
from trunkline.db.keeper import FREE_SECONDS, Eagerness, Tenure
from trunkline.db.lease import STANDBY_TERMS, Grant, Holding
from trunkline.routes.groups import FIRST_REST, HAND_OVER_SECONDS, LONGEST_REST, Group, GroupKeepers, Standing, ranked
from waiting import eventually

TICK = 0.1
KAFKA = Group("kafka", "k1:9092")
ALL = ("a", "b", "c")
FIRST, SECOND, THIRD = ranked(KAFKA, ALL)


def standing(me: str) -> Standing:
    return Standing(me, KAFKA, Backoff(FIRST_REST, LONGEST_REST, lambda: 0.0))


def test_groups_spread_evenly_and_only_those_of_the_one_that_goes_move() -> None:
    groups = [Group("kafka", f"cluster-{n}") for n in range(600)]
    before = {group: ranked(group, ALL)[0] for group in groups}
    assert min(Counter(before.values()).values()) > 150
    after = {group: ranked(group, ("a", "c"))[0] for group in groups}
    assert all(after[group] == before[group] for group in groups if before[group] != "b")


def test_every_instance_ranks_alike() -> None:
    assert ranked(KAFKA, reversed(ALL)) == ranked(KAFKA, ALL)
    assert ranked(KAFKA, []) == []


def test_h04_the_preferred_one_is_first_of_those_who_are_alive_and_able() -> None:
    assert standing(FIRST).preferred(set(ALL))
    assert not standing(SECOND).preferred(set(ALL))
    assert standing(SECOND).preferred({SECOND, THIRD})
    assert not standing(FIRST).preferred(set())


def test_h04_a_holder_hands_over_to_a_preferred_one_that_has_been_there_for_a_while() -> None:
    holder = standing(SECOND)
    holder.won({SECOND, THIRD}, 0.0)
    assert not holder.hands_over({SECOND, THIRD}, 100.0)
    assert not holder.hands_over(set(ALL), 101.0)
    assert not holder.hands_over({SECOND, THIRD}, 105.0), "it was gone again"
    assert not holder.hands_over(set(ALL), 106.0)
    assert not holder.hands_over(set(ALL), 106.0 + HAND_OVER_SECONDS - 0.1)
    assert holder.hands_over(set(ALL), 106.0 + HAND_OVER_SECONDS)


def test_h04_a_hand_over_that_came_to_nothing_is_tried_again_after_twice_the_time() -> None:
    holder, now = standing(SECOND), 0.0
    waits = []
    for _ in range(4):
        holder.won(set(ALL), now)
        since = now
        while not holder.hands_over(set(ALL), now):
            now += 1.0
        waits.append(now - since)
    assert waits == [HAND_OVER_SECONDS * 2**n for n in range(4)]
    holder.won({SECOND, THIRD}, now)
    assert holder.patience == HAND_OVER_SECONDS, "another is preferred now"


def test_h04_a_holder_that_fails_rests_longer_than_others_need_and_longer_each_time() -> None:
    holder = standing(FIRST)
    holder.won(set(ALL), 0.0)
    rests = [holder.failed() for _ in range(3)]
    assert rests[0] > FREE_SECONDS + 1
    assert rests == [rests[0], 2 * rests[0], 4 * rests[0]]
    holder.won(set(ALL), 100.0)
    holder.hands_over(set(ALL), 130.0)
    assert holder.failed() == 8 * rests[0], "it has not run well for long"
    holder.won(set(ALL), 200.0)
    holder.hands_over(set(ALL), 300.0)
    assert holder.failed() == rests[0]


class Row:
    """The lease as the database has it."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.owner, self.epoch, self.until = "", 0, 0.0

    def look(self) -> Holding:
        return Holding(self.owner, self.epoch, self.until > self._clock.monotonic())

    def acquire(self, owner: str) -> int | None:
        if self.look().live:
            return None
        self.owner, self.epoch, self.until = owner, self.epoch + 1, self._clock.monotonic() + STANDBY_TERMS.seconds
        return self.epoch

    def renew(self, epoch: int) -> bool:
        if epoch != self.epoch or not self.look().live:
            return False
        self.until = self._clock.monotonic() + STANDBY_TERMS.seconds
        return True

    def release(self, epoch: int) -> None:
        if epoch == self.epoch:
            self.until = 0.0


class Instance:
    """What `LeaseKeeper` and `GroupKeepers` do, on a clock that is turned by hand. `broken`: its work fails. `deaf`: it
    is alive for the others, but never tries. `frozen`: its process stands still. `cut`: it does not reach the database."""

    DRAIN = 1.0
    POLL = 0.25

    def __init__(self, name: str, row: Row, clock: ManualClock, random: Random) -> None:
        self.name, self._row, self._clock = name, row, clock
        self._standing = Standing(name, KAFKA, Backoff(FIRST_REST, LONGEST_REST, random.random))
        self.up = True
        self.broken = self.deaf = self.frozen = self.cut = False
        self.able: Callable[[], set[str]] = set
        self.begun = 0
        self.start()

    def start(self) -> None:
        self.up, self.frozen = True, False
        self._tenure = Tenure(self._clock, STANDBY_TERMS)
        self._eagerness = Eagerness(lambda: self._standing.preferred(self.able()))
        self._next = self._clock.monotonic()
        self._drained: float | None = None

    @property
    def works(self) -> bool:
        """Also while it drains."""
        return self.up and not self.frozen and (self._tenure.holds() or self._drained is not None)

    def step(self) -> None:
        now, grant = self._clock.monotonic(), self._tenure.grant
        if not self.up or self.frozen:
            return
        if self._drained is not None:
            self._end_of_drain(now)
        elif grant is not None and not self._tenure.holds():
            self._tenure.lost()
        elif grant is None:
            self._maybe_take(now)
        elif self._standing.hands_over(self.able(), now):
            self._let_go(now, FREE_SECONDS)
        elif now >= self._next:
            self._renew(grant, now)

    def _maybe_take(self, now: float) -> None:
        if self.deaf or self.cut or now < self._next:
            return
        self._next = now + self.POLL
        if self._eagerness.tries(self._row.look(), now) and (epoch := self._row.acquire(self.name)) is not None:
            self._tenure.won(Grant(KAFKA.lease, None, epoch), now)  # type: ignore[arg-type]
            self._standing.won(self.able(), now)
            self.begun += 1
            if self.broken:
                self._let_go(now, self._standing.failed())

    def _renew(self, grant: Grant, now: float) -> None:
        self._next = now + STANDBY_TERMS.renew_every
        if self.broken:
            self._let_go(now, self._standing.failed())
        elif self.cut:
            return
        elif self._row.renew(grant.epoch):
            self._tenure.won(grant, now)
        else:
            self._tenure.lost()

    def _let_go(self, now: float, rest: float) -> None:
        self._eagerness.rests_until = now + rest
        self._drained = now + self.DRAIN

    def _end_of_drain(self, now: float) -> None:
        if self._drained is not None and now >= self._drained and self._tenure.grant is not None:
            if not self.cut:
                self._row.release(self._tenure.grant.epoch)
            self._tenure.lost()
            self._drained, self._next = None, now + self.POLL


class Site:
    def __init__(self, seed: int = 0) -> None:
        self.clock = ManualClock(100.0)
        self.row = Row(self.clock)
        self.instances = {name: Instance(name, self.row, self.clock, Random(f"{seed}{name}")) for name in ALL}
        for instance in self.instances.values():
            instance.able = lambda: {other.name for other in self.instances.values() if other.up}
        self.idle_since: float | None = None

    @property
    def working(self) -> list[str]:
        return [name for name, instance in self.instances.items() if instance.works]

    def run(self, seconds: float, within: float = 1e9) -> None:
        """At every moment there is at most one; and never none for longer than `within`."""
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            for instance in self.instances.values():
                instance.step()
            now = self.clock.monotonic()
            assert len(self.working) <= 1, f"{self.working} at {now}"
            runs = any(not self.instances[name].broken for name in self.working)
            self.idle_since = None if runs else self.idle_since or now
            assert self.idle_since is None or now - self.idle_since <= within, f"nobody runs it since {self.idle_since}"
            self.clock.advance(TICK)


def test_h04_the_preferred_instance_is_alive_but_broken_and_another_takes_the_group_within_its_bound() -> None:
    site = Site()
    site.instances[FIRST].broken = True
    site.run(300.0, within=Instance.DRAIN + FREE_SECONDS + 2 * Instance.POLL + 1)
    assert site.working in ([SECOND], [THIRD])
    assert site.instances[FIRST].begun < 12, "it is tried more and more seldom"


def test_h04_the_preferred_instance_is_alive_but_never_tries_and_another_takes_the_group_within_its_bound() -> None:
    site = Site()
    site.instances[FIRST].deaf = True
    site.run(3600.0, within=Instance.DRAIN + FREE_SECONDS + 2 * Instance.POLL + 0.1)
    begun = sum(instance.begun for instance in site.instances.values())
    assert begun <= 12, "hand-overs to it are tried more and more seldom"


@pytest.mark.parametrize("fault", ["up", "frozen", "cut"])
def test_h04_a_holder_that_is_gone_is_followed_by_another_and_has_the_group_again_when_it_is_back(fault: str) -> None:
    site = Site()
    site.run(10.0)
    assert site.working == [FIRST]
    setattr(site.instances[FIRST], fault, fault != "up")
    site.run(STANDBY_TERMS.seconds + FREE_SECONDS + 2 * Instance.POLL)
    assert len(site.working) == 1
    assert site.working != [FIRST]
    if fault == "up":
        site.instances[FIRST].start()
    else:
        setattr(site.instances[FIRST], fault, False)
    site.run(HAND_OVER_SECONDS + Instance.DRAIN + FREE_SECONDS, within=Instance.DRAIN + 1)
    assert site.working == [FIRST]


EVENTS = st.lists(
    st.tuples(
        st.floats(0.0, 15.0), st.sampled_from(ALL), st.sampled_from(["crash", "break", "deafen", "freeze", "cut", "mend"])
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(EVENTS, st.integers(0, 1000))
def test_h04_exactly_one_whatever_happens_and_one_that_can_when_all_is_well_again(
    events: list[tuple[float, str, str]], seed: int
) -> None:
    site = Site(seed)
    for pause, name, what in events:
        site.run(pause)
        instance = site.instances[name]
        instance.broken |= what == "break"
        instance.deaf |= what == "deafen"
        instance.frozen |= what == "freeze"
        instance.cut |= what == "cut"
        instance.up &= what != "crash"
        if what == "mend":
            instance.broken = instance.deaf = instance.frozen = instance.cut = False
            if not instance.up:
                instance.start()
    well = site.instances[Random(seed).choice(ALL)]
    well.broken = well.deaf = well.cut = False
    well.start()
    begun = site.clock.monotonic()
    while all(site.instances[name].broken for name in site.working):
        site.run(0.1)
        assert site.clock.monotonic() - begun < 25.0, "the one that can does not get it"


class Work:
    """Words of one instance, in order; `broken`: it fails as soon as it begins."""

    def __init__(self, name: str, running: set[str], overlaps: list[set[str]]) -> None:
        self.name, self.broken = name, False
        self.words: queue.Queue[tuple[str, int]] = queue.Queue()
        self._running, self._overlaps = running, overlaps

    def begin(self, group: Group, grant: Grant) -> None:
        assert group == KAFKA
        self._running.add(self.name)
        if len(self._running) > 1:
            self._overlaps.append(set(self._running))
        self.words.put(("begin", grant.epoch))
        if self.broken:
            raise RuntimeError("no brokers here")

    def drain(self, group: Group) -> None:
        self.words.put(("drain", 0))
        self._running.discard(self.name)

    def next(self) -> tuple[str, int]:
        return self.words.get(timeout=30)


class Keeping:
    """Three instances on one database. `alive`: whom they take for able."""

    def __init__(self, dsn: str) -> None:
        self.alive = set(ALL)
        self.overlaps: list[set[str]] = []
        running: set[str] = set()
        self.work = {name: Work(name, running, self.overlaps) for name in ALL}
        self.keepers = {
            name: GroupKeepers(dsn, name, lambda _: self.alive, self.work[name], SystemClock(), Random(1).random, hand_over=0.5)
            for name in ALL
        }

    def start(self, *names: str) -> None:
        for name in names:
            self.keepers[name].keep({KAFKA})

    def holders(self) -> list[str]:
        return [name for name in ALL if KAFKA in self.keepers[name].held]


@pytest.fixture
def keeping(make_database: Callable[..., str]) -> Iterator[Keeping]:
    with _kept(Keeping(make_database())) as keeping:
        yield keeping


@contextmanager
def _kept(keeping: Keeping) -> Iterator[Keeping]:
    try:
        yield keeping
    finally:
        for keepers in keeping.keepers.values():
            keepers.keep(frozenset())
    assert keeping.overlaps == []


def test_h04_on_postgres_another_takes_the_group_of_a_preferred_instance_that_is_alive_but_broken(keeping: Keeping) -> None:
    clock = SystemClock()
    keeping.work[FIRST].broken = True
    keeping.start(FIRST)
    word, epoch = keeping.work[FIRST].next()
    assert word == "begin"
    assert keeping.work[FIRST].next()[0] == "drain"
    failed_at = clock.monotonic()
    keeping.start(SECOND, THIRD)
    eventually(keeping.holders)
    assert clock.monotonic() - failed_at < FREE_SECONDS + 2.5
    (holder,) = keeping.holders()
    assert holder != FIRST
    assert keeping.work[holder].next() > ("begin", epoch)


def test_h04_on_postgres_a_group_that_fails_later_and_one_that_is_no_longer_wanted_go_to_another(keeping: Keeping) -> None:
    keeping.start(FIRST)
    assert keeping.work[FIRST].next()[0] == "begin"
    keeping.start(SECOND)
    keeping.keepers[FIRST].failed(KAFKA, "the cluster is gone")
    assert keeping.work[FIRST].next()[0] == "drain"
    assert keeping.work[SECOND].next()[0] == "begin"
    keeping.alive = {THIRD}
    keeping.start(THIRD)
    keeping.keepers[SECOND].keep(frozenset())
    assert keeping.work[SECOND].next()[0] == "drain"
    assert keeping.work[THIRD].next()[0] == "begin"


async def test_h04_on_postgres_a_holder_hands_over_to_the_preferred_one_and_drains_first(
    keeping: Keeping,
) -> None:
    keeping.alive = {SECOND}
    keeping.start(SECOND)
    assert (await asyncio.to_thread(keeping.work[SECOND].next))[0] == "begin"
    running = asyncio.create_task(keeping.keepers[SECOND].run())
    keeping.alive = {FIRST, SECOND}
    keeping.start(FIRST)
    assert (await asyncio.to_thread(keeping.work[SECOND].next))[0] == "drain"
    assert (await asyncio.to_thread(keeping.work[FIRST].next))[0] == "begin"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert keeping.holders() == [FIRST]


async def test_h04_who_has_ended_keeps_nothing_though_a_thread_still_wants_to(keeping: Keeping) -> None:
    """A thread that was about to keep a group is not cancelled with those that waited for it."""
    keepers = keeping.keepers["a"]
    running = asyncio.create_task(keepers.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    await asyncio.to_thread(keepers.keep, {KAFKA})
    assert keepers._keepers == {}
