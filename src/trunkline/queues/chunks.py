"""Puts the chunks of one snapshot in order: an early one waits for those before it, one that came is not taken again."""

from __future__ import annotations

from typing import Generic, TypeVar

# Ten times the window of a fetch: more than any sender that keeps to it can have on its way, and 40 MiB at the most.
MOST_EARLY = 40
C = TypeVar("C")


class InOrder(Generic[C]):
    def __init__(self, next: int = 0, most_early: int = MOST_EARLY) -> None:
        self.next = next
        self._most = most_early
        self._waiting: dict[int, C] = {}

    def offer(self, number: int, chunk: C) -> bool:
        """False: it is not taken, because it came before, or because too many wait already."""
        if number < self.next or number in self._waiting:
            return False
        if number > self.next and len(self) >= self._most:
            return False
        self._waiting[number] = chunk
        return True

    def first(self) -> C | None:
        """The next one in order, when it is here."""
        return self._waiting.get(self.next)

    def passed(self) -> None:
        self._waiting.pop(self.next, None)
        self.next += 1

    def __len__(self) -> int:
        """How many came early."""
        return len(self._waiting) - (self.next in self._waiting)
