"""How often somebody may ask: a token bucket as a pure function of time, and a bounded number of them.

A bucket holds at most `burst` and fills with `rate` per second; a request takes one. Somebody who was not seen for long has a
full bucket, which is the same as none: so when there are too many, the one used longest ago is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_BUCKETS = 10_000  # of about 200 bytes each
_ROUNDING = 1e-6


class Rate(NamedTuple):
    per_second: float
    burst: float


class Bucket(NamedTuple):
    level: float
    at: float


def take(bucket: Bucket | None, rate: Rate, now: float) -> tuple[Bucket, float]:
    """The bucket afterwards, and the seconds until one may be taken: 0 when it was."""
    level = rate.burst if bucket is None else min(rate.burst, bucket.level + max(0.0, now - bucket.at) * rate.per_second)
    if level >= 1 - _ROUNDING:
        return Bucket(max(0.0, level - 1), now), 0.0
    return Bucket(level, now), (1 - level) / rate.per_second


@dataclass
class Buckets:
    rate: Rate
    most: int = MAX_BUCKETS
    _held: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._held)

    def wait(self, who: str, now: float) -> float:
        """Seconds `who` has to wait; 0: the request may go on, and is counted."""
        self._held[who], seconds = take(self._held.get(who), self.rate, now)
        self._held.move_to_end(who)
        if len(self._held) > self.most:
            self._held.popitem(last=False)
        return seconds
