"""batch: several events become one.

B1  The new event's payload is the array of its members' payloads, in their order; metadata and source are the first one's.
B2  It is made of all events that its members are made of (`entered`): none of them is done before it is.
B3  A part batch goes on when its first member has waited `timeoutMs`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import Field

from trunkline.core.scalars import Whole
from trunkline.routes.event import Event
from trunkline.routes.fields import RouteModel
from trunkline.routes.plugin import Around, Faults, FilterPlugin, StatefulFilter


class BatchConfig(RouteModel):
    """Makes one event of several; its payload is the array of theirs. Members are done when the whole is."""

    batch_size: Whole = Field(default=1, ge=0, le=1000, description="members of a full batch; 0 is as 1: each event alone")
    timeout_ms: Whole = Field(
        default=1000, ge=1, le=3_600_000, description="milliseconds after which a part batch goes on as it is"
    )


class _State(msgspec.Struct):
    """`since`: when the first of `held` came, in unix seconds."""

    held: list[Event]
    since: float


class Batch(StatefulFilter):
    joins = True

    def __init__(self, config: BatchConfig, around: Around) -> None:
        self._size, self._wait, self._now = max(config.batch_size, 1), config.timeout_ms / 1000, around.now
        self._state = _State([], 0.0)

    def __call__(self, batch: list[Event], faults: Faults) -> list[Event]:
        waiting, size = self._state.held + batch, self._size
        full = len(waiting) // size * size
        since = self._state.since if self._state.held and not full else self._now()
        self._state = _State(waiting[full:], since)
        return [joined(waiting[start : start + size]) for start in range(0, full, size)]

    def state(self) -> Any:
        return msgspec.to_builtins(self._state)

    def restore(self, state: Any) -> None:
        self._state = msgspec.convert(state, _State)

    def held(self) -> list[Event]:
        return self._state.held

    def due(self) -> float | None:
        return self._state.since + self._wait if self._state.held else None

    def flush(self, now: float) -> list[Event]:
        due = self.due()
        if due is None or now < due:
            return []
        members, self._state = self._state.held, _State([], 0.0)
        return [joined(members)]


def joined(members: list[Event]) -> Event:
    first = members[0]
    entered = {id(one): one for member in members for one in member.entered or (member,)}
    return Event([member.payload for member in members], first.metadata, first.source, tuple(entered.values()))


def compile_batch(config: BatchConfig, around: Around) -> Batch:
    return Batch(config, around)


BATCH = FilterPlugin("batch", BatchConfig, compile_batch, stateful=True)
