"""The rules of the units said once more, without any index or queue: whatever is asked is worked out from all there is."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge_units import KINDS
from msgspec.structs import replace

from trunkline.bridge.units import Job, Waiting, Wave
from trunkline.core.bundle import Mode, Version

SlotOf = tuple[str, str]
"""(site, type)"""
UnitOf = tuple[str, str]
"""(site, group)"""


@dataclass
class Slot:
    entries: list[Waiting] = field(default_factory=list)
    turn: int = 0
    failed: tuple[Waiting, int, float] | None = None
    job: Job | None = None
    flown: Waiting | None = None
    newest_flown: int = 0


@dataclass
class Turns:
    now: int = 0
    next: dict[str, int] = field(default_factory=dict)

    def of(self, type_: str) -> int:
        return max(self.now, self.next.get(type_, 0))


class Model:
    def __init__(self, linger: float) -> None:
        self.slots: dict[SlotOf, Slot] = {}
        self.ledger: dict[SlotOf, Version] = {}
        self.held: set[SlotOf] = set()
        self.turns: dict[UnitOf, Turns] = {}
        self.orphans: list[Job] = []
        self.linger, self.now = linger, 0.0

    def known(self, site: str, type_: str, named: Version) -> None:
        self.ledger[site, type_] = max(named, self.ledger.get((site, type_), named))

    def arrived(self, w: Waiting) -> None:
        turns = self.turns.setdefault((w.site, w.group), Turns())
        slot = self.slots.setdefault((w.site, w.type), Slot(turn=turns.of(w.type)))
        if w.mode is Mode.COMPLETE:
            self._replace(slot, w)
        elif all(e.arrival != w.arrival for e in slot.entries):
            slot.entries = sorted([*slot.entries, w], key=lambda e: e.arrival)

    def _replace(self, slot: Slot, w: Waiting) -> None:
        before = slot.entries[0] if slot.entries else None
        if before is None:
            slot.entries = [w]
        elif before.version < w.version:
            flies = slot.job is not None and before.version <= slot.job.version
            slot.entries = [w if flies else replace(w, since=min(w.since, before.since))]

    def left(self, gone: set[tuple[str, str, int, Version]]) -> None:
        """Without a job."""
        for (site, type_), slot in self.slots.items():
            slot.entries = [e for e in slot.entries if (site, type_, e.arrival, e.version) not in gone]
        self._clean()

    def forget(self, site: str) -> None:
        self.orphans += [slot.job for (of, _), slot in self.slots.items() if of == site and slot.job]
        for table in (self.slots, self.ledger, self.turns):
            for key in [key for key in table if key[0] == site]:
                del table[key]  # type: ignore[attr-defined]
        self.held = {key for key in self.held if key[0] != site}

    def head(self, of: SlotOf) -> Waiting | None:
        """What decides about the slot."""
        held = of in self.held and KINDS[of[1]].mode.is_ordered
        return next((e for e in self.slots[of].entries if e.restores or not held), None)

    def is_free(self, w: Waiting) -> bool:
        """Exact or not: a base that is past what an exact one needs never comes back, so a worker may discard it."""
        base = self.ledger.get((w.site, w.base or ""))
        return w.dependency is None or (base is not None and base >= w.dependency)

    def due(self, of: SlotOf, head: Waiting) -> float:
        failed = self.slots[of].failed
        if failed and failed[0] is head:
            return failed[2]
        return head.since + self.linger if self.linger else 0.0

    def flying(self) -> list[Job]:
        return [*self.orphans, *(slot.job for slot in self.slots.values() if slot.job)]

    def places(self) -> dict[SlotOf, str]:
        return {of: self._place(of) for of in self.slots}

    def _place(self, of: SlotOf) -> str:
        head = self.head(of)
        if self.slots[of].job:
            return "flying"
        if head is None or not self.is_free(head):
            return "parked"
        return "delayed" if self.due(of, head) > self.now else "ready"

    def ready(self) -> dict[UnitOf, list[Waiting]]:
        """What may be taken by unit, the best first."""
        busy = {(job.site, job.group) for job in self.flying()}
        by_unit: dict[UnitOf, list[Waiting]] = {}
        places = self.places()
        for of, place in places.items():
            head = self.head(of)
            if place == "ready" and head and (head.site, head.group) not in busy:
                by_unit.setdefault((head.site, head.group), []).append(head)
        return {unit: sorted(heads, key=lambda w: self._rank(w, places)) for unit, heads in by_unit.items()}

    def _rank(self, w: Waiting, places: dict[SlotOf, str]) -> tuple[bool, int, int, float, Version, str]:
        base = (w.site, w.base or "")
        newer_base = places.get(base) == "ready" and KINDS[w.base or ""].group == w.group
        outdated_soon = newer_base and w.dependency is not None and self.ledger.get(base) == w.dependency
        return not outdated_soon, self.slots[w.site, w.type].turn, w.priority, w.since, w.version, w.type

    def take(self, most: int) -> Wave | None:
        ready = self.ready()
        if not ready:
            return None
        by_age = sorted(ready, key=lambda unit: (min(w.since for w in ready[unit]), unit))
        best = ready[by_age[0]][0]
        chosen = [ready[unit][0] for unit in by_age if ready[unit][0].type == best.type][:most]
        return Wave(best.type, best.mode, tuple(self._fly(w) for w in chosen))

    def _fly(self, w: Waiting) -> Job:
        slot, turns = self.slots[w.site, w.type], self.turns[w.site, w.group]
        turns.now, turns.next[w.type] = max(turns.now, slot.turn), slot.turn + 1
        tries = slot.failed[1] if slot.failed and slot.failed[0] is w else 0
        slot.job, slot.flown = Job(w.site, w.group, w.type, "", w.mode, w.version, tries), w
        slot.newest_flown = max(e.arrival for e in slot.entries)
        return slot.job

    def finished(self, job: Job, applied: Version | None, named: Version | None, upto: int | None) -> None:
        slot = self._land(job)
        if slot is None:
            return
        if job.mode is Mode.COMPLETE:
            slot.entries = [e for e in slot.entries if e.version > max(job.version, applied or job.version)]
        else:
            slot.entries = [e for e in slot.entries if e.arrival > (slot.newest_flown if upto is None else upto)]
        if named:
            self.known(job.site, job.type, named)
        self._clean()

    def failed(self, job: Job, retry_at: float, counts: bool) -> None:
        slot = self._land(job)
        if slot is not None and slot.flown is not None:
            slot.failed = (slot.flown, job.tries + counts, retry_at)
            self._clean()

    def _land(self, job: Job) -> Slot | None:
        if job in self.orphans:
            self.orphans.remove(job)
            return None
        slot = self.slots[job.site, job.type]
        slot.job, slot.turn = None, self.turns[job.site, job.group].of(job.type)
        return slot

    def _clean(self) -> None:
        self.slots = {of: slot for of, slot in self.slots.items() if slot.entries or slot.job}
        alive = {(site, KINDS[type_].group) for site, type_ in self.slots}
        self.turns = {unit: turns for unit, turns in self.turns.items() if unit in alive}
