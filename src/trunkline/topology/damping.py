"""Flap damping: a link that was lost lately must stay up for a while before it counts."""

from __future__ import annotations

from dataclasses import dataclass, field

REMEMBERED = 2
"""A loss is forgotten after so many times the longest damping without another."""


@dataclass
class Damping:
    first: float
    longest: float
    _losses: dict[str, tuple[int, float]] = field(default_factory=dict)

    def lost(self, site: str, now: float) -> None:
        self._losses[site] = self.losses(site, now) + 1, now

    def losses(self, site: str, now: float) -> int:
        count, at = self._losses.get(site, (0, now))
        return count if now - at < REMEMBERED * self.longest else 0

    def delay(self, site: str, now: float) -> float:
        losses = self.losses(site, now)
        return min(self.longest, self.first * 2.0 ** min(losses - 1, 30)) if losses else 0.0
