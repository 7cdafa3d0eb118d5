"""What is before each destination, by the stamper's counts: no I/O here.

A round says what it brought to which set of destinations, not which entries these were. So for every (set, client) there is a
list of points: up to this seq, so many entries and bytes in all. What is behind a position is the difference between the last
point and the one at or before that position.

  B1  the last seq is exact, and so is the last one that was trimmed
  B2  counts are exact at a round's end as long as its point is there; a list has at most POINTS of them, and where points were
      dropped it says more, never less
  B3  an entry for `*` is for every destination (H17)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trunkline.core.ids import ALL_SITES, Position
from trunkline.queues.destinations import Destinations

POINTS = 512
Pair = tuple[int, str]
"""set, client"""


class Behind(NamedTuple):
    entries: int
    bytes: int


class SlotEnd(NamedTuple):
    """The newest round that has rows in a slot, and when it was stamped (unix seconds of the database)."""

    position: Position
    at: float


@dataclass
class _Points:
    lasts: list[int] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)

    def add(self, last: int, entries: int, size: int) -> None:
        self.lasts.append(last)
        self.entries.append(entries + (self.entries[-1] if self.entries else 0))
        self.bytes.append(size + (self.bytes[-1] if self.bytes else 0))
        if len(self.lasts) > POINTS:
            self._thin()

    def after(self, seq: int) -> Behind:
        if not self.lasts or self.lasts[-1] <= seq:
            return Behind(0, 0)
        at = bisect_right(self.lasts, seq) - 1
        before = Behind(self.entries[at], self.bytes[at]) if at >= 0 else Behind(0, 0)
        return Behind(self.entries[-1] - before.entries, self.bytes[-1] - before.bytes)

    def _thin(self) -> None:
        """Every second of the older half goes; the newest stay as they are."""
        for values in (self.lasts, self.entries, self.bytes):
            del values[1 : POINTS // 2 : 2]


class Lasts:
    """The highest seq per destination and client, of what was said per set."""

    def __init__(self, destinations: Destinations) -> None:
        self._destinations = destinations
        self._by_pair: dict[Pair, int] = {}
        self._by_site: dict[str, dict[str, int]] = {}
        self._changed: set[Pair] = set()

    def add(self, number: int, client: str, last: int) -> None:
        if last > self._by_pair.get((number, client), 0):
            self._by_pair[number, client] = last
            self._changed.add((number, client))

    def of(self, destination: str) -> dict[str, int]:
        self._settle()
        named, everywhere = self._by_site.get(destination, {}), self._by_site.get(ALL_SITES, {})
        return {c: max(named.get(c, 0), everywhere.get(c, 0)) for c in sorted(named.keys() | everywhere.keys())}

    def _settle(self) -> None:
        """Seldom asked and often told: what changed since the last question is spread over the sets' members now."""
        for number, client in self._changed:
            last = self._by_pair[number, client]
            for site in self._destinations.sites(number):
                known = self._by_site.setdefault(site, {})
                known[client] = max(known.get(client, 0), last)
        self._changed.clear()


class Backlog:
    def __init__(self, destinations: Destinations) -> None:
        self.head = 0
        self.slots: dict[int, SlotEnd] = {}
        self._destinations = destinations
        self._points: dict[Pair, _Points] = {}
        self._last, self._trimmed = Lasts(destinations), Lasts(destinations)

    def add(self, last: int, number: int, client: str, entries: int, size: int) -> None:
        self._points.setdefault((number, client), _Points()).add(last, entries, size)
        self._last.add(number, client, last)

    def stamped(self, position: Position, slots: Iterable[int], at: float) -> None:
        """A round's end; rounds come in their order."""
        self.head = position.seq
        for slot in slots:
            self.slots[slot] = SlotEnd(position, at)

    def trimmed(self, number: int, client: str, last: int) -> None:
        self._last.add(number, client, last)
        self._trimmed.add(number, client, last)

    def emptied(self, slot: int) -> None:
        self.slots.pop(slot, None)

    def last(self, destination: str, client: str) -> int:
        return self._last.of(destination).get(client, 0)

    def last_for(self, destination: str) -> Mapping[str, int]:
        return self._last.of(destination)

    def trimmed_for(self, destination: str) -> Mapping[str, int]:
        return self._trimmed.of(destination)

    def sites(self, number: int) -> tuple[str, ...]:
        return self._destinations.sites(number)

    def behind(self, destination: str, client: str, acknowledged: int) -> Behind:
        sets = self._destinations.meeting(frozenset((destination,)))
        parts = [self._points[n, client].after(acknowledged) for n in sets if (n, client) in self._points]
        return Behind(sum([p.entries for p in parts]), sum([p.bytes for p in parts]))
