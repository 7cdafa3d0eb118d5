"""One receive queue as a route reads it: what was given, and what is done of it.

W1  Everything up to `position` is done. It moves only over what is done, in order.
W2  What failed is given again alone, before anything new of this queue, and only when nothing of the queue is under way.
W3  What is done behind something that failed is not given again, unless the process ends before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from trunkline.queues.reader import Received


@dataclass
class _One:
    entry: Received
    done: bool = False


@dataclass
class Window:
    position: int
    under_way: int = 0
    _read: deque[_One] = field(default_factory=deque)
    _failed: bool = False

    @property
    def upto(self) -> int:
        """The last position that was read."""
        return self.position + len(self._read)

    @property
    def wants(self) -> bool:
        """Whether it may be given something new."""
        return not self._failed

    def add(self, entries: Sequence[Received], without: Sequence[Received] = ()) -> None:
        """What was read, in order; `without`: of these nobody is told."""
        passed = {entry.position for entry in without}
        self._read.extend(_One(entry, entry.position in passed) for entry in entries)

    def given(self) -> None:
        self.under_way += 1

    def finished(self, positions: Sequence[int], done: Sequence[bool]) -> bool:
        """Of one batch; true when all of it is done."""
        self.under_way -= 1
        for position, well in zip(positions, done, strict=True):
            self._read[position - self.position - 1].done |= well
        self._failed = self._failed or not all(done)
        return all(done)

    def again(self) -> list[Received]:
        """What failed and may be given again now."""
        return [one.entry for one in self._read if not one.done] if self._failed and not self.under_way else []

    def retried(self) -> None:
        self._failed = False

    def done_upto(self) -> int:
        position = self.position
        for one in self._read:
            if not one.done:
                break
            position += 1
        return position

    def advanced(self, position: int) -> None:
        while self.position < position:
            self._read.popleft()
            self.position += 1
