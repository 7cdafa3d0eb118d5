"""A tenant's quota: so many events per second over all instances of the site, exactly, whoever gets them.

A quota of q cuts time into *slots*, one every 1/q seconds. An event takes a slot, at its moment or later. One bucket of the
site hands slots out, in order and each once, as far back as `depth` (one second, or one slot if that is longer). An instance
asks it for many at a time, when it has events and no slots, and may use them until they are SPARE seconds older than that.

    N1  No window of t seconds sees more events than q * (t + depth + SPARE + the time an answer took) and one for rounding,
        wherever they are: their slots are of one stretch of that length. Slots held too long are lost, never saved.
    N2  After idling the slots of a whole second are there: so many events pass at once.
    N3  All traffic may be at one instance: it gets all slots, for nobody has a share.
    N4  Slots ahead of time are given by turns of TURN seconds, in the order of asking, and who has some asks for no more: so
        nobody who waits is passed over, and one who comes waits for at most a turn of each other.
    N5  A quota of 0 lets nothing pass, None everything. A change has a stamp; the newest counts. The bucket tells it to whoever
        asks with an older one, and who hears of a change otherwise throws its slots away. Asking costs nothing without traffic.

The bucket says how far from now its slots are, and an instance counts from the answer: their clocks need not agree, and a slow
answer is worth as much as a quick one. The bucket's time may jump back: it never gives slots more than LINE turns ahead.
"""

from __future__ import annotations

import math

import msgspec

TURN = 0.1
LINE = 50
SPARE = 0.05  # seconds; for so much of its recent use an instance asks beyond the events that wait
LISTEN = 1.0  # how often a tenant's waiting events ask whether a quota of 0 still holds
_ROUNDING = 1e-6


class Quota(msgspec.Struct, frozen=True):
    per_second: float | None
    stamp: float = 0.0

    @property
    def depth(self) -> float:
        return max(1.0, self.slot)

    @property
    def turn(self) -> float:
        return max(TURN, self.slot)

    @property
    def slot(self) -> float:
        return 1 / self.per_second if self.per_second else math.inf


NO_QUOTA = Quota(None, -math.inf)


class Lot(msgspec.Struct, frozen=True):
    """Slots in a row: how many, and the first one's moment in seconds from now; and the quota that is in force."""

    quota: Quota
    count: int = 0
    first: float = 0.0


class Shelf(msgspec.Struct, frozen=True):
    """A tenant's bucket: slots up to `upto` are gone."""

    quota: Quota
    upto: float = -math.inf


def grab(shelf: Shelf | None, quota: Quota, wanted: int, now: float) -> tuple[Shelf, Lot]:
    """One visit to the bucket. Those of Postgres and Redis do the same in their own words."""
    if shelf is None:
        shelf = Shelf(quota)
    elif quota.stamp > shelf.quota.stamp:
        shelf = Shelf(quota, min(shelf.upto, now))  # what was given ahead of time is thrown away by whoever has it
    quota = shelf.quota
    if not quota.per_second:
        return shelf, Lot(quota)
    upto = min(max(shelf.upto, now - quota.depth), now + LINE * quota.turn)
    behind, ahead = max(0.0, now - upto), max(0.0, upto - now)
    room = (behind + min(quota.turn, LINE * quota.turn - ahead)) * quota.per_second
    count = max(0, min(wanted, math.floor(room + _ROUNDING)))
    return Shelf(quota, upto + count * quota.slot), Lot(quota, count, upto + quota.slot - now)


class Limiter:
    """One instance's slots of one tenant: `take` what is there, `ask` for more if that is too little, and say what the bucket
    `answered`."""

    def __init__(self, quota: Quota = NO_QUOTA) -> None:
        self.quota = quota
        self._count, self._first = 0, 0.0
        self._used, self._asked_at, self._asks_at = 0, -math.inf, -math.inf

    def change(self, quota: Quota) -> bool:
        """Whether that is news."""
        if quota.stamp <= self.quota.stamp:
            return False
        self.quota, self._count, self._asks_at = quota, 0, -math.inf
        return True

    def take(self, wanted: int, now: float) -> int:
        """How many of so many events may pass now."""
        if self.quota.per_second is None:
            return wanted
        self._drop(self._until(now - self.quota.depth - SPARE))
        taken = min(wanted, self._until(now))
        self._drop(taken)
        self._used += taken
        return taken

    def ask(self, waiting: int, now: float) -> int | None:
        """How many slots to ask the bucket for, when so many events wait; None: do not ask now."""
        if self._count or waiting <= 0 or self.quota.per_second is None or now < self._asks_at:
            return None
        rate = self._used / max(SPARE, now - self._asked_at)
        self._used, self._asked_at = 0, now
        return waiting + int(rate * SPARE) if self.quota.per_second else 0

    def answered(self, lot: Lot, now: float) -> None:
        self.change(lot.quota)
        if lot.count and lot.quota.stamp == self.quota.stamp:
            self._count, self._first = lot.count, now + lot.first
        elif not lot.count:
            self._asks_at = now + (min(self.quota.turn, LISTEN) if self.quota.per_second else LISTEN)

    def failed(self, pause: float, now: float) -> None:
        """The bucket could not be asked: nothing passes meanwhile."""
        self._asks_at = now + pause

    def due(self, now: float) -> float:
        """Seconds until `take` or `ask` may give something."""
        return max(0.0, self._first - now if self._count else self._asks_at - now)

    def _until(self, moment: float) -> int:
        """How many of the slots in hand begin by then."""
        passed = (moment - self._first) * (self.quota.per_second or 0.0) + _ROUNDING
        return min(self._count, math.floor(passed) + 1) if passed >= 0 else 0

    def _drop(self, count: int) -> None:
        self._count -= count
        self._first += count * self.quota.slot if count else 0.0
