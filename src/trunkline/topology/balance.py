"""Rebalancing: of parents at equal cost, the one with fewer children. Off unless wanted.

Each site looks once per period, at a moment of its own, and moves at most one origin then; the larger the difference, the more
sites see it, so the less likely is each to move. A difference of one is balance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

UNFAIR = 2
Offer = tuple[str, str, tuple[str, ...]]
"""Origin, present parent, all parents at equal cost."""


@dataclass
class Balance:
    period: float
    random: Callable[[], float]
    at: float | None = None

    def is_due(self, now: float) -> bool:
        if self.at is None:
            self.at = now + self.period * (1 + self.random())
        if now < self.at:
            return False
        self.at = now + self.period
        return True

    def move(self, offers: Iterable[Offer], children: Callable[[str, str], int]) -> tuple[str, str] | None:
        """(origin, new parent)."""
        best: tuple[int, str, str] | None = None
        for origin, present, equals in offers:
            alternative = min(equals, key=lambda via: children(via, origin))
            difference = children(present, origin) - children(alternative, origin)
            if difference >= UNFAIR and (best is None or difference > best[0]):
                best = difference, origin, alternative
        if best is None or self.random() >= 1 / (best[0] - 1):
            return None
        return best[1:]
