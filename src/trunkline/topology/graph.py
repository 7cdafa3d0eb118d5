"""The graph of who hears whom, and the searches over it. Pure.

1. Edges come from link rows alone. A row below the incarnation its site gave in HELLO counts as empty (H27).
2. A site that does not relay is never passed through: it has no edges, only its own records.
3. A row that expired attracts no new choice, but a path over it still stands (stale-keep); only its site can withdraw it.
4. One search from this site's own links finds every origin's least cost and all neighbours that offer it; a search from
   one neighbour, with costs and predecessors, is made when somebody asks for it. All are kept until an edge changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise

from trunkline.topology.links import HOP, LinkRow

Nearest = dict[str, tuple[int, int]]
"""Origin → least cost, and the neighbours that offer it, as bits in the order of the given neighbours."""


@dataclass(frozen=True)
class Search:
    """From one neighbour to every origin it can take without this site."""

    costs: dict[str, int]
    before: dict[str, str]

    def path(self, origin: str) -> tuple[str, ...] | None:
        if origin not in self.costs:
            return None
        path = [origin]
        while path[-1] in self.before:
            path.append(self.before[path[-1]])
        return tuple(reversed(path))


@dataclass
class Graph:
    site: str
    rows: dict[str, LinkRow] = field(default_factory=dict)
    expired: dict[str, LinkRow] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    """Every site that a link row ever named."""
    searched: int = 0
    _incarnations: dict[str, int] = field(default_factory=dict)
    _edges: dict[str, dict[str, int]] = field(default_factory=dict)
    _uneven: set[str] = field(default_factory=set)
    _searches: dict[str, Search] = field(default_factory=dict)
    _nearest: tuple[tuple[tuple[str, int], ...], Nearest] | None = None

    # -- rows

    def put(self, site: str, row: LinkRow | None) -> bool:
        """What the store has now; None: it expired. True when an edge, or the standing of one, changed."""
        if site == self.site:
            return False
        kept = self.rows.pop(site, None) if row is None else self.expired.pop(site, None)
        if row is None:
            if kept is not None:
                self.expired[site] = kept
        else:
            self.rows[site] = row
            self.named.update(row.hears, (site,))
        return self._look_again(site) or kept is not None

    def incarnation(self, site: str, incarnation: int) -> bool:
        """HELLO named it. True when an edge changed."""
        self._incarnations[site] = max(incarnation, self._incarnations.get(site, 0))
        return self._look_again(site)

    def forget_expired(self, needed: Iterable[str]) -> None:
        still = set(needed)
        self.expired = {site: row for site, row in self.expired.items() if site in still}

    def _look_again(self, site: str) -> bool:
        row = self.rows.get(site)
        edges = self._edges_of(site, row) if row is not None and not row.no_relay else {}
        if edges == self._edges.get(site, {}):
            return False
        self._edges[site] = edges
        (self._uneven.add if any(c != HOP for c in edges.values()) else self._uneven.discard)(site)
        self._searches.clear()
        self._nearest = None
        return True

    def _edges_of(self, site: str, row: LinkRow) -> dict[str, int]:
        if row.incarnation < self._incarnations.get(site, 0):
            return {}
        return {v: max(HOP, row.cost(v)) for v in row.hears if v not in (site, self.site)}

    def relays(self, site: str) -> bool:
        row = self.rows.get(site)
        return row is None or not row.no_relay

    # -- paths

    def fresh(self, path: tuple[str, ...]) -> bool:
        return all(v in self._edges.get(u, ()) for u, v in pairwise(path))

    def stands(self, path: tuple[str, ...]) -> bool:
        """Every link of it is there, or is in a row that only expired."""
        return all(v in self._edges.get(u, ()) or self._kept(u, v) for u, v in pairwise(path))

    def _kept(self, site: str, heard: str) -> bool:
        row = self.expired.get(site)
        return row is not None and not row.no_relay and heard in self._edges_of(site, row)

    # -- searches

    def nearest(self, neighbours: Mapping[str, int]) -> Nearest:
        """Over links to these neighbours at these costs; bit i of an answer stands for the i-th of them."""
        key = tuple(neighbours.items())
        if self._nearest is None or self._nearest[0] != key:
            self.searched += 1
            even = not self._uneven and all(cost == HOP for cost in neighbours.values())
            self._nearest = key, (self._in_hops if even else self._in_costs)(neighbours)
        return self._nearest[1]

    def _in_hops(self, neighbours: Mapping[str, int]) -> Nearest:
        found: Nearest = {}
        level = {site: 1 << i for i, site in enumerate(neighbours)}
        seen, depth = {self.site, *level}, 0
        while level:
            depth += 1
            reached: dict[str, int] = {}
            edges, reached_by = self._edges, reached.get
            for u, bits in level.items():
                found[u] = (depth, bits)
                for v in edges.get(u, ()):
                    if v not in seen:
                        reached[v] = reached_by(v, 0) | bits
            seen.update(reached)
            level = reached
        return found

    def _in_costs(self, neighbours: Mapping[str, int]) -> Nearest:
        found: Nearest = {}
        offers: dict[str, dict[int, int]] = {}
        heap: list[tuple[int, str]] = []
        for i, (site, cost) in enumerate(neighbours.items()):
            offers.setdefault(site, {})[cost] = 1 << i
            heappush(heap, (cost, site))
        while heap:
            cost, u = heappop(heap)
            if u in found:
                continue
            found[u] = (cost, bits := offers[u][cost])
            for v, more in self._edges.get(u, {}).items():
                if v not in found:
                    at = offers.setdefault(v, {})
                    at[cost + more] = at.get(cost + more, 0) | bits
                    heappush(heap, (cost + more, v))
        return found

    def search(self, start: str) -> Search:
        if start not in self._searches:
            self._searches[start] = (self._from_in_costs if self._uneven else self._from_in_hops)(start)
        return self._searches[start]

    def _from_in_hops(self, start: str) -> Search:
        costs, before = {start: 0}, dict[str, str]()
        queue = [start]
        for u in queue:
            cost = costs[u] + HOP
            for v in self._edges.get(u, ()):
                if v not in costs:
                    costs[v], before[v] = cost, u
                    queue.append(v)
        return Search(costs, before)

    def _from_in_costs(self, start: str) -> Search:
        costs, before = {start: 0}, dict[str, str]()
        heap = [(0, start)]
        while heap:
            cost, u = heappop(heap)
            if cost > costs[u]:
                continue
            for v, more in self._edges.get(u, {}).items():
                if v not in costs or cost + more < costs[v]:
                    costs[v], before[v] = cost + more, u
                    heappush(heap, (cost + more, v))
        return Search(costs, before)
