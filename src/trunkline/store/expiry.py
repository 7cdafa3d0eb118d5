"""When keys are due: a wheel of short spans of time, each with the keys that may be due in it. Pure.

1. Arming costs the same however many keys there are. A key that was armed for one time and now has a later one stays where
   it is: when its span comes, its owner says that it is not due and arms it again. So a refresh costs nothing here.
2. A key that is armed anew for an earlier time leaves its old place behind, as does one that is gone; its owner counts them
   (`left_behind`), and does not find the key due there. When they are more than there are keys, the wheel is made anew.
3. A crowd that is due at once is handed out in portions, and no portion costs more than its own keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final

SPANS_PER_SECOND: Final = 64
NEVER: Final = 2**62
"""The span of what is not armed: after all others."""
MOST_LEFT_BEHIND: Final = 1_000


def span_of(time: float) -> int:
    """The first span that begins after that time."""
    return int(time * SPANS_PER_SECOND) + 1


class Wheel:
    def __init__(self) -> None:
        self.left_behind = 0
        self._spans: dict[int, list[str]] = {}
        self._order: list[int] = []
        self._overdue: list[str] = []
        self._overdue_span = NEVER

    def arm(self, key: str, span: int) -> None:
        self.span(span).append(key)

    def span(self, span: int) -> list[str]:
        """Append keys to arm them for it, one at least; only before anything is due again."""
        keys = self._spans.get(span)
        if keys is None:
            keys = self._spans[span] = []
            heappush(self._order, span)
        return keys

    def due(self, now: float, most: int) -> list[tuple[int, list[str]]]:
        """Up to `most` keys, by the span they were armed for; the rest comes with the next call."""
        current = int(now * SPANS_PER_SECOND)
        found: list[tuple[int, list[str]]] = []
        while most > 0 and (self._overdue or (self._order and self._order[0] <= current)):
            if not self._overdue:
                self._overdue_span = heappop(self._order)
                self._overdue = self._spans.pop(self._overdue_span)
            keys = self._overdue[-most:]
            del self._overdue[-most:]
            most -= len(keys)
            found.append((self._overdue_span, keys))
        return found

    def is_worn(self, live: int) -> bool:
        """Whether it holds many more places than there are keys."""
        return self.left_behind > live + MOST_LEFT_BEHIND

    def renew(self, armed: Iterable[tuple[str, int]]) -> None:
        """From the span of every key that counts."""
        self.left_behind = 0
        self._spans, self._order, self._overdue = {}, [], []
        for key, span in armed:
            if span != NEVER:
                self.arm(key, span)

    @property
    def spans(self) -> int:
        return len(self._spans)

    def __len__(self) -> int:
        return sum(map(len, self._spans.values())) + len(self._overdue)
