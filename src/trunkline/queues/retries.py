"""When a session whose snapshot failed asks for the next one: after 2, 4, 8 … 60 seconds, or as soon as somebody forces it."""

from __future__ import annotations

from dataclasses import dataclass, field

from trunkline.core.backoff import Backoff

FIRST_SECONDS, MOST_SECONDS = 2.0, 60.0


def _whole() -> float:
    """Sessions fail one by one, so their retries need no jitter; and people can tell when the next one comes."""
    return 1.0


@dataclass
class Retry:
    due: float = 0.0
    _backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_SECONDS, MOST_SECONDS, _whole))

    def failed(self, now: float) -> None:
        self.due = now + self._backoff.after_failure()

    def interrupt(self) -> None:
        """The wait is over; what follows a further failure is as long as it would have been."""
        self.due = 0.0

    def succeeded(self) -> None:
        self.due = 0.0
        self._backoff.success()

    def waits(self, now: float) -> bool:
        return now < self.due
