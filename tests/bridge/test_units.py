"""Units against a model that looks at everything every time; each invariant under its number."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle as Drawn
from hypothesis.stateful import RuleBasedStateMachine, consumes, invariant, precondition, rule

from trunkline.bridge.units import Job, Units, Waiting
from trunkline.core.bundle import Dependency, Version

V1, V2, V3 = Version(1, 1), Version(1, 2), Version(1, 3)
BASE, DEPENDENT, EVENTS = "clusters", "compliance", "events"
PRIORITY = {BASE: 0, DEPENDENT: 10, EVENTS: 20}


def waiting(
    site: str = "a", type_: str = BASE, version: Version = V1, since: float = 0.0, needs: Version | None = None, key: str = ""
) -> Waiting:
    dependency = Dependency(BASE, needs) if needs else None
    return Waiting(site, type_, key, version, dependency, PRIORITY[type_], since)


def taken(units: Units) -> tuple[str, str, Version] | None:
    job = units.take()
    return (job.site, job.type, job.version) if job else None


def test_u1_one_bundle_in_flight_per_unit() -> None:
    units = Units()
    units.arrived(waiting(type_=BASE))
    units.arrived(waiting(type_=EVENTS, key="e"))
    units.arrived(waiting(site="b"))
    first = units.take()
    assert first is not None
    assert taken(units) == ("b", BASE, V1)
    assert units.take() is None
    units.finished(first, V1)
    assert taken(units) == ("a", EVENTS, V1)


def test_u2_a_dependent_waits_for_its_base_and_is_ready_when_the_ledger_has_it() -> None:
    units = Units()
    units.arrived(waiting(type_=DEPENDENT, needs=V2))
    assert units.take() is None
    units.known("a", BASE, V1)
    assert units.take() is None
    units.known("b", BASE, V3)
    assert units.take() is None
    units.known("a", BASE, V3)
    assert taken(units) == ("a", DEPENDENT, V1)


def test_u3_oldest_first_between_sites_and_a_replaced_entry_keeps_its_place() -> None:
    units = Units()
    units.arrived(waiting(site="young", since=5))
    units.arrived(waiting(site="old", since=1))
    units.arrived(waiting(site="old", version=V2, since=9))
    assert taken(units) == ("old", BASE, V2)
    assert taken(units) == ("young", BASE, V1)


def test_u3_what_arrives_during_its_own_apply_queues_anew() -> None:
    units = Units()
    units.arrived(waiting(site="busy", since=1))
    job = units.take()
    assert job is not None
    units.arrived(waiting(site="other", since=5))
    units.arrived(waiting(site="busy", version=V2, since=6))
    units.finished(job, V1)
    assert taken(units) == ("other", BASE, V1)


def test_u4_priority_inside_a_site_then_age_then_version() -> None:
    units = Units()
    units.arrived(waiting(type_=EVENTS, key="late", since=3))
    units.arrived(waiting(type_=EVENTS, key="second", version=V2, since=2))
    units.arrived(waiting(type_=EVENTS, key="first", version=V1, since=2))
    units.arrived(waiting(type_=BASE, since=9))
    order = []
    while (job := units.take()) is not None:
        order.append((job.type, job.key))
        units.finished(job, job.version)
    assert order == [(BASE, ""), (EVENTS, "first"), (EVENTS, "second"), (EVENTS, "late")]


def test_h38_a_dependent_of_the_applied_base_goes_before_the_newer_base() -> None:
    units = Units()
    units.known("a", BASE, V1)
    units.arrived(waiting(version=V2))
    units.arrived(waiting(type_=DEPENDENT, needs=V1, since=1))
    assert taken(units) == ("a", DEPENDENT, V1)


def test_u5_a_newer_version_in_flight_stays_and_starts_without_failed_tries() -> None:
    units = Units()
    units.arrived(waiting())
    job = units.take()
    assert job is not None
    units.failed(job, retry_at=1.0)
    units.tick(1.0)
    again = units.take()
    assert again is not None
    assert again.tries == 1
    units.arrived(waiting(version=V2))
    units.failed(again, retry_at=2.0)
    newer = units.take()
    assert newer == Job("a", BASE, "", V2, 0)


def test_a_failed_job_is_not_offered_before_its_time() -> None:
    units = Units()
    units.arrived(waiting())
    job = units.take()
    assert job is not None
    units.failed(job, retry_at=4.0, counts=False)
    units.arrived(waiting())
    units.tick(3.9)
    assert units.take() is None
    assert units.next_retry() == 4.0
    units.tick(4.0)
    assert units.take() == job


def test_applying_a_newer_version_than_was_dispatched_finishes_both() -> None:
    units = Units()
    units.arrived(waiting())
    job = units.take()
    assert job is not None
    units.arrived(waiting(version=V2))
    units.finished(job, V2)
    assert units.take() is None


@dataclass
class Entry:
    waiting: Waiting
    tries: int = 0
    retry_at: float | None = None


class Model:
    """The same rules, said once more without any index."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str, str], Entry] = {}
        self.ledger: dict[tuple[str, str], Version] = {}
        self.flying: dict[str, Job] = {}
        self.now = 0.0

    def known(self, site: str, type_: str, version: Version) -> None:
        self.ledger[site, type_] = max(version, self.ledger.get((site, type_), version))

    def arrived(self, w: Waiting) -> None:
        slot = (w.site, w.type, w.key)
        before = self.entries.get(slot)
        if before and before.waiting.version >= w.version:
            return
        if before and not self._flies(before.waiting):
            w = replace(w, since=min(w.since, before.waiting.since))
        self.entries[slot] = Entry(w)

    def _flies(self, w: Waiting) -> bool:
        job = self.flying.get(w.site)
        return job is not None and (job.type, job.key, job.version) == (w.type, w.key, w.version)

    def _ready(self, entry: Entry) -> bool:
        needs = entry.waiting.dependency
        base = self.ledger.get((entry.waiting.site, needs.type)) if needs else None
        met = needs is None or (base is not None and base >= needs.version)
        return met and entry.waiting.site not in self.flying and (entry.retry_at is None or entry.retry_at <= self.now)

    def take(self) -> Job | None:
        ready = [e for e in self.entries.values() if self._ready(e)]
        if not ready:
            return None
        site = min((e.waiting.since, e.waiting.site) for e in ready)[1]
        chosen = min((e for e in ready if e.waiting.site == site), key=self._rank)
        w = chosen.waiting
        chosen.retry_at = None
        self.flying[site] = Job(site, w.type, w.key, w.version, chosen.tries)
        return self.flying[site]

    def _rank(self, entry: Entry) -> tuple[object, ...]:
        w = entry.waiting
        exact = w.dependency is not None and self.ledger.get((w.site, w.dependency.type)) == w.dependency.version
        return (not exact, w.priority, w.since, w.version, (w.type, w.key))

    def finished(self, job: Job, applied: Version | None) -> None:
        del self.flying[job.site]
        slot = (job.site, job.type, job.key)
        if slot in self.entries and self.entries[slot].waiting.version <= max(job.version, applied or job.version):
            del self.entries[slot]
        if applied:
            self.known(job.site, job.type, applied)

    def failed(self, job: Job, retry_at: float, counts: bool) -> None:
        del self.flying[job.site]
        entry = self.entries.get((job.site, job.type, job.key))
        if entry and entry.waiting.version == job.version:
            entry.tries, entry.retry_at = job.tries + counts, retry_at


