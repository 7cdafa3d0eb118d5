"""Units against a model that looks at everything every time, call by call, and each invariant under its number."""

from __future__ import annotations

import random

import pytest
from bridge_units import ASIDE, BASE, DELTA, EXACT, HYBRID, KINDS, LOOSE, v, waiting
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from units_model import Model

from trunkline.bridge.units import Job, Units, Waiting
from trunkline.core.bundle import Mode, Version

SITES = st.sampled_from(["a", "b", "c"])
DEPENDENT = (EXACT, LOOSE, DELTA, ASIDE)
WHICH = st.integers(0, 9)
ENTRIES = st.tuples(
    st.sampled_from(list(KINDS)), st.integers(1, 6), st.none() | st.integers(1, 4), st.integers(0, 3), st.integers(1, 12),
    st.booleans(),
)  # fmt: skip
"""type, version, what it needs, age, arrival, whether it restores"""


class UnitsFollowTheModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.units, self.model = Units(), Model(0.0)
        self.jobs: list[Job] = []

    @initialize(linger=st.sampled_from([0.0, 0.0, 2.0]))
    def begin(self, linger: float) -> None:
        self.units, self.model = Units(linger), Model(linger)

    @rule(site=SITES, entries=st.lists(ENTRIES, min_size=1, max_size=5), burst=st.booleans())
    def arrived(self, site: str, entries: list[tuple[str, int, int | None, int, int, bool]], burst: bool) -> None:
        for type_, version, needs, age, arrival, restores in entries:
            w = waiting(
                type_, version, site=site, since=self.model.now - (0 if burst else age), arrival=arrival,
                needs=needs if type_ in DEPENDENT else None, restores=restores and type_ == HYBRID,
            )  # fmt: skip
            self.units.arrived(w)
            self.model.arrived(w)

    @rule(site=SITES, type_=st.sampled_from([BASE, EXACT]), version=st.integers(1, 5))
    def known(self, site: str, type_: str, version: int) -> None:
        self.units.known(site, type_, v(version))
        self.model.known(site, type_, v(version))

    @rule(site=SITES, type_=st.sampled_from([DELTA, HYBRID, BASE]))
    def hold(self, site: str, type_: str) -> None:
        self.units.hold(site, type_)
        self.model.held.add((site, type_))

    @precondition(lambda self: self.model.held)
    @rule(which=WHICH)
    def release(self, which: int) -> None:
        site, type_ = sorted(self.model.held)[which % len(self.model.held)]
        self.units.release(site, type_)
        self.model.held.discard((site, type_))

    @rule(most=st.integers(1, 4))
    def take(self, most: int) -> None:
        expected = self.model.take(most)
        assert self.units.take(self.model.now, most) == expected
        self.jobs += expected.jobs if expected else ()

    @rule(most=st.integers(1, 4), rounds=st.integers(1, 6))
    def work(self, most: int, rounds: int) -> None:
        """Workers that are at it: each wave is applied as it was taken."""
        for _ in range(rounds):
            already = len(self.jobs)
            self.take(most)
            for job in self.jobs[already:]:
                self._finish(job, job.version, None)
            del self.jobs[already:]

    @precondition(lambda self: self.jobs)
    @rule(which=WHICH, ahead=st.none() | st.integers(0, 2), upto=st.none() | st.integers(1, 12))
    def finished(self, which: int, ahead: int | None, upto: int | None) -> None:
        job = self.jobs.pop(which % len(self.jobs))
        applied = v(job.version.generation + ahead) if ahead is not None else None
        self._finish(job, applied, None if job.mode is Mode.COMPLETE else upto)

    def _finish(self, job: Job, applied: Version | None, upto: int | None) -> None:
        self.units.finished(job, applied, applied, upto)
        self.model.finished(job, applied, applied, upto)

    @precondition(lambda self: self.jobs)
    @rule(which=WHICH, delay=st.integers(0, 3), counts=st.booleans())
    def failed(self, which: int, delay: int, counts: bool) -> None:
        job = self.jobs.pop(which % len(self.jobs))
        self.units.failed(job, self.model.now + delay, counts)
        self.model.failed(job, self.model.now + delay, counts)

    @rule(site=SITES)
    def forget(self, site: str) -> None:
        self.units.forget(site)
        self.model.forget(site)

    @rule(each=st.integers(2, 5))
    def scan(self, each: int) -> None:
        """One of `each` left the inbox without a job."""
        entries = [entry for slot in self.model.slots.values() for entry in slot.entries]
        gone = {_named(entry) for entry in entries[::each]}
        self.units.scan_begins()
        for entry in entries:
            if _named(entry) not in gone:
                self.units.arrived(entry)
        self.units.scan_ends()
        self.model.left(gone)

    @rule(seconds=st.integers(1, 3))
    def time_passes(self, seconds: int) -> None:
        self.model.now += seconds

    @invariant()
    def the_same_things_wait_in_the_same_places(self) -> None:
        self.units.tick(self.model.now)
        places = list(self.model.places().values())
        counted = {place: places.count(place) for place in ("ready", "parked", "delayed")}
        assert self.units.sizes() == counted | {"flying": len(self.model.flying()), "units": len(self.model.turns)}
        at = self.model.places()
        queues = [(of, slot) for of, slot in self.model.slots.items() if KINDS[of[1]].mode is not Mode.COMPLETE]
        assert self.units.backlog() == sum(len(slot.entries) for of, slot in queues if at[of] != "parked")

    @invariant()
    def u1_at_most_one_job_of_a_unit_is_in_flight(self) -> None:
        units = [(job.site, job.group) for job in self.jobs]
        assert len(units) == len(set(units))

    @invariant()
    def u8_the_next_time_to_look_is_told(self) -> None:
        now, places = self.model.now, self.model.places()
        dues = [self.model.due(of, head) for of in places if places[of] == "delayed" and (head := self.model.head(of))]
        expected = now if self.model.ready() else min(dues, default=None)
        assert self.units.next_due(now) == expected


