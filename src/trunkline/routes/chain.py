"""A route's filters, one after the other, with a policy for what each of them cannot process.

E1  `drop`: the event is done. `dead_letter`: it is kept with its reason, and done. `fail`: it is not done; its source
    decides what that means (a nack, a batch that is tried again).
E2  What a filter raises is a defect, and `fail` whatever its policy. It is blamed on one event: the batch is run again, one
    by one, and only who raises fails. `Retryable` is no event's fault: then the batch fails as a whole.
E3  The order of a batch stays, and what becomes of one event never depends on another's fault.
E4  A stateful filter that raises cannot be run again: it may have remembered half of the batch. The batch fails as a whole
    and `Ran.upset` says why: the chain must be restored to the state that was kept before anything else runs through it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from trunkline.core.errors import Retryable, TrunklineError
from trunkline.routes.event import Event
from trunkline.routes.plugin import Filter, StatefulFilter

MAX_REASON = 1_000  # characters: reasons are kept with dead letters and shown in lists


class ErrorPolicy(StrEnum):
    DROP = "drop"
    DEAD_LETTER = "dead_letter"
    FAIL = "fail"


class Step(msgspec.Struct, frozen=True):
    """`name`: how people call it: the plugin, its place in the chain, and its own name if it has one."""

    name: str
    filter: Filter
    on_error: ErrorPolicy = ErrorPolicy.DEAD_LETTER


class Fault(msgspec.Struct, frozen=True):
    """`event`: as it came to the step that could not process it."""

    event: Event
    step: str
    reason: str
    policy: ErrorPolicy


class Ran(msgspec.Struct, frozen=True):
    """What came out, and what could not be processed."""

    out: list[Event]
    faults: list[Fault]
    upset: str = ""

    def faults_by(self, policy: ErrorPolicy) -> list[Fault]:
        return [fault for fault in self.faults if fault.policy is policy]


class _Running:
    """What one run has come to; it is also the `Faults` of the step at work."""

    __slots__ = ("faults", "step", "upset")

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.upset = ""
        self.step: Step

    def add(self, event: Event, reason: str) -> None:
        self.faults.append(Fault(event, self.step.name, _cut(reason), self.step.on_error))

    def through(self, steps: Sequence[Step], batch: list[Event]) -> list[Event]:
        for step in steps:
            if not batch:
                break
            before, self.step = len(self.faults), step
            try:
                batch = step.filter(batch, self)
            except Exception as error:
                del self.faults[before:]
                batch = self._raised(step, batch, error)
        return batch

    def flush(self, step: Step, filter: StatefulFilter, now: float) -> list[Event]:
        try:
            return filter.flush(now)
        except Exception as error:
            self.upset = f"{step.name}: {_reason(error)}"
            return []

    def _raised(self, step: Step, batch: list[Event], error: Exception) -> list[Event]:
        if isinstance(step.filter, StatefulFilter):
            self.upset = f"{step.name}: {_reason(error)}"
        elif len(batch) > 1 and not isinstance(error, Retryable):
            return [event for one in batch for event in self.through((step,), [one])]
        self.faults += [Fault(event, step.name, _reason(error), ErrorPolicy.FAIL) for event in batch]
        return []


class Chain:
    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)
        self._remembering = {n: step.filter for n, step in enumerate(steps) if isinstance(step.filter, StatefulFilter)}

    @property
    def stateful(self) -> int | None:
        """The place of the first filter that remembers."""
        return next(iter(self._remembering), None)

    @property
    def joins(self) -> bool:
        """Whether it makes one event of several."""
        return any(filter.joins for filter in self._remembering.values())

    def run(self, batch: list[Event], first: int = 0, last: int | None = None) -> Ran:
        """Through all filters, or those from `first` up to and without `last`."""
        running = _Running()
        steps = self.steps if not first and last is None else self.steps[first:last]
        return Ran(running.through(steps, batch), running.faults, running.upset)

    def flush(self, now: float) -> Ran:
        """What filters that remember give though no event comes, through all filters behind them."""
        running, out = _Running(), list[Event]()
        for n, filter in self._remembering.items():
            out += running.through(self.steps[n + 1 :], running.flush(self.steps[n], filter, now))
        return Ran(out, running.faults, running.upset)

    def due(self) -> float | None:
        """When `flush` would give something, in unix seconds."""
        return min((due for filter in self._remembering.values() if (due := filter.due()) is not None), default=None)

    def held(self) -> list[Event]:
        """Events that filters keep back: they are not done."""
        return [event for filter in self._remembering.values() for event in filter.held()]

    def state(self) -> dict[str, Any]:
        """As JSON, by the place in the chain; of a chain that remembers nothing it is empty."""
        return {str(n): filter.state() for n, filter in self._remembering.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        for n, filter in self._remembering.items():
            if str(n) in state:
                filter.restore(state[str(n)])


def _reason(error: Exception) -> str:
    if isinstance(error, TrunklineError):
        return _cut(f"{error.what}: {error.why}")
    return _cut(f"it raised {type(error).__name__}: {error}")


def _cut(reason: str) -> str:
    return reason if len(reason) <= MAX_REASON else reason[: MAX_REASON - 1] + "…"