SITES = st.sampled_from(["a", "b", "c"])
VERSIONS = st.builds(Version, st.just(1), st.integers(1, 6))
SLOTS = st.sampled_from([(BASE, ""), (DEPENDENT, ""), (EVENTS, "x"), (EVENTS, "y")])


class UnitsFollowTheModel(RuleBasedStateMachine):
    jobs = Drawn("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.units, self.model = Units(), Model()

    @rule(site=SITES, slot=SLOTS, version=VERSIONS, needs=st.none() | VERSIONS, since=st.integers(0, 9))
    def arrived(self, site: str, slot: tuple[str, str], version: Version, needs: Version | None, since: int) -> None:
        type_, key = slot
        w = waiting(site, type_, version, float(since), needs if type_ == DEPENDENT else None, key)
        self.units.arrived(w)
        self.model.arrived(w)

    @rule(site=SITES, version=VERSIONS)
    def known(self, site: str, version: Version) -> None:
        self.units.known(site, BASE, version)
        self.model.known(site, BASE, version)

    @precondition(lambda self: len(self.model.flying) < 3)
    @rule(target=jobs)
    def take(self) -> Job | None:
        job = self.units.take()
        assert job == self.model.take()
        return job

    @rule(job=consumes(jobs), ahead=st.none() | st.integers(0, 2))
    def finished(self, job: Job | None, ahead: int | None) -> None:
        if job is not None:
            applied = Version(1, job.version.generation + ahead) if ahead is not None else None
            self.units.finished(job, applied)
            self.model.finished(job, applied)

    @rule(job=consumes(jobs), delay=st.integers(0, 3), counts=st.booleans())
    def failed(self, job: Job | None, delay: int, counts: bool) -> None:
        if job is not None:
            self.units.failed(job, self.model.now + delay, counts)
            self.model.failed(job, self.model.now + delay, counts)

    @rule(seconds=st.integers(1, 3))
    def time_passes(self, seconds: int) -> None:
        self.model.now += seconds

    @invariant()
    def clocks_agree(self) -> None:
        self.units.tick(self.model.now)


UnitsFollowTheModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestUnitsFollowTheModel = UnitsFollowTheModel.TestCase


def test_u6_the_cost_of_a_job_does_not_grow_with_the_number_of_sites() -> None:
    """Counted in comparisons of ranks, not in seconds."""

    class Since(float):
        compared = 0

        def __lt__(self, other: float) -> bool:
            Since.compared += 1
            return float(self) < float(other)

    def comparisons(sites: int) -> int:
        units = Units()
        for n in range(sites):
            units.arrived(waiting(site=f"s{n:05}", since=Since(n)))
        Since.compared = 0
        for _ in range(100):
            job = units.take()
            assert job is not None
            units.finished(job, job.version)
        return Since.compared

    assert comparisons(10_000) < 4 * comparisons(200)
