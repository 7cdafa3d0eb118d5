"""From a failing history to a small one that fails for the same reason.

First events are taken away, in halves, quarters and so on down to single ones (delta debugging); then what remains is made
simpler: round times, short faults, one message per write, the usual ttl of keys. Both are repeated until nothing more can
go. A smaller history counts only if one of the checks fails that failed at first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from trunkline.core.errors import Invalid
from trunkline.node.sim.faults import KINDS
from trunkline.node.sim.history import EVER, Change, Event, Fault, History, Read, Write, in_order
from trunkline.node.sim.universe import Scenario, Verdict, run_history

Progress = Callable[[int, int], None]
"""Runs so far, and how many events remain."""


@dataclass
class Shrinker:
    scenario: Scenario
    history: History
    checks: frozenset[str]
    on_progress: Progress = lambda runs, events: None
    runs: int = 0
    _seen: set[tuple[Event, ...]] = field(default_factory=set)

    def fails(self, history: History) -> bool:
        if history.events in self._seen and history.loss == self.history.loss:
            return False
        self.runs += 1
        failed = not self.checks.isdisjoint(run_history(self.scenario, history).failed_checks)
        if failed:
            self.history = history
            self._seen.clear()
        else:
            self._seen.add(history.events)
        self.on_progress(self.runs, len(self.history.events))
        return failed

    def shrink(self) -> History:
        self.fails(replace(self.history, loss=0.0))
        while True:
            before = self.history
            self._take_away()
            self._simplify()
            if self.history == before:
                return before

    def _take_away(self) -> None:
        size = max(1, len(self.history.events) // 2)
        while True:
            removed = self._take_away_stretches(size)
            if size == 1 and not removed:
                return
            size = max(1, size // 2) if not removed else min(size, max(1, len(self.history.events) // 2))

    def _take_away_stretches(self, size: int) -> bool:
        """Every stretch of that many events once; True when one could go."""
        removed, start = False, 0
        while start < len(self.history.events):
            events = self.history.events
            if self.fails(replace(self.history, events=events[:start] + events[start + size :])):
                removed = True
            else:
                start += size
        return removed

    def _simplify(self) -> None:
        index = 0
        while index < len(self.history.events):
            events = self.history.events
            others = events[:index] + events[index + 1 :]
            simpler = (replace(self.history, events=in_order([*others, e])) for e in simpler_events(events[index]))
            if not any(self.fails(history) for history in simpler):
                index += 1


def simpler_events(event: Event) -> Iterator[Event]:
    """The most radical first. Each is strictly simpler, so this ends."""
    for at in _rounder(event.at):
        yield replace(event, at=at)
    match event:
        case Fault():
            yield from _simpler_fault(event)
        case Write():
            yield from _simpler_write(event)
        case Change():
            yield from _simpler_change(event)
        case Read():
            yield from (replace(event, most=most) for most in (1,) if event.most > most)


def _simpler_fault(fault: Fault) -> Iterator[Event]:
    for seconds in _rounder(fault.seconds):
        if seconds or not KINDS[fault.kind].seconds:
            yield replace(fault, seconds=seconds)
    for amount in _rounder(fault.amount):
        if amount:
            yield replace(fault, amount=amount)
    if "<>" in fault.subject:
        yield replace(fault, subject=fault.subject.replace("<>", ">"))


def _simpler_write(write: Write) -> Iterator[Event]:
    for n in range(len(write.messages) if len(write.messages) > 1 else 0):
        yield replace(write, messages=write.messages[:n] + write.messages[n + 1 :])
    for n, (client, destinations) in enumerate(write.messages):
        for gone in destinations if len(destinations) > 1 else ():
            fewer = (client, tuple(d for d in destinations if d != gone))
            yield replace(write, messages=(*write.messages[:n], fewer, *write.messages[n + 1 :]))


def _simpler_change(change: Change) -> Iterator[Event]:
    if change.seconds:
        yield replace(change, seconds=0.0)
    if change.seconds != EVER:
        yield from (replace(change, seconds=seconds) for seconds in _rounder(change.seconds) if seconds)


def _rounder(number: float) -> Sequence[float]:
    """The same number with fewer digits."""
    candidates = [round(number, digits) for digits in (-1, 0, 1, 2)]
    return [n for n in dict.fromkeys(candidates) if len(f"{n:g}") < len(f"{number:g}") or (n == 0 and number != 0)]


@dataclass(frozen=True)
class Shrunk:
    history: History
    verdict: Verdict
    runs: int


def shrink(scenario: Scenario, history: History, on_progress: Progress = lambda runs, events: None) -> Shrunk:
    verdict = run_history(scenario, history)
    if verdict.converged:
        what = f"{scenario.name}, seed {history.seed}"
        raise Invalid(what, "it does not fail", "shrink a seed that `trunkline sim run` reports")
    shrinker = Shrinker(scenario, history, frozenset(verdict.failed_checks), on_progress)
    smallest = shrinker.shrink()
    return Shrunk(smallest, run_history(scenario, smallest), shrinker.runs)
