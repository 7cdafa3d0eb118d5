"""A quota holds exactly over all instances, wherever the events are, on a clock that is turned by hand."""

from __future__ import annotations

import math
from collections import Counter, deque

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trunkline.routes.quota import LINE, SPARE, Limiter, Lot, Quota, Shelf, grab

STEP = 0.005


class Site:
    """Instances with events that wait, in front of one bucket that answers after `latency` seconds."""

    def __init__(self, quota: Quota, instances: int = 3, latency: float = 0.0, deadline: float = 5.0) -> None:
        self.now, self.latency, self.deadline = 1000.0, latency, deadline
        self.limiters = [Limiter(quota) for _ in range(instances)]
        self.waiting: list[deque[float]] = [deque() for _ in range(instances)]
        self.passed: list[tuple[float, int]] = []
        self.nacked = self.visits = 0
        self._shelf: Shelf | None = None
        self._answers: dict[int, tuple[float, Lot]] = {}

    def offer(self, at: int, count: int) -> None:
        self.waiting[at] += [self.now] * count

    def work(self) -> None:
        """All that happens in this instant."""
        for at in range(len(self.limiters)):
            self._hear(at)
            while self._pass(at) and self._asks(at) and not self.latency:
                self._hear(at)

    def run(self, seconds: float, **offers: float) -> None:
        """`i0=50.0`: fifty events per second come to the first instance meanwhile."""
        begun, offered = self.now, Counter[str]()
        for step in range(round(seconds / STEP)):
            self.now = begun + step * STEP
            for name, rate in offers.items():
                due = int((step + 1) * STEP * rate) - offered[name]
                offered[name] += due
                self.offer(int(name[1:]), due)
            self.work()
        self.now = begun + seconds

    def count(self, since: float, until: float, at: int | None = None) -> int:
        return sum(since <= when < until and at in (None, who) for when, who in self.passed)

    def _pass(self, at: int) -> bool:
        waiting = self.waiting[at]
        while waiting and self.now >= waiting[0] + self.deadline:
            waiting.popleft()
            self.nacked += 1
        taken = self.limiters[at].take(len(waiting), self.now)
        self.passed += [(self.now, at)] * taken
        for _ in range(taken):
            waiting.popleft()
        return bool(waiting)

    def _asks(self, at: int) -> bool:
        wanted = None if at in self._answers else self.limiters[at].ask(len(self.waiting[at]), self.now)
        if wanted is not None:
            self.visits += 1
            self._shelf, lot = grab(self._shelf, self.limiters[at].quota, wanted, self.now)
            self._answers[at] = (self.now + self.latency, lot)
        return wanted is not None

    def _hear(self, at: int) -> None:
        if at in self._answers and self._answers[at][0] <= self.now:
            _, lot = self._answers.pop(at)
            self.limiters[at].answered(lot, self.now)


def excess(passed: list[tuple[float, int]], rate: float, latency: float) -> float:
    """By how many events the fullest of all windows exceeds the quota and its burst."""
    worst, least = -1e9, 1e9
    for n, (when, _) in enumerate(passed):
        least = min(least, n - rate * when)
        worst = max(worst, n + 1 - rate * when - least)
    return worst - rate * (max(1.0, 1 / rate) + SPARE + latency)


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("latency", [0.0, 0.02])
def test_s33_all_traffic_at_one_instance_gets_the_whole_quota_and_no_more(instances: int, latency: float) -> None:
    site = Site(Quota(10.0), instances, latency)
    site.run(1.0, i0=50)  # the burst after idling
    site.run(60.0, i0=50)
    assert 9 * 60 <= site.count(1001, 1061) <= 10 * 60
    assert excess(site.passed, 10, latency) <= 1


@pytest.mark.parametrize("told", ["all", "one"])
@pytest.mark.parametrize("rate", [20.0, 4.0])
def test_s33_a_change_is_effective_everywhere_within_a_second(told: str, rate: float) -> None:
    site = Site(Quota(10.0))
    site.run(5.0, i0=30, i1=30, i2=30)
    for limiter in site.limiters if told == "all" else site.limiters[:1]:
        limiter.change(Quota(rate, stamp=1.0))
    site.run(1.0, i0=30, i1=30, i2=30)
    assert [limiter.quota.per_second for limiter in site.limiters] == [rate] * 3
    site.run(20.0, i0=30, i1=30, i2=30)
    assert 20 * rate * 0.95 <= site.count(1006, 1026) <= 20 * rate + 1
    for at in range(3):
        assert site.count(1006, 1026, at) >= 20 * rate / 3 * 0.8


def test_s33_after_a_minute_of_idling_a_burst_of_one_seconds_quota_passes_at_once() -> None:
    site = Site(Quota(1000.0))
    site.run(2.0, i0=1200)
    site.waiting[0].clear()
    site.run(60.0)
    before = len(site.passed)
    site.offer(1, 1000)
    site.work()
    assert len(site.passed) - before == 1000
    assert site.nacked == 0


def test_s33_after_idling_nothing_is_refused_though_the_bucket_is_slow() -> None:
    site = Site(Quota(1000.0), latency=0.02)
    site.run(60.0)
    site.offer(1, 1000)
    site.run(0.2)
    assert len(site.passed) == 1000
    site.run(10.0)
    assert site.nacked == 0


def test_s33_a_quota_of_0_lets_nothing_pass_and_none_everything() -> None:
    site = Site(Quota(0.0))
    site.run(10.0, i0=10)
    assert site.passed == []
    assert site.visits <= 11, "it listens for a change once a second"
    free = Site(Quota(None))
    free.run(1.0, i0=5000)
    assert len(free.passed) == 5000
    assert free.visits == 0


