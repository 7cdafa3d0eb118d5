"""Virtual time, and the links between sites that join sessions: they lose, delay, double and overtake, as they are told."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from trunkline.queues.messages import CODEC, SessionMessage

Deed = Callable[[], None]


@dataclass
class Time:
    now: float = 0.0
    _deeds: list[tuple[float, int, Deed]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def after(self, seconds: float, deed: Deed) -> None:
        heapq.heappush(self._deeds, (self.now + seconds, next(self._numbers), deed))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._deeds and self._deeds[0][0] <= end:
            self.now, _, deed = heapq.heappop(self._deeds)
            deed()
        self.now = end

    def until(self, condition: Callable[[], bool], limit: float = 120.0) -> float:
        """Returns how long it took."""
        begin = self.now
        while not condition():
            assert self.now - begin < limit, f"not within {limit} s"
            self.run(0.05)
        return self.now - begin


@dataclass
class Link:
    """Every message is encoded on its way, as between processes."""

    time: Time
    copies: Callable[[SessionMessage], int] = lambda message: 1
    """0: it is lost."""
    delay: Callable[[], float] = lambda: 0.01
    cut: set[frozenset[str]] = field(default_factory=set)
    receivers: dict[str, Callable[[str, SessionMessage], None]] = field(default_factory=dict)
    said: list[tuple[float, str, str, SessionMessage]] = field(default_factory=list)

    def send(self, sender: str, to: str, message: SessionMessage) -> None:
        self.said.append((self.time.now, sender, to, message))
        body = CODEC.encode(message)
        for _ in range(self.copies(message)):
            self.time.after(self.delay(), lambda: self._arrive(sender, to, body))

    def _arrive(self, sender: str, to: str, body: bytes) -> None:
        if frozenset((sender, to)) not in self.cut:
            self.receivers[to](sender, CODEC.decode(body))

    def of_kind(self, kind: type[SessionMessage]) -> list[tuple[float, str, str, SessionMessage]]:
        return [each for each in self.said if isinstance(each[3], kind)]
