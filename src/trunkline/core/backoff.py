"""The one backoff: doubling with full jitter above half, reset by success."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Backoff:
    initial: float
    maximum: float
    random: Callable[[], float]
    failures: int = 0

    def after_failure(self) -> float:
        """Seconds to wait now; between half and all of the current step."""
        step = min(self.maximum, self.initial * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return step * (0.5 + self.random() / 2)

    def success(self) -> None:
        self.failures = 0
