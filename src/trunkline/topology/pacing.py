"""When to compute: shortly after a change, so that what comes together is one computation; later under churn."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

WINDOW = 1.0
CALM = 4
"""So many computations within the window are no churn yet; each further one doubles the wait."""


@dataclass
class Pacing:
    shortest: float
    longest: float
    due: float | None = None
    _done: deque[float] = field(default_factory=lambda: deque(maxlen=CALM + 16))

    def want(self, now: float) -> None:
        if self.due is None:
            self.due = now + self.wait(now)

    def wait(self, now: float) -> float:
        recent = sum(now - at < WINDOW for at in self._done)
        return min(self.longest, self.shortest * 2.0 ** max(0, recent - CALM))

    def is_due(self, now: float) -> bool:
        return self.due is not None and now >= self.due

    def done(self, now: float) -> None:
        self.due = None
        self._done.append(now)