def test_s33_an_instance_that_holds_a_quota_of_0_hears_from_the_bucket_that_it_is_over() -> None:
    site = Site(Quota(0.0))
    site.run(3.0, i0=10)
    site.limiters[1].change(Quota(10.0, 1.0))
    site.offer(1, 1)
    site.run(1.1, i0=10)
    assert site.limiters[0].quota.per_second == 10
    assert site.count(1003, 1005, 0) > 0


def test_what_is_older_than_the_quota_that_counts_changes_nothing() -> None:
    limiter = Limiter(Quota(5.0, stamp=7.0))
    assert not limiter.change(Quota(50.0, stamp=6.0))
    assert limiter.quota == Quota(5.0, 7.0)
    shelf, _ = grab(None, Quota(5.0, 7.0), 1, 0.0)
    _, lot = grab(shelf, Quota(50.0, 6.0), 1, 0.0)
    assert lot.quota == Quota(5.0, 7.0)


def test_without_events_nobody_asks_and_with_many_the_bucket_is_asked_seldom() -> None:
    idle = Site(Quota(10.0))
    idle.run(10.0)
    assert idle.visits == 0
    busy = Site(Quota(10_000.0), instances=1)
    busy.run(2.0, i0=8_000)
    assert len(busy.passed) == 16_000
    assert busy.visits <= 2 / 0.04


def test_one_event_now_and_then_costs_one_slot_each() -> None:
    """What is asked for beyond that would be lost to the others."""
    site = Site(Quota(10.0))
    site.run(20.0, i0=100, i1=1, i2=1)
    assert site.count(1001, 1020) >= 9.5 * 19
    assert site.count(1001, 1020, 1) >= 18
    assert site.count(1001, 1020, 2) >= 18


def test_a_time_that_jumps_back_stops_nobody_for_long() -> None:
    shelf, _ = grab(None, Quota(10.0), 10, 100_000.0)
    shelf, lot = grab(shelf, Quota(10.0), 10, 50.0)
    assert lot.count == 0
    _, lot = grab(shelf, Quota(10.0), 10, 50.0 + LINE * 0.1)
    assert lot.count > 0


def test_slots_that_are_held_too_long_are_lost() -> None:
    limiter = Limiter(Quota(10.0))
    limiter.answered(Lot(Quota(10.0), 10, -0.9), now=0.0)
    assert limiter.take(2, 0.0) == 2
    assert limiter.take(10, 0.5) == 6, "of those that are left the ones of the last second"
    limiter.answered(Lot(Quota(10.0), 10, -0.9), now=1.0)
    assert limiter.take(10, 2.1) == 0


def test_slots_of_a_quota_that_is_over_are_worth_nothing() -> None:
    limiter = Limiter(Quota(10.0))
    limiter.answered(Lot(Quota(10.0), 10, -0.9), now=0.0)
    limiter.change(Quota(20.0, 1.0))
    assert limiter.take(10, 0.0) == 0
    limiter.answered(Lot(Quota(10.0), 10, -0.9), now=0.0)
    assert limiter.take(10, 0.0) == 0


@pytest.mark.parametrize("latency", [0.04, 0.2, 0.9])
def test_a_slow_bucket_only_delays(latency: float) -> None:
    site = Site(Quota(1000.0), latency=latency)
    site.run(20.0, i0=50)
    assert len(site.passed) >= 50 * (20 - 2 * latency) - 1
    assert site.nacked == 0


RATES = st.sampled_from([0.3, 1.0, 1.7, 10.0, 33.3, 250.0])
OFFERS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60), st.floats(0.0, 1.5)), min_size=1, max_size=25)


@settings(max_examples=60)
@given(RATES, OFFERS, st.sampled_from([0.0, 0.01, 0.3]), st.sampled_from([0.02, 5.0]))
@example(10.0, [(at, 60, pause) for pause in (1.5, 0.005) for at in range(3)], 0.3, 0.02)
def test_n1_no_window_sees_more_than_quota_and_burst(
    rate: float, offers: list[tuple[int, int, float]], latency: float, deadline: float
) -> None:
    """Also when those who asked have gone by the time of the answer."""
    site = Site(Quota(rate), latency=latency, deadline=deadline)
    for at, count, pause in offers:
        site.offer(at, count)
        site.run(pause)
    assert excess(site.passed, rate, latency + STEP) <= 1 + 1e-3


@settings(max_examples=25)
@given(RATES, st.integers(2, 5), st.sampled_from([0.0, 0.01]))
def test_n4_who_comes_waits_for_at_most_a_turn_of_each_other(rate: float, instances: int, latency: float) -> None:
    site = Site(Quota(rate), instances, latency, deadline=math.inf)
    turn = max(0.1, 1 / rate)
    greedy = {f"i{at}": 3 * rate for at in range(1, instances)}
    site.run(1 + 2 * turn, **greedy)
    site.offer(0, 1)
    since = site.now
    site.run((instances + 1) * turn + 2 * latency + 2 * STEP, **greedy)
    assert site.count(since, site.now, 0) == 1


@settings(max_examples=12)
@given(RATES.filter(lambda rate: rate >= 10), st.integers(1, 5))
def test_n4_those_who_all_want_more_get_equal_parts_and_together_all(rate: float, instances: int) -> None:
    site = Site(Quota(rate), instances)
    offers = {f"i{at}": 2 * rate for at in range(instances)}
    site.run(2.0, **offers)
    since = site.now
    site.run(5.0, **offers)
    assert site.count(since, site.now) >= 0.95 * 5 * rate - 1
    for at in range(instances):
        assert site.count(since, site.now, at) >= 0.8 * 5 * rate / instances - 1
