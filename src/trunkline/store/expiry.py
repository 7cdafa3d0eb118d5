"""When keys are due: a wheel of short spans of time, each with the keys that may be due in it. Pure.

Arming and disarming cost the same however many keys there are. A key that was armed for one time and now has a later one
stays where it is: when its span comes, its owner says that it is not due and arms it again. So a refresh costs nothing here,
and a key is armed at most once for a time that counts.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final

SPANS_PER_SECOND: Final = 64
NEVER: Final = 0
"""The span of what is not armed."""


def span_of(time: float) -> int:
    """The first span that begins after that time."""
    return int(time * SPANS_PER_SECOND) + 1


class Wheel:
    def __init__(self) -> None:
        self._spans: dict[int, list[str]] = {}
        self._order: list[int] = []
        self._overdue: deque[tuple[str, int]] = deque()

    def arm(self, key: str, span: int) -> None:
        self.span(span).append(key)

    def span(self, span: int) -> list[str]:
        """Append keys to arm them for it; only before anything is due again."""
        keys = self._spans.get(span)
        if keys is None:
            keys = self._spans[span] = []
            heappush(self._order, span)
        return keys

    def due(self, now: float, most: int) -> list[tuple[str, int]]:
        """Up to `most` keys, each with the span it was armed for; the rest comes with the next call."""
        current = int(now * SPANS_PER_SECOND)
        while self._order and self._order[0] <= current and len(self._overdue) < most:
            span = heappop(self._order)
            self._overdue.extend((key, span) for key in self._spans.pop(span))
        return [self._overdue.popleft() for _ in range(min(most, len(self._overdue)))]

    def __len__(self) -> int:
        return sum(map(len, self._spans.values())) + len(self._overdue)
