"""The sites this one has a link with, and what each of them said."""

from __future__ import annotations

from dataclasses import dataclass, field

from trunkline.topology.messages import Told
from trunkline.topology.rows import Row


@dataclass(frozen=True)
class Neighbour:
    site: str
    incarnation: int
    """From its HELLO."""
    hears: bool = True
    """This site takes records from it; otherwise it only serves it."""
    capable: bool = True
    """It understands topology. One that does not sends everything it has, and is told nothing."""


@dataclass
class Link:
    neighbour: Neighbour
    since: float
    cost: int
    counts_from: float
    """Damped until then."""
    asked: bool = False
    """For its own records."""
    joined: bool = False
    """It accepted: it is in this site's link row, and paths may run over it."""
    greeted: bool = False
    """It has the whole of this site's progress."""
    told: dict[str, Row] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    children: dict[str, int] = field(default_factory=dict)

    @property
    def is_damped(self) -> bool:
        return self.neighbour.hears and not self.asked and not self.joined

    def hear(self, message: Told) -> set[str]:
        """The origins it told something new about."""
        named = {row.source for row in message.rows}.union(message.gone, self.told if message.full else ())
        before = {origin: self.told.pop(origin, None) for origin in named}
        self.told.update({row.source: row for row in message.rows})
        return {origin for origin, row in before.items() if row != self.told.get(origin)}

    def remember(self, before: Link) -> None:
        """What it said on this link before this site's leader began."""
        self.told, self.cursors, self.heads, self.children = before.told, before.cursors, before.heads, before.children

    @property
    def site(self) -> str:
        return self.neighbour.site

    def has(self, origin: str) -> int:
        """How far it has the origin's records; of its own, all there are."""
        return self.heads.get(origin, 0) if origin == self.site else self.cursors.get(origin, 0)


@dataclass(frozen=True)
class NeighbourView:
    site: str
    since: float
    hears: bool
    capable: bool
    cost: int
    damped_until: float | None
    losses: int


def view(link: Link, losses: int) -> NeighbourView:
    n = link.neighbour
    damped_until = link.counts_from if link.is_damped else None
    return NeighbourView(n.site, link.since, n.hears, n.capable, link.cost, damped_until, losses)
