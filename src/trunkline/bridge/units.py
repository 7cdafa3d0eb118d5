"""Conflation units, ready queue and dispatcher: which bundles a free DB worker takes next.

A *unit* is one site, or one group of types of it. Inside, each type has a slot (`trunkline.bridge.unit`): complete bundles
the newest one, all others a queue by arrival. A slot stands in one of four places, worked out from its head alone:

    parked    the dependency is not met, or the slot is held: it costs nothing, and is looked at when that changes
    delayed   it failed, or has not lingered long enough: it waits for `tick` to reach its time
    ready     it may be applied
    flying    a worker has it

A unit stands in the *ready queue* of the type it would have applied next, while it has a ready slot and nothing in flight.
`take` is called by a worker that is free, so bundles are chosen last (late binding), and only their names: the worker reads
what there is by then. It is given a *wave*: one type, of as many sites as are ready for it.

Invariants, numbered as the tests number them:

U1  At most one job of a unit is in flight.
U2  A job is handed out only if its dependency is met by the versions told through `known` and `finished`, or can never be
    met again (H38: its worker discards it); and, of a slot that is held, only from a bundle that restores (H37).
U3  Between units the one whose ready bundle waits longest goes first; the rest of a wave follow by age. A complete bundle
    that a newer one replaces keeps its place, so a busy site is not pushed back for being busy; one that arrives during its
    own apply queues anew.
U4  Inside a unit: first a dependent of exactly the applied base while a newer base is ready (H38: that would outdate it). Then
    by turns, so that no type goes again while another was ready all the time. Inside a turn by priority, age, version.
U5  What arrives in flight stays when the job is finished or fails. Failed tries count for the head that failed only.
U6  No call but a scan looks at more than one site, apart from the logarithm of their number; a wave at one for each job.
U7  Nothing is taken before it has lingered, and nothing that failed before its time.
U8  What may be taken is in the ready queue, always: places follow from what is told, never from what was queued before.

Times are numbers of one clock, the caller's; nothing here reads one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import inf

from trunkline.bridge.ranked import Ranked
from trunkline.bridge.types import Match
from trunkline.bridge.unit import Failure, Job, Name, Place, Slot, SlotKey, Waiting, Wave, slot_for
from trunkline.core.bundle import Version

__all__ = ["Job", "Units", "Waiting", "Wave"]

UnitKey = tuple[str, str]
"""(site, group)"""
_ASIDE = (Place.PARKED, Place.DELAYED)
Rank = tuple[bool, int, int, float, Version, SlotKey]


@dataclass
class _Site:
    ledger: dict[str, Version] = field(default_factory=dict)
    slots: dict[SlotKey, Slot] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)

    def advance(self, type_: str, named: Version) -> list[Slot]:
        """The slots that this may set free."""
        before = self.ledger.get(type_)
        if before is not None and before >= named:
            return []
        self.ledger[type_] = named
        return [slot for slot in self.slots.values() if slot.base == type_]

    def is_free(self, head: Waiting) -> bool:
        if head.dependency is None or head.base is None:
            return True
        base = self.ledger.get(head.base)
        return head.match.is_met(base, head.dependency) or head.match.is_outdated(base, head.dependency)

    def _outdated_soon(self, head: Waiting) -> bool:
        if head.dependency is None or head.base is None:
            return False
        newer = self.slots.get((head.base, ""))
        if newer is None or newer.group != head.group or newer.place is not Place.READY:
            return False
        return Match.EXACT.is_met(self.ledger.get(head.base), head.dependency)

    def ranks(self, group: str) -> list[Rank]:
        return [self._rank(slot) for slot in self.slots.values() if slot.group == group and slot.place is Place.READY]

    def _rank(self, slot: Slot) -> Rank:
        head = slot.head
        assert head is not None, "what is ready has a head"
        return not self._outdated_soon(head), slot.turn, head.priority, head.since, head.version, slot.key


@dataclass
class _Unit:
    """`best`: what it would have applied next. `turn`: the latest that was taken. `next_turn`: of types that went already."""

    best: Slot | None = None
    turn: int = 0
    next_turn: dict[SlotKey, int] = field(default_factory=dict)

    def join(self, slot: Slot) -> None:
        slot.turn = max(self.turn, self.next_turn.get(slot.key, 0))

    def went(self, slot: Slot) -> None:
        self.turn = max(self.turn, slot.turn)
        self.next_turn[slot.key] = slot.turn + 1


class Units:
    def __init__(self, linger: float = 0.0) -> None:
        self._linger = linger
        self._now = -inf
        self._sites: dict[str, _Site] = {}
        self._units: dict[UnitKey, _Unit] = {}
        self._flying: dict[UnitKey, Job] = {}
        self._ready: defaultdict[str, Ranked[UnitKey, float]] = defaultdict(Ranked)
        self._delayed: Ranked[tuple[str, SlotKey], float] = Ranked()
        self._places: Counter[Place | None] = Counter()
        self._backlog = 0
        """What waits in slots that are not parked."""
        self._unseen: dict[tuple[str, SlotKey], set[Name]] = {}

    def known(self, site: str, type_: str, named: Version) -> None:
        """The ledger holds this named version; an older one than known before changes nothing."""
        of = self._site(site)
        self._look_again(of, of.advance(type_, named))

    def forget(self, site: str) -> None:
        """The site was deleted. A job of it that is in flight lands without effect."""
        slots = list(self._sites.pop(site, _Site()).slots.values())
        for slot in slots:
            self._stand(slot, None)
        for unit_key in {(site, slot.group) for slot in slots}:
            self._leave_queue(unit_key)
            del self._units[unit_key]

    def arrived(self, entry: Waiting) -> None:
        """In the inbox now. Telling it again, or telling an older version of a complete bundle, does nothing."""
        site, key = self._site(entry.site), entry.slot
        if self._unseen and (unseen := self._unseen.get((entry.site, key))):
            unseen.discard(entry.name)
        slot = site.slots.get(key)
        if slot is None:
            slot = site.slots[key] = slot_for(entry)
            self._units.setdefault((entry.site, entry.group), _Unit()).join(slot)
        if slot.put(entry):
            self._weigh(slot)
            slot.base = entry.base or slot.base
            if slot.place is None or slot.head is not slot.first(slot.type in site.held):
                self._look_again(site, [slot])

    def hold(self, site: str, type_: str) -> None:
        """What came before was lost: bundles of this ordered type wait for one that restores, or for `release`."""
        of = self._site(site)
        of.held.add(type_)
        self._look_again(of, [slot for slot in of.slots.values() if slot.type == type_])

    def release(self, site: str, type_: str) -> None:
        of = self._site(site)
        of.held.discard(type_)
        self._look_again(of, [slot for slot in of.slots.values() if slot.type == type_])

    def take(self, now: float, most: int = 1) -> Wave | None:
        """At most `most` jobs, one at least if anything may be taken."""
        self.tick(now)
        firsts = [(first, type_) for type_, queue in self._ready.items() if (first := queue.first()) is not None]
        if not firsts:
            return None
        (_, longest), type_ = min(firsts)
        queue = self._ready[type_]
        jobs = [self._start(longest)]
        while len(jobs) < most and (first := queue.first()) is not None:
            jobs.append(self._start(first[1]))
        return Wave(type_, jobs[0].mode, tuple(jobs))

    def finished(self, job: Job, applied: Version | None, named: Version | None, upto: int | None = None) -> None:
        """Its worker is done: `applied` and `named` are the version it wrote, None if there was nothing to write. Of a queue
        all arrivals up to `upto` have left the inbox; without it, all that was known when the job was taken."""
        slot = self._land(job)
        if slot is None:
            return
        slot.leave(job, applied, upto)
        site = self._sites[job.site]
        dependents = site.advance(job.type, named) if named is not None else []
        self._look_again(site, [slot, *dependents])

    def failed(self, job: Job, retry_at: float, counts: bool = True) -> None:
        """Not before `retry_at` again; a failure that is not the bundle's own does not count as a try."""
        slot = self._land(job)
        if slot is None:
            return
        if slot.head is not None:
            slot.failure = Failure(slot.head.name, job.tries + counts, retry_at)
        self._look_again(self._sites[job.site], [slot])

    def scan_begins(self) -> None:
        """A scan of the whole inbox begins: all that waits will be told again through `arrived`."""
        self._unseen = {(n, key): slot.names() for n, site in self._sites.items() for key, slot in site.slots.items()}

    def scan_ends(self) -> None:
        """What was there when the scan began, and was not told since, has left the inbox without a job (a cap, an operator)."""
        unseen, self._unseen = self._unseen, {}
        for (name, key), names in unseen.items():
            site = self._sites.get(name)
            slot = site.slots.get(key) if site else None
            if site is not None and slot is not None and names:
                slot.remove(names)
                self._weigh(slot)
                self._look_again(site, [slot])

    def tick(self, now: float) -> None:
        self._now = max(self._now, now)
        while (first := self._delayed.first()) is not None and first[0] <= self._now:
            name, key = first[1]
            site = self._sites[name]
            self._look_again(site, [site.slots[key]])

    def next_due(self, now: float) -> float | None:
        """When `take` may have something; None: only after it is told of something."""
        if any(queue.first() is not None for queue in self._ready.values()):
            return now
        first = self._delayed.first()
        return max(now, first[0]) if first else None

    def backlog(self) -> int:
        """Bundles that wait for workers and are not complete ones: a newer one makes none of them needless. What is parked is
        left out: it waits for something that is yet to be taken in."""
        return self._backlog

    def sizes(self) -> dict[str, int]:
        """Slots by their place, and units that have any."""
        return {str(place): self._places[place] for place in Place} | {"flying": len(self._flying), "units": len(self._units)}

    def _site(self, name: str) -> _Site:
        site = self._sites.get(name)
        if site is None:
            site = self._sites[name] = _Site()
        return site

    def _start(self, unit_key: UnitKey) -> Job:
        unit = self._units[unit_key]
        slot = unit.best
        assert slot is not None, "a unit in the ready queue has a ready slot"
        job = self._flying[unit_key] = slot.fly()
        unit.went(slot)
        self._stand(slot, Place.FLYING)
        self._queue(unit_key)
        return job

    def _land(self, job: Job) -> Slot | None:
        """The slot it was taken from; None if the site was forgotten since."""
        unit_key = (job.site, job.group)
        assert self._flying.get(unit_key) == job, "a worker gives back the job it took"
        del self._flying[unit_key]
        site = self._sites.get(job.site)
        slot = site.slots.get(job.slot) if site else None
        if slot is None or slot.job is None:
            self._queue(unit_key)
            return None
        slot.job = None
        self._units[unit_key].join(slot)
        return slot

    def _look_again(self, site: _Site, slots: list[Slot]) -> None:
        """Brings slots to where they belong now, and their units with them."""
        moved = []
        for slot in slots:
            if slot.job is not None:
                continue
            slot.head = slot.first(slot.type in site.held)
            before, now = slot.place, self._place(site, slot)
            self._stand(slot, now)
            if now is None:
                del site.slots[slot.key]
            if now not in _ASIDE or before not in (None, *_ASIDE):
                moved.append((slot.site, slot.group))
        for unit_key in moved if len(moved) < 2 else set(moved):
            self._queue(unit_key)

    def _place(self, site: _Site, slot: Slot) -> Place | None:
        if slot.head is None:
            return Place.PARKED if slot.backlog else None
        if not site.is_free(slot.head):
            return Place.PARKED
        return Place.DELAYED if self._due(slot, slot.head) > self._now else Place.READY

    def _due(self, slot: Slot, head: Waiting) -> float:
        if slot.failure is not None and slot.failure.of == head.name:
            return slot.failure.retry_at
        return head.since + self._linger if self._linger else -inf

    def _stand(self, slot: Slot, place: Place | None) -> None:
        before, slot.place = slot.place, place
        if before is not place:
            self._places[before] -= 1
            self._places[place] += 1
        self._weigh(slot)
        if place is Place.DELAYED and slot.head is not None:
            self._delayed.put((slot.site, slot.key), self._due(slot, slot.head))
        elif before is Place.DELAYED:
            self._delayed.discard((slot.site, slot.key))

    def _weigh(self, slot: Slot) -> None:
        before, slot.weight = slot.weight, 0 if slot.place in (None, Place.PARKED) else slot.backlog
        self._backlog += slot.weight - before

    def _queue(self, unit_key: UnitKey) -> None:
        """The unit stands in the queue of the type it would have applied next, by the age of its oldest ready bundle."""
        unit = self._units.get(unit_key)
        if unit is None:
            return
        site = self._sites[unit_key[0]]
        ranks = [] if unit_key in self._flying else site.ranks(unit_key[1])
        best = site.slots[min(ranks)[-1]] if ranks else None
        self._leave_queue(unit_key, best.type if best else None)
        unit.best = best
        if best is not None:
            self._ready[best.type].put(unit_key, min(rank[3] for rank in ranks))
        elif not any(slot.group == unit_key[1] for slot in site.slots.values()):
            del self._units[unit_key]

    def _leave_queue(self, unit_key: UnitKey, goes_to: str | None = None) -> None:
        best = self._units[unit_key].best
        if best is not None and best.type != goes_to:
            self._ready[best.type].discard(unit_key)
