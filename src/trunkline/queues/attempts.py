"""How much of a queue is offered at once after something in it was refused.

A batch is offered again as it was, up to `tries` times: most refusals pass by themselves. After that it is narrowed by halves
from its beginning, so that what lies before the refused message gets through in order, and what is refused alone is it.
Without a number of tries a batch is offered again for ever.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Attempts:
    tries: int | None
    failures: int = 0
    """Of the batch that begins at the present position."""
    suspects: int = 0
    """So many messages from the present position on hold at least one that was refused."""
    width: int = 0

    def most(self, batch: int) -> int:
        return min(batch, self.width) if self.suspects else batch

    def accepted(self, count: int) -> None:
        self.failures = 0
        self.suspects = max(0, self.suspects - count)
        self.width = min(2 * self.width, self.suspects)

    def refused(self, count: int) -> bool:
        """True: this one message is given up."""
        self.failures += 1
        if self.tries is None or (self.failures < self.tries and not self.suspects):
            return False
        if count == 1:
            return self.failures >= self.tries
        self.suspects = self.suspects or count
        self.width = count // 2
        return False
