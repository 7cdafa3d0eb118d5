"""A whole bridge in memory around the units. However its workers and notices are timed, what it comes to must be what a
sequential reader of the same bundles comes to, with nothing left waiting."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import takewhile

import pytest
from bridge_units import ASIDE, BASE, DELTA, EVENTS, EXACT, HYBRID, KINDS, LOOSE, v, waiting
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline.bridge.units import Job, Units, Waiting
from trunkline.core.bundle import Mode, Version

MOST_TRIES = 3
LONGEST_RUN = 3


@dataclass(frozen=True)
class Row:
    entry: Waiting
    poison: bool


@dataclass
class State:
    """What is applied. Complete types: the version; others: arrivals, of a delta those on the base that is applied."""

    ledger: dict[tuple[str, str], Version] = field(default_factory=dict)
    held: set[tuple[str, str]] = field(default_factory=set)
    rows: defaultdict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))

    def apply(self, entry: Waiting) -> None:
        of = (entry.site, entry.type)
        self.ledger[of] = entry.version
        if entry.mode is Mode.COMPLETE or entry.restores:
            self.rows[of] = []
        self.rows[of].append(entry.arrival)
        if entry.restores:
            self.held.discard(of)
        if entry.type == EXACT:
            self.rows[entry.site, DELTA] = []
            self.held.discard((entry.site, DELTA))

    def base(self, entry: Waiting) -> Version | None:
        return self.ledger.get((entry.site, entry.base or ""))

    def is_met(self, entry: Waiting) -> bool:
        return entry.dependency is None or entry.match.is_met(self.base(entry), entry.dependency)

    def is_outdated(self, entry: Waiting) -> bool:
        return entry.dependency is not None and entry.match.is_outdated(self.base(entry), entry.dependency)


def sequential(history: list[Row]) -> State:
    """Each bundle in the order it came, as soon as it may be applied; one at a time."""
    state, waits = State(), list[Row]()
    for row in history:
        if row.entry.mode is Mode.COMPLETE:
            waits = [w for w in waits if (w.entry.site, w.entry.type) != (row.entry.site, row.entry.type)]
        waits.append(row)
        while next_ := next((w for w in waits if _moves(state, w)), None):
            waits.remove(next_)
            _settle(state, next_)
    assert not waits
    return state


def _moves(state: State, row: Row) -> bool:
    held = (row.entry.site, row.entry.type) in state.held
    if row.entry.type == DELTA and held:
        return False
    return state.is_met(row.entry) or state.is_outdated(row.entry)


def _settle(state: State, row: Row) -> None:
    of = (row.entry.site, row.entry.type)
    lost_before = of in state.held and not row.entry.restores
    if lost_before or state.is_outdated(row.entry):
        return
    if not row.poison:
        state.apply(row.entry)
    elif row.entry.mode.is_ordered:
        state.held.add(of)


class Bridge:
    """`prompt`: all that is taken in is noticed at once, and a worker reads what there is when it takes the job."""

    def __init__(self, prompt: bool, linger: float) -> None:
        self.prompt = prompt
        self.units = Units(linger)
        self.state = State()
        self.inbox: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
        self.history: list[Row] = []
        self.notices: list[Waiting] = []
        self.flights: list[tuple[Job, list[Row] | None]] = []
        self.sent: dict[tuple[str, str], int] = {}
        self.now = 0.0

    def send(self, site: str, type_: str, ahead: bool = False, poison: bool = False, restores: bool = False) -> None:
        """`ahead`: made for the version of its base that is only sent later."""
        version = self.sent[site, type_] = self.sent.get((site, type_), 0) + 1
        base = KINDS[type_].base
        needs = self.sent.get((site, base), 0) + ahead if base else None
        arrival = len(self.history) + 1
        entry = waiting(type_, version, site=site, since=self.now, needs=needs, arrival=arrival, restores=restores)
        row = Row(entry, poison)
        self.history.append(row)
        waits = [] if entry.mode is Mode.COMPLETE else self.inbox[site, type_]
        self.inbox[site, type_] = [*waits, row]
        self.notices.append(entry)
        if self.prompt:
            self.notice(0)

    def notice(self, which: int) -> None:
        if self.notices:
            self.units.arrived(self.notices.pop(which % len(self.notices)))

    def take(self, most: int) -> bool:
        wave = self.units.take(self.now, most)
        for job in wave.jobs if wave else ():
            self.flights.append((job, list(self.inbox[job.site, job.type]) if self.prompt else None))
        return wave is not None

    def land(self, which: int) -> None:
        if self.flights:
            job, read = self.flights.pop(which % len(self.flights))
            rows = list(self.inbox[job.site, job.type]) if read is None else read
            (self._complete if job.mode is Mode.COMPLETE else self._queue)(job, rows)

    def _complete(self, job: Job, rows: list[Row]) -> None:
        if not rows:
            assert not self.prompt
            self.units.finished(job, None, None)
            return
        entry = rows[0].entry
        if self.state.is_outdated(entry):
            self._leave(rows)
            self.units.finished(job, None, None)
        elif not self.state.is_met(entry):
            assert entry.version > job.version, "U2"
            self.units.finished(job, None, None)
        elif rows[0].poison:
            self._poison(job, rows[0])
        else:
            self._apply(job, rows)

    def _queue(self, job: Job, rows: list[Row]) -> None:
        if (job.site, job.type) in self.state.held and job.mode.is_ordered:
            rows = self._from_what_restores(rows)
        if not rows or not (self.state.is_met(rows[0].entry) or self.state.is_outdated(rows[0].entry)):
            assert not self.prompt, "U2"
            waits = self.inbox[job.site, job.type]
            self.units.finished(job, None, None, waits[0].entry.arrival - 1 if waits else None)
        elif self.state.is_outdated(rows[0].entry):
            self._leave(rows[:1])
            self.units.finished(job, None, None, rows[0].entry.arrival)
        elif rows[0].poison:
            self._poison(job, rows[0])
        else:
            self._apply(job, _run(rows))

    def _from_what_restores(self, rows: list[Row]) -> list[Row]:
        first = next((n for n, row in enumerate(rows) if row.entry.restores), len(rows))
        if first < len(rows) and not rows[first].poison:
            self._leave(rows[:first])
        return rows[first:]

    def _poison(self, job: Job, row: Row) -> None:
        if job.tries + 1 < MOST_TRIES:
            self.units.failed(job, self.now + 1)
            return
        self._leave([row])
        if job.mode.is_ordered:
            self.state.held.add((job.site, job.type))
            self.units.hold(job.site, job.type)
        self.units.finished(job, None, None, row.entry.arrival)

    def _apply(self, job: Job, rows: list[Row]) -> None:
        for row in rows:
            self.state.apply(row.entry)
        self._leave(rows)
        for type_ in (DELTA, HYBRID):
            if (job.site, type_) not in self.state.held:
                self.units.release(job.site, type_)
        last = rows[-1].entry
        self.units.finished(job, last.version, last.version, last.arrival)

    def _leave(self, rows: list[Row]) -> None:
        for row in rows:
            waits = self.inbox[row.entry.site, row.entry.type]
            self.inbox[row.entry.site, row.entry.type] = [w for w in waits if w is not row]

    def waiting(self) -> list[Row]:
        return [row for rows in self.inbox.values() for row in rows]

    def run_dry(self) -> None:
        """All notices come, all jobs land, time passes, until there is nothing to take."""
        while self.notices:
            self.notice(0)
        for _ in range(10_000):
            while self.flights:
                self.land(0)
            if not self.take(2):
                due = self.units.next_due(self.now)
                if due is None:
                    return
                assert due > self.now, "it said that something may be taken"
                self.now = due
        raise AssertionError("the units never come to rest")


def _run(rows: list[Row]) -> list[Row]:
    first = rows[0].entry.dependency
    return list(takewhile(lambda row: not row.poison and row.entry.dependency == first, rows[:LONGEST_RUN]))


def last_word(bridge: Bridge, site: str) -> None:
    """After this nothing of the site may wait for anything."""
    for type_ in (DELTA, EVENTS, EXACT, BASE, HYBRID, LOOSE, ASIDE):
        bridge.send(site, type_, restores=type_ == HYBRID)
    bridge.send(site, EXACT)
    for type_ in (DELTA, HYBRID, DELTA, LOOSE, ASIDE):
        bridge.send(site, type_)


def comes_to_the_same_end(bridge: Bridge) -> None:
    bridge.run_dry()
    assert bridge.waiting() == []
    expected = sequential(bridge.history)
    assert bridge.state.ledger == expected.ledger
    assert dict(bridge.state.rows) == dict(expected.rows)
    assert bridge.state.held == expected.held == set()
    bridge.units.scan_begins()
    bridge.units.scan_ends()
    assert bridge.units.backlog() == 0
    assert not any(bridge.units.sizes().values())


SITES = ("a", "b", "c")
SENDS = st.tuples(st.just("send"), st.sampled_from(SITES), st.sampled_from(list(KINDS)), st.integers(0, 7))
OTHERS = st.tuples(st.sampled_from(["notice", "take", "take", "land", "wait"]), st.integers(0, 5))


def act(bridge: Bridge, action: tuple[str, int] | tuple[str, str, str, int]) -> None:
    match action:
        case ("send", str(site), str(type_), int(how)):
            restores = type_ == HYBRID and how in (1, 5)
            bridge.send(site, type_, ahead=how in (2, 3), poison=how in (3, 4, 5), restores=restores)
        case ("notice", int(which)):
            bridge.notice(which)
        case ("take", int(most)):
            bridge.take(most + 1)
        case ("land", int(which)):
            bridge.land(which)
        case ("wait", int(seconds)):
            bridge.now += seconds


@settings(max_examples=150, deadline=None)
@given(actions=st.lists(SENDS | OTHERS, max_size=60), prompt=st.booleans(), linger=st.sampled_from([0.0, 2.0]))
def test_the_end_is_that_of_a_sequential_reader(actions: list[tuple[str, int]], prompt: bool, linger: float) -> None:
    bridge = Bridge(prompt, linger)
    for action in actions:
        act(bridge, action)
    for site in SITES:
        last_word(bridge, site)
    comes_to_the_same_end(bridge)


@pytest.mark.parametrize("prompt", [True, False])
def test_the_end_is_that_of_a_sequential_reader_after_a_long_day(prompt: bool) -> None:
    chance = random.Random(prompt)
    bridge = Bridge(prompt, 0.0)
    sites = [f"s{n}" for n in range(40)]
    for _ in range(4_000):
        match chance.randrange(8):
            case 0 | 1 | 2 | 3:
                act(bridge, ("send", chance.choice(sites), chance.choice(list(KINDS)), chance.randrange(40)))
            case 4 | 5:
                bridge.notice(chance.randrange(100))
            case 6:
                bridge.take(chance.randrange(1, 20))
            case _:
                bridge.land(chance.randrange(100))
                bridge.now += 1
    for site in sites:
        last_word(bridge, site)
    comes_to_the_same_end(bridge)


def test_what_can_never_be_applied_is_all_that_is_left() -> None:
    bridge = Bridge(prompt=True, linger=0.0)
    bridge.send("a", EXACT, ahead=True)
    bridge.send("a", EVENTS)
    bridge.run_dry()
    assert [row.entry.type for row in bridge.waiting()] == [EXACT]
    assert bridge.units.sizes() == {"ready": 0, "parked": 1, "delayed": 0, "flying": 0, "units": 1}
    bridge.send("a", BASE)
    bridge.run_dry()
    assert bridge.waiting() == []
    assert bridge.state.ledger["a", EXACT] == v(1)
