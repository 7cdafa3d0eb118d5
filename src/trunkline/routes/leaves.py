"""Senders that are left alone for a while: messages that nobody keeps (`fire_and_forget`) do not wait for one that is away.

One that takes its time and sends nothing of a call, or has no time left for all of it, is not asked for a while, which grows.
Then one call, which has less time, finds out whether it is back. One that fails at once holds nobody up, and is asked on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from trunkline.core.backoff import Backoff
from trunkline.core.clock import Clock
from trunkline.routes.ends import Undelivered
from trunkline.routes.shared import PluginKey

PROBE_SECONDS = 10.0
HOLDS_UP = 1.0  # seconds of a call that sent nothing
USED_UP = 0.8  # of the time of a call
FIRST_LEAVE, LONGEST_LEAVE = 2.0, 60.0
KNOWN_SECONDS = 600.0  # after its leave; nobody has anything for it any more
LEFT_OUT = Undelivered("its sender is away, and was not asked", again=True)


class Leaves:
    def __init__(self, clock: Clock, random: Callable[[], float]) -> None:
        self._clock, self._random = clock, random
        self._pauses: dict[PluginKey, Backoff] = {}
        self._until: dict[PluginKey, float] = {}

    def on(self, key: PluginKey) -> bool:
        return self._clock.monotonic() < self._until.get(key, -math.inf)

    def began(self, key: PluginKey) -> bool:
        """Also of one that is over: whether the sender is back is not known yet."""
        return key in self._until

    def fared(self, key: PluginKey, answers: Sequence[Undelivered | None], took: float, seconds: float = math.inf) -> bool:
        """Whether a leave begins with what became of a call, which had so many seconds. A message that is refused for good was
        heard, too."""
        heard = sum(1 for why in answers if why is None or not why.again)
        if (took >= USED_UP * seconds and heard < len(answers)) or (took >= HOLDS_UP and not heard):
            self._begin(key)
            return True
        if heard:
            self._end(key)
        return False

    def _begin(self, key: PluginKey) -> None:
        now = self._clock.monotonic()
        for old in [one for one, until in self._until.items() if until < now - KNOWN_SECONDS]:
            self._end(old)
        pause = self._pauses.setdefault(key, Backoff(FIRST_LEAVE, LONGEST_LEAVE, self._random))
        self._until[key] = now + pause.after_failure()

    def _end(self, key: PluginKey) -> None:
        self._pauses.pop(key, None)
        self._until.pop(key, None)
