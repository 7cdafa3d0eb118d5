"""dedup: keeps back what it has seen before.

U1  Two values are the same if they are equal as JSON: whatever the order of a map's keys; 1 is 1.0, and true is not 1.
U2  It remembers the values it met last, at most `cacheSize`; one that comes again counts as met now.
U3  What it remembers is one live route's own. A batch that is tried again meets the state from before it, which the
    runner gives back: otherwise its events would be duplicates of themselves.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from pydantic import Field

from trunkline.core.scalars import Whole
from trunkline.routes.event import Event
from trunkline.routes.fields import EventPath, RouteModel
from trunkline.routes.filters.byvalue import value_bytes
from trunkline.routes.filters.change import Unusable
from trunkline.routes.filters.kinds import mismatch
from trunkline.routes.paths import event_path, reader
from trunkline.routes.plugin import Around, Faults, FilterPlugin, StatefulFilter

_DIGEST_BYTES = 16


class DedupConfig(RouteModel):
    """Keeps an event back if the value at `path` was among the last ones seen. Without a value there it cannot be processed."""

    path: EventPath = Field(default="", description="what makes two events the same; empty: the whole payload")
    cache_size: Whole = Field(default=1000, ge=0, le=10_000, description="values that are remembered; 0: none, all events pass")


class Dedup(StatefulFilter):
    def __init__(self, config: DedupConfig) -> None:
        self._path = event_path(config.path)
        self._read, self._size = reader(self._path), config.cache_size
        self._seen: dict[str, None] = {}

    def __call__(self, batch: list[Event], faults: Faults) -> list[Event]:
        return [event for event in batch if self._is_new(event, faults)]

    def _is_new(self, event: Event, faults: Faults) -> bool:
        value = self._read(event)
        if value is None:
            faults.add(event, mismatch(self._path, "a value", value))
            return False
        try:
            return self._remember(blake2b(value_bytes(value, self._path), digest_size=_DIGEST_BYTES).hexdigest())
        except Unusable as error:
            faults.add(event, str(error))
            return False

    def _remember(self, key: str) -> bool:
        seen = self._seen
        was_there = key in seen
        if was_there:
            del seen[key]
        seen[key] = None
        if len(seen) > self._size:
            del seen[next(iter(seen))]
        return not was_there

    def state(self) -> Any:
        return list(self._seen)

    def restore(self, state: Any) -> None:
        self._seen = dict.fromkeys(state[-self._size :] if self._size else ())


def compile_dedup(config: DedupConfig, around: Around) -> Dedup:
    return Dedup(config)


DEDUP = FilterPlugin("dedup", DedupConfig, compile_dedup, stateful=True)
