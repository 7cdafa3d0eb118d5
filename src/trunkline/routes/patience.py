"""How long one value may take a filter that works on the event loop, where nothing can interrupt it.

Of several in a row that are given up, each has half the time of the one before: so a batch of them holds a node up for little
longer than two do.
"""

from __future__ import annotations

import time

SECONDS, LEAST_SECONDS = 0.5, 0.002


class TooSlow(Exception):
    """It takes longer than it may."""


class Patience:
    def __init__(self) -> None:
        self._seconds = SECONDS

    def until(self) -> float:
        """By the monotonic clock."""
        return time.monotonic() + self._seconds

    def gave_up(self) -> float:
        """The seconds that it had."""
        had, self._seconds = self._seconds, max(LEAST_SECONDS, self._seconds / 2)
        return had

    def done(self) -> None:
        if self._seconds < SECONDS:
            self._seconds = min(SECONDS, 2 * self._seconds)
