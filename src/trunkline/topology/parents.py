"""Who takes whose records from whom: for every origin the one neighbour to take it from.

Theory of operation
-------------------
Vertices are sites. `link:<site>` in the store says whom that site hears (its depth-1 rows): the only input. Deeper rows are
output: a breadth-first search from every *neighbour* gives its distance to every origin, and the parent is a neighbour at the
least distance. For a site's own links the live connections count, never the store's copy.

R1  a row (subscriber, source, via, depth) is written by its subscriber alone
R2  via is a connected neighbour, and depth = 1 exactly when via is the source
R3  a path never contains the subscriber
R4  one parent per origin
R5  among equal distances the present parent stays; otherwise the neighbour that was connected first wins
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from trunkline.core.codec import Codec


class LinkRow(msgspec.Struct, frozen=True):
    """Value of `link:<site>`: the sites it hears."""

    incarnation: int
    hears: tuple[str, ...]

    def version(self, counter: int) -> int:
        """A new leader's row always wins over its predecessor's."""
        return self.incarnation << 32 | counter


LINK_ROWS: Codec[LinkRow] = Codec("link row", LinkRow)


class Row(msgspec.Struct, frozen=True):
    source: str
    via: str
    depth: int
    path: tuple[str, ...]
    """From the subscriber's parent to the source."""


@dataclass
class Topology:
    site: str
    rows: dict[str, Row] = field(default_factory=dict)
    moves: int = 0

    def compute(self, neighbours: Sequence[str], links: Mapping[str, LinkRow]) -> bool:
        """Recomputes all rows; `neighbours` in the order they were connected. True when a row changed."""
        searches = {v: self._search(v, links) for v in neighbours}
        rows = {}
        for origin in sorted({o for found in searches.values() for o in found}):
            row = self._choose(origin, searches)
            rows[origin] = row
            self.moves += origin in self.rows and self.rows[origin].via != row.via
        changed = rows != self.rows
        self.rows = rows
        return changed

    def _search(self, start: str, links: Mapping[str, LinkRow]) -> dict[str, tuple[str, ...]]:
        """Shortest path from `start` to every origin it can take records of without this site."""
        paths: dict[str, tuple[str, ...]] = {start: (start,)}
        queue = deque([start])
        while queue:
            u = queue.popleft()
            for v in links[u].hears if u in links else ():
                if v != self.site and v not in paths:
                    paths[v] = (*paths[u], v)
                    queue.append(v)
        return paths

    def _choose(self, origin: str, searches: Mapping[str, Mapping[str, tuple[str, ...]]]) -> Row:
        reachable = {v: found[origin] for v, found in searches.items() if origin in found}
        least = min(len(path) for path in reachable.values())
        nearest = [v for v, path in reachable.items() if len(path) == least]
        present = self.rows.get(origin)
        via = present.via if present is not None and present.via in nearest else nearest[0]
        return Row(origin, via, least, reachable[via])

    def parents(self) -> dict[str, str]:
        return {origin: row.via for origin, row in self.rows.items()}
