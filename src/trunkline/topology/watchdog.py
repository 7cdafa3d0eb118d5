"""Whether an origin stands still although there is more of it. Pure.

An origin stalls when somebody was ahead of this site, all the time, for the whole stall time, while its own cursor did not
move. The neighbour that is furthest ahead is then the parent: what it has beyond this site it did not get from this site, so
the move closes no loop. If no neighbour is ahead, but the origin's log is known to go on, all are asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

MOST_DOUBLED = 4


class Stall(Enum):
    NEIGHBOUR_AHEAD = "neighbour ahead"
    LOG_AHEAD = "log ahead"


@dataclass
class Standing:
    cursor: int
    since: float
    """When it was first seen behind."""
    neighbour_since: float | None = None


@dataclass
class Watchdog:
    stall: float
    _standing: dict[str, Standing] = field(default_factory=dict)
    _tried: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Origin → the cursor at which it stalled, and how often there."""

    def forget(self, origin: str) -> None:
        """It is not behind, or not to be watched now."""
        self._standing.pop(origin, None)

    def look(self, origin: str, cursor: int, furthest: int, now: float) -> Stall | None:
        """On an origin whose log goes beyond the cursor; the neighbour that is furthest has it up to `furthest`."""
        standing = self._standing.get(origin)
        if standing is None or standing.cursor != cursor:
            self._standing[origin] = standing = Standing(cursor, now)
        if furthest <= cursor:
            standing.neighbour_since = None
            return Stall.LOG_AHEAD if now - standing.since >= self.stall else None
        if standing.neighbour_since is None:
            standing.neighbour_since = now
        return Stall.NEIGHBOUR_AHEAD if self._is_over(origin, standing.neighbour_since, cursor, now) else None

    def _is_over(self, origin: str, since: float, cursor: int, now: float) -> bool:
        """A move that brought nothing doubles the patience with the next parent, so that a slow one is not left for ever."""
        at, tries = self._tried.get(origin, (cursor, 0))
        tries = tries if at == cursor else 0
        over = now - since >= self.stall * 2.0 ** min(tries, MOST_DOUBLED)
        if over:
            self._tried[origin] = cursor, tries + 1
        return over