def _named(entry: Waiting) -> tuple[str, str, int, Version]:
    return entry.site, entry.type, entry.arrival, entry.version


UnitsFollowTheModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestUnitsFollowTheModel = UnitsFollowTheModel.TestCase


@pytest.mark.parametrize("linger", [0.0, 2.0])
def test_units_follow_the_model_through_a_long_day(linger: float) -> None:
    """The same machine, longer and with more sites than examples that are to be made small can be."""
    chance = random.Random(linger)
    machine = UnitsFollowTheModel()
    machine.begin(linger)
    for step in range(2_000):
        era, site, which = step // 40, f"s{chance.randrange(8)}", chance.randrange(10)
        match chance.randrange(40):
            case 0:
                machine.forget(site)
            case 1:
                machine.scan(chance.randrange(2, 6))
            case 2:
                machine.hold(site, chance.choice([DELTA, HYBRID]))
            case 3 | 4 if machine.model.held:
                machine.release(which)
            case 5 | 6:
                machine.known(site, chance.choice([BASE, EXACT]), era + chance.randrange(4))
            case 7 | 8 | 9 | 10:
                machine.time_passes(1)
            case 11 | 12 | 13 | 14 | 15 | 16:
                machine.take(1 + which // 2)
            case 17 | 18 | 19 if machine.jobs:
                machine.failed(which, chance.randrange(4), chance.random() < 0.7)
            case 20 | 21 | 22 | 23 | 24 | 25 if machine.jobs:
                machine.finished(which, chance.choice([None, 0, 0, 1]), chance.choice([None, 3 * step - chance.randrange(60)]))
            case 26 | 27 | 28:
                machine.work(3, 2)
            case _:
                machine.arrived(site, [_any_entry(chance, era, 3 * step + n) for n in range(3)], burst=which < 3)
        machine.the_same_things_wait_in_the_same_places()
        machine.u1_at_most_one_job_of_a_unit_is_in_flight()
        machine.u8_the_next_time_to_look_is_told()


def _any_entry(chance: random.Random, era: int, arrival: int) -> tuple[str, int, int | None, int, int, bool]:
    needs = chance.choice([None, *range(era, era + 4)])
    late = chance.choice([0, 0, 0, 10])
    return chance.choice(list(KINDS)), era + chance.randrange(6), needs, chance.randrange(5), arrival - late, late > 0
