"""Conflation units, ready queue and dispatcher: which bundle a free DB worker takes next.

A *unit* holds what waits of one site: at most one entry per (type, key), the newest. An entry is in one of four places:

    ready     its dependency is met by the ledger: it stands in its unit's order
    parked    its dependency is not met: it waits for the ledger, costs nothing, and is looked at when that type advances
    delayed   it failed: it waits for `tick` to reach its time
    flying    a worker has it

A unit stands in the *ready queue* while it has a ready entry and nothing in flight. `take` is called by a worker that is
free, so the bundle is chosen last (late binding), and only its name: the worker reads the newest there is by then.

Invariants, numbered as the tests number them:

U1  At most one job of a unit is in flight.
U2  A job is handed out only if its dependency is met by the versions told through `known` and `finished`.
U3  Between sites the unit whose ready entry waits longest goes first. An entry that a newer version replaces keeps its
    place, so a busy site is not pushed back for being busy; one that arrives during its own apply queues anew.
U4  Inside a site: a dependent of exactly the applied base first (H38: the newer base would outdate it), then priority,
    then age, then version.
U5  A newer version that arrives in flight stays when the older is finished or fails, and starts with no failed tries.
U6  No call looks at more than one unit, apart from the logarithm of their number.

Times are numbers that the caller compares with each other; nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from trunkline.bridge.ranked import Ranked
from trunkline.core.bundle import Dependency, Version

Slot = tuple[str, str]
"""(type, key)"""
Rank = tuple[bool, int, float, Version]


@dataclass(frozen=True)
class Waiting:
    site: str
    type: str
    key: str
    version: Version
    dependency: Dependency | None
    priority: int
    since: float

    @property
    def slot(self) -> Slot:
        return self.type, self.key


@dataclass(frozen=True)
class Job:
    """`version` is the newest the units knew; the worker may find a newer one."""

    site: str
    type: str
    key: str
    version: Version
    tries: int

    @property
    def slot(self) -> Slot:
        return self.type, self.key


@dataclass
class _Unit:
    waiting: dict[Slot, Waiting] = field(default_factory=dict)
    tries: dict[Slot, int] = field(default_factory=dict)
    dependents: dict[str, set[Slot]] = field(default_factory=dict)
    order: Ranked[Slot, Rank] = field(default_factory=Ranked)
    age: Ranked[Slot, float] = field(default_factory=Ranked)
    job: Job | None = None

    def put(self, entry: Waiting) -> None:
        self.drop(entry.slot)
        self.waiting[entry.slot] = entry
        if entry.dependency is not None:
            self.dependents.setdefault(entry.dependency.type, set()).add(entry.slot)

    def drop(self, slot: Slot) -> None:
        entry = self.waiting.pop(slot, None)
        self.tries.pop(slot, None)
        self.unready(slot)
        if entry is not None and entry.dependency is not None:
            self.dependents[entry.dependency.type].discard(slot)

    def ready(self, slot: Slot, rank: Rank) -> None:
        self.order.put(slot, rank)
        self.age.put(slot, self.waiting[slot].since)

    def unready(self, slot: Slot) -> None:
        self.order.discard(slot)
        self.age.discard(slot)


class Units:
    def __init__(self) -> None:
        self._units: dict[str, _Unit] = {}
        self._ledger: dict[tuple[str, str], Version] = {}
        self._ready: Ranked[str, float] = Ranked()
        self._delayed: Ranked[tuple[str, Slot], float] = Ranked()

    def known(self, site: str, type_: str, version: Version) -> None:
        """The ledger holds this version; an older one than known before changes nothing."""
        before = self._ledger.get((site, type_))
        if before is not None and before >= version:
            return
        self._ledger[site, type_] = version
        unit = self._units.get(site)
        for slot in tuple(unit.dependents.get(type_, ())) if unit else ():
            self._place(site, slot)
        self._queue(site)

    def arrived(self, entry: Waiting) -> None:
        """In the inbox now. Telling it again, or telling an older version, does nothing."""
        unit = self._units.setdefault(entry.site, _Unit())
        before = unit.waiting.get(entry.slot)
        if before is not None and before.version >= entry.version:
            return
        if before is not None and not self._flies(unit, entry.slot):
            entry = replace(entry, since=min(before.since, entry.since))
        self._delayed.discard((entry.site, entry.slot))
        unit.put(entry)
        self._place(entry.site, entry.slot)
        self._queue(entry.site)

    def take(self) -> Job | None:
        first = self._ready.first()
        if first is None:
            return None
        site = first[1]
        unit = self._units[site]
        best = unit.order.first()
        assert best is not None, "a unit in the ready queue has a ready entry"
        slot = best[1]
        unit.job = Job(site, *slot, unit.waiting[slot].version, unit.tries.get(slot, 0))
        unit.unready(slot)
        self._queue(site)
        return unit.job

    def finished(self, job: Job, applied: Version | None) -> None:
        """Its worker is done; `applied` is the version it wrote, None if there was nothing to write."""
        unit = self._land(job)
        entry = unit.waiting.get(job.slot)
        if entry is not None and entry.version <= max(job.version, applied or job.version):
            unit.drop(job.slot)
        if applied is not None:
            self.known(job.site, job.type, applied)
        self._queue(job.site)

    def failed(self, job: Job, retry_at: float, counts: bool = True) -> None:
        """Not before `retry_at` again; a failure that is not the bundle's own does not count as a try."""
        unit = self._land(job)
        entry = unit.waiting.get(job.slot)
        if entry is not None and entry.version == job.version:
            unit.tries[job.slot] = job.tries + counts
            self._delayed.put((job.site, job.slot), retry_at)
        self._queue(job.site)

    def tick(self, now: float) -> None:
        while (first := self._delayed.first()) is not None and first[0] <= now:
            site, slot = first[1]
            self._delayed.discard((site, slot))
            self._place(site, slot)
            self._queue(site)

    def next_retry(self) -> float | None:
        first = self._delayed.first()
        return first[0] if first else None

    def _land(self, job: Job) -> _Unit:
        unit = self._units[job.site]
        assert unit.job == job, "a worker gives back the job it took"
        unit.job = None
        return unit

    def _flies(self, unit: _Unit, slot: Slot) -> bool:
        """The entry itself, not only an older version of it, is with a worker."""
        return unit.job is not None and unit.job.slot == slot and unit.waiting[slot].version == unit.job.version

    def _place(self, site: str, slot: Slot) -> None:
        unit = self._units[site]
        entry = unit.waiting[slot]
        if (site, slot) in self._delayed or self._flies(unit, slot):
            return
        needs = entry.dependency
        base = self._ledger.get((site, needs.type)) if needs else None
        if needs is not None and (base is None or base < needs.version):
            unit.unready(slot)
            return
        outdated_soon = needs is not None and base == needs.version
        unit.ready(slot, (not outdated_soon, entry.priority, entry.since, entry.version))

    def _queue(self, site: str) -> None:
        """The unit's place in the ready queue follows its oldest ready entry."""
        unit = self._units.get(site)
        oldest = unit.age.first() if unit and unit.job is None else None
        if oldest is not None:
            self._ready.put(site, oldest[0])
            return
        self._ready.discard(site)
        if unit is not None and unit.job is None and not unit.waiting:
            del self._units[site]
