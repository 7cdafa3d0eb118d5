"""What a site knows, and what follows from it for one origin: who is nearest, what the row would be, whether a parent works.

Neighbours without the capability send everything they have, wanted or not. So what such a neighbour has, and is not too
far behind with, is taken from it and refused everywhere else; it is never passed through on the way to somebody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from trunkline.topology.chain import leads_back, validates
from trunkline.topology.choosing import Outlook, preference
from trunkline.topology.effects import Manner
from trunkline.topology.graph import Graph
from trunkline.topology.links import HOP, LinkRow
from trunkline.topology.neighbours import Link
from trunkline.topology.rows import Flag, Row
from trunkline.topology.settings import Settings


@dataclass
class Taking:
    """A subscription this site wants; the row follows when it was accepted."""

    via: str
    manner: Manner
    since: float
    accepted: bool = False
    anyone: tuple[int, tuple[str, ...]] = (0, ())
    """At which cursor all of these were asked."""


@dataclass
class Table:
    site: str
    settings: Settings
    graph: Graph
    links: dict[str, Link] = field(default_factory=dict)
    """In the order they were connected."""
    takings: dict[str, Taking] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)
    barred: dict[tuple[str, str], int] = field(default_factory=dict)
    """(origin, neighbour) that stood still: no way back until it has this."""

    # -- neighbours

    def joined(self) -> dict[str, int]:
        return {site: link.cost for site, link in self.links.items() if link.joined}

    def own_row(self, incarnation: int) -> LinkRow:
        joined = self.joined()
        costs = {site: cost for site, cost in sorted(joined.items()) if cost != HOP}
        return LinkRow(incarnation, tuple(sorted(joined)), costs, self.settings.no_relay)

    def default_carrier(self) -> str | None:
        return min((s for s, link in self.links.items() if link.joined), key=lambda s: self.links[s].cost, default=None)

    def head(self, origin: str) -> int:
        told = (max(link.heads.get(origin, 0), link.cursors.get(origin, 0)) for link in self.links.values())
        return max(self.cursors.get(origin, 0), max(told, default=0))

    def heads(self) -> dict[str, int]:
        """To be told: as the parent told them, so that no circle of rumour keeps up the head of a log that began anew."""
        told = {origin: self.links[taking.via].heads.get(origin, 0) for origin, taking in self.takings.items()}
        return {origin: max(head, self.cursors.get(origin, 0)) for origin, head in told.items()}

    def is_unknown(self, origin: str) -> bool:
        return origin not in self.graph.named and any(origin in link.heads for link in self.links.values())

    def sender_of_all(self, origin: str) -> str | None:
        for site, link in self.links.items():
            sends = link.joined and not link.neighbour.capable and origin in link.cursors and site != origin
            if sends and self.head(origin) - link.cursors[origin] <= self.settings.lag_limit:
                return site
        return None

    def sources(self, origin: str) -> dict[str, int]:
        """Neighbours that may carry the origin, and how far they have it."""
        links = self.links.items()
        return {v: x.has(origin) for v, x in links if x.joined and (v == origin or self.graph.relays(v))}

    def children(self) -> dict[str, int]:
        """Origin → how many neighbours take it from this site."""
        return dict(Counter(row.source for link in self.links.values() for row in link.told.values() if row.via == self.site))

    # -- one origin

    def nearest(self, origin: str) -> tuple[int, tuple[str, ...]]:
        """The least cost, and who offers it in order of preference: first those that never stood still."""
        if (sender := self.sender_of_all(origin)) is not None:
            return self.links[sender].cost + HOP, (sender,)
        joined = self.joined()
        cost, bits = self.graph.nearest(joined).get(origin, (0, 0))
        offers = [site for i, site in enumerate(joined) if bits >> i & 1]
        if not offers:
            return self._last_resort(origin)
        liked = preference(self.settings.tie, self.site, origin, offers)
        return cost, tuple(sorted(liked, key=lambda via: self.is_barred(origin, via)))

    def _last_resort(self, origin: str) -> tuple[int, tuple[str, ...]]:
        """No link row leads there: who sends everything, however late; or, if none ever named it, the default carrier."""
        late = next((s for s, link in self.links.items() if self._has_unasked(link, origin)), None)
        via = late or (self.default_carrier() if self.is_unknown(origin) else None)
        return (self.links[via].cost + HOP, (via,)) if via is not None else (0, ())

    def _has_unasked(self, link: Link, origin: str) -> bool:
        return link.joined and not link.neighbour.capable and origin in link.cursors

    def is_barred(self, origin: str, via: str) -> bool:
        needed = self.barred.get((origin, via))
        return needed is not None and self.links[via].has(origin) < needed

    def is_fed(self, origin: str, via: str) -> bool:
        """Its chain validates, it gets on and is not far behind: an optional move to it costs nothing."""
        link, enough = self.links[via], self.cursors.get(origin, 0) - self.settings.slack
        near = via == origin or link.has(origin) >= enough
        return near and validates(link, origin, self.site) and not self.is_barred(origin, via)

    def outlook(self, origin: str) -> Outlook:
        cost, nearest = self.nearest(origin)
        taking = self.takings.get(origin)
        present = taking.via if taking is not None else None
        cost_now = self._cost_through(origin, present) if present is not None else None
        link = self.links[present] if present is not None else None
        hopeful = cost_now is not None and link is not None and not leads_back(link, origin, self.site)
        stood_still = {v for v in nearest if hopeful and self.is_barred(origin, v)}
        unsafe = stood_still.union(v for v in nearest if leads_back(self.links[v], origin, self.site))
        return Outlook(
            present=present,
            works=cost_now is not None and link is not None and validates(link, origin, self.site),
            hopeful=hopeful,
            further=bool(nearest) and cost_now is not None and (cost < cost_now or self.sender_of_all(origin) is not None),
            nearest=nearest,
            unsafe=frozenset(unsafe),
            valid=self._valid(origin) if len(unsafe) == len(nearest) else (),
        )

    def _valid(self, origin: str) -> tuple[str, ...]:
        """Neighbours that told a path which validates and that the links there are do not exclude; the cheapest first."""
        told = {v: link.cost + link.told[origin].cost for v, link in self.links.items() if link.joined and origin in link.told}
        sound = [v for v in told if validates(self.links[v], origin, self.site) and not self.is_barred(origin, v)]
        return tuple(sorted((v for v in sound if origin in self.graph.search(v).costs), key=lambda v: told[v]))

    def _cost_through(self, origin: str, via: str) -> int | None:
        """What it costs through a neighbour, over links that are there or, for the present path, were when they expired."""
        link = self.links[via]
        if not link.neighbour.capable and origin != via:
            return link.cost + HOP if self.sender_of_all(origin) == via else None
        row = self.rows.get(origin)
        if self.graph.expired and row is not None and row.via == via and self.graph.stands(row.path):
            return row.cost
        beyond = self.graph.search(via).costs.get(origin)
        return link.cost + beyond if beyond is not None else None

    def row(self, origin: str, via: str) -> Row | None:
        """The row this site has while it takes the origin there: the path its parent told, else the shortest there is."""
        link = self.links[via]
        told = link.told.get(origin)
        if via == origin:
            return Row(origin, via, (via,), link.cost, () if link.neighbour.capable else (Flag.ALL,))
        if not link.neighbour.capable:
            return Row(origin, via, (via, origin), link.cost + HOP, (Flag.ALL,))
        if told is not None and validates(link, origin, self.site):
            return self._flagged(Row(origin, via, (via, *told.path), link.cost + told.cost))
        search = self.graph.search(via)
        path = search.path(origin)
        return self._flagged(Row(origin, via, path, link.cost + search.costs[origin])) if path is not None else None

    def _flagged(self, row: Row) -> Row:
        if not self.graph.expired or self.graph.fresh(row.path):
            return row
        return Row(row.source, row.via, row.path, row.cost, (Flag.STALE,))

    # -- all origins

    def unsettled(self) -> Iterator[str]:
        """Origins for which something may have to be done; all others are where the graph wants them."""
        joined = self.joined()
        bit = {site: 1 << i for i, site in enumerate(joined)}
        near = self.graph.nearest(joined)
        for origin, (cost, bits) in near.items():
            taking, row = self.takings.get(origin), self.rows.get(origin)
            moves = taking is None or not bits & bit.get(taking.via, 0)
            if moves or (taking is not None and taking.accepted and (row is None or row.cost != cost or row.flags)):
                yield origin
        yield from self.takings.keys() - near.keys()
        if self.graph.expired:
            yield from self.takings.keys() & near.keys()
        yield from self.sent_unasked()
        for link in self.links.values():
            if not self.graph.named.issuperset(link.heads):
                yield from link.heads.keys() - self.graph.named - {self.site}

    def sent_unasked(self) -> Iterator[str]:
        for link in self.links.values():
            if link.joined and not link.neighbour.capable:
                yield from link.cursors.keys() - {self.site}

    def ties(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Origin, parent, and all that cost the same, where there are several."""
        for origin, taking in self.takings.items():
            nearest = self.nearest(origin)[1] if taking.accepted and taking.via != origin else ()
            if len(nearest) > 1 and taking.via in nearest:
                yield origin, taking.via, nearest
