"""What a sender and its watcher share: a sender goes on as long as the far end is not too far behind.

Without that a sender is measured that fills its disk, and not a queue that arrives.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass, field
from typing import Any

_SPAWN = multiprocessing.get_context("spawn")
_PAUSE_SECONDS = 0.002


def _number() -> Any:
    return _SPAWN.Value("q", 0)


@dataclass
class Pace:
    """`ahead`: how many entries may be under way. `sent` are those whose commit was acknowledged to the sender."""

    ahead: int
    sent: Any = field(default_factory=_number)
    arrived: Any = field(default_factory=_number)
    ended: Any = field(default_factory=_number)

    def wait(self) -> bool:
        """Until one more may go; False when it is over."""
        while not self.ended.value:
            if self.sent.value - self.arrived.value < self.ahead:
                return True
            time.sleep(_PAUSE_SECONDS)
        return False

    def may_go(self) -> bool:
        return bool(self.sent.value - self.arrived.value < self.ahead)


def spawn(work: Any, *args: Any) -> Any:
    """A process of its own that does `work(*args)`."""
    process = _SPAWN.Process(target=work, args=args, daemon=True)
    process.start()
    return process
