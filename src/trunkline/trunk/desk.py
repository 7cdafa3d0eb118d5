"""What the two sides of a carrier share: its links, its counters, what it has to say, and what it must look at again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from trunkline.trunk.asks import Effect, Send
from trunkline.trunk.messages import TrunkMessage


@dataclass
class Desk:
    site: str
    links: dict[str, bool] = field(default_factory=dict)
    """Neighbour → whether it knows subscriptions."""
    counters: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(neighbour, what) → how many."""
    tallies: defaultdict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """(neighbour, origin) → what → how many."""
    dirty: dict[str, None] = field(default_factory=dict)
    _out: list[Effect] = field(default_factory=list)
    _ids: int = 0

    def send(self, site: str, message: TrunkMessage) -> None:
        if site in self.links:
            self._out.append(Send(site, message))

    def ask(self, effect: Effect) -> None:
        self._out.append(effect)

    def count(self, neighbour: str, origin: str, what: str, number: int = 1) -> None:
        if number:
            self.counters[neighbour, what] += number
            self.tallies[neighbour, origin][what] += number

    def touch(self, origins: Iterable[str]) -> None:
        self.dirty.update(dict.fromkeys(origins))

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def effects(self) -> list[Effect]:
        out, self._out = self._out, []
        return out
