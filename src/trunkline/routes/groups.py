"""Who runs a receiver group: all live receivers of one plugin on one cluster run at one instance of the site.

Whoever can run a group tries to keep its lease (`trunkline.db.keeper`: 5 s, renewed every 1.5 s, with an epoch for fenced
work). Rules, numbered as the hazard they prevent:

H04  Rendezvous hashing says who is preferred: of those who are alive and can run the group, so that groups spread evenly and
     few move when an instance comes or goes. That is no claim: the preferred one takes a free lease at once, anyone else who
     is able when it has been free for 2 s.
     A holder whose work fails drains, lets go and rests, longer each time, until it has run well for STEADY_SECONDS. It
     rests longer than 2 s: so another gets its turn.
     A holder hands over to a preferred one that has been there for a while: it drains, then lets go. If it has to take the
     group back, because the preferred one is alive but broken, it waits twice as long before the next try.

`Standing` decides, and has neither clock nor database; `GroupKeepers` does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.clock import Clock
from trunkline.db.keeper import FREE_SECONDS, LeaseKeeper
from trunkline.db.lease import STANDBY_TERMS, Grant, Terms

HAND_OVER_SECONDS = 10.0
LONGEST_HAND_OVER = 3600.0
STEADY_SECONDS = 60.0
LOOK_SECONDS, ABLE_SECONDS = 0.5, 1.0
DRAIN_SECONDS = 3.0  # what is left of a lease at least when its work has to end
FIRST_REST, LONGEST_REST = 12.0, 300.0  # of a rest at least half is waited: the drain, and the time that others need

log = structlog.get_logger(__name__)


class Group(msgspec.Struct, frozen=True, order=True):
    plugin: str
    cluster: str

    def __str__(self) -> str:
        return f"{self.plugin} at {self.cluster}" if self.cluster else self.plugin

    @property
    def lease(self) -> str:
        return f"routes:{self.plugin}:{self.cluster}"


def ranked(group: Group, instances: Iterable[str]) -> list[str]:
    """The instances in the order in which they should run the group; whoever goes changes nothing among the others."""
    return sorted(instances, key=lambda instance: _weight(group, instance), reverse=True)


def _weight(group: Group, instance: str) -> bytes:
    lease = group.lease.encode()
    return hashlib.blake2b(b"%d:%s%s" % (len(lease), lease, instance.encode()), digest_size=16).digest()


@dataclass
class Standing:
    """How one instance stands to one group. `able`: those who are alive and can run it."""

    me: str
    group: Group
    backoff: Backoff
    hand_over: float = HAND_OVER_SECONDS
    patience: float = field(default=0.0)
    _rival: str = field(default="")
    _rival_since: float = field(default=0.0)
    _given_to: str = field(default="")
    _won_at: float = field(default=0.0)

    def preferred(self, able: Set[str]) -> bool:
        return self._first(able) == self.me

    def won(self, able: Set[str], now: float) -> None:
        in_vain = self._given_to != "" and self._first(able) == self._given_to
        self.patience = min(2 * self.patience, LONGEST_HAND_OVER) if in_vain else self.hand_over
        self._given_to = self._rival = ""
        self._won_at = now

    def hands_over(self, able: Set[str], now: float) -> bool:
        """Asked again and again while it holds the group: whether another shall have it now."""
        if now - self._won_at >= STEADY_SECONDS:
            self.backoff.success()
        first = self._first(able)
        if first in ("", self.me):
            self._rival = ""
        elif first != self._rival:
            self._rival, self._rival_since = first, now
        elif now - self._rival_since >= self.patience:
            self._given_to = first
            return True
        return False

    def failed(self) -> float:
        """The seconds for which it leaves the group to others."""
        return self.backoff.after_failure()

    def _first(self, able: Set[str]) -> str:
        return next(iter(ranked(self.group, able)), "")


class GroupWork(Protocol):
    """Called by the keeper's threads; `begin` and `drain` of a group alternate."""

    def begin(self, group: Group, grant: Grant) -> None:
        """Returns soon: what takes long is done elsewhere, and a failure there told to `GroupKeepers.failed`. Raising is
        failing, too."""

    def drain(self, group: Group) -> None:
        """Returns when nothing of the group runs here any more, whether it had begun well or not; within DRAIN_SECONDS, for
        the lease is not renewed meanwhile."""


Able = Callable[[Group], Set[str]]


class GroupKeepers:
    """The groups that this instance can run: `keep` says which these are, `run` looks after them until it is cancelled."""

    def __init__(
        self, dsn: str, me: str, able: Able, work: GroupWork, clock: Clock, random: Callable[[], float],
        terms: Terms = STANDBY_TERMS, hand_over: float = HAND_OVER_SECONDS,
    ) -> None:  # fmt: skip
        self._dsn, self._me, self._able, self._work, self._clock = dsn, me, able, work, clock
        self._random, self._terms, self._hand_over = random, terms, hand_over
        self._keepers: dict[Group, _Keeper] = {}
        self._changing, self._ended = threading.Lock(), False

    @property
    def held(self) -> dict[Group, Grant]:
        return {group: grant for group, keeper in self._keepers.items() if (grant := keeper.lease.grant) is not None}

    def keep(self, groups: Set[Group]) -> None:
        """Those that are no longer named are drained and let go of: this blocks until it is done. A call that comes behind
        the end of `run`, from a thread that could not be cancelled, keeps nothing."""
        with self._changing:
            wanted = frozenset() if self._ended else groups
            gone = [self._keepers.pop(group) for group in set(self._keepers) - wanted]
            for group in wanted - set(self._keepers):
                self._keepers[group] = self._started(group)
        for keeper in gone:
            keeper.lease.stop()

    def able(self, group: Group) -> Set[str]:
        """Instances that are alive and can run it."""
        return self._able(group)

    def failed(self, group: Group, reason: str) -> None:
        """Its work here cannot go on: it is drained, and another may try."""
        if (keeper := self._keepers.get(group)) is not None:
            keeper.failed(reason)

    async def run(self) -> None:
        try:
            while True:
                for keeper in list(self._keepers.values()):
                    keeper.look()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        with self._changing:
            self._ended = True
        self.keep(frozenset())

    def _started(self, group: Group) -> _Keeper:
        standing = Standing(self._me, group, Backoff(FIRST_REST, LONGEST_REST, self._random), self._hand_over)
        keeper = _Keeper(standing, self._able, self._work, self._clock)
        keeper.lease = LeaseKeeper(
            self._dsn, group.lease, self._terms, self._clock, keeper.on_won, keeper.on_lost,
            owner=self._me, preferred=lambda: standing.preferred(self._able(group)),
        )  # fmt: skip
        keeper.lease.start()
        return keeper


async def keep_wanted(keepers: GroupKeepers, wanted: Callable[[], Set[Group]], changed: asyncio.Event) -> None:
    """Keeps what is wanted until it is cancelled: looks when something changed, and now and then, for instances come and go."""
    kept: Set[Group] = frozenset()
    while True:
        now = wanted()
        if now != kept:
            await asyncio.to_thread(keepers.keep, now)
            kept = now
        changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ABLE_SECONDS):
                await changed.wait()


class _Keeper:
    """One group's lease and standing; the lock is for the standing, which threads and the loop share."""

    lease: LeaseKeeper

    def __init__(self, standing: Standing, able: Able, work: GroupWork, clock: Clock) -> None:
        self._standing, self._able, self._work, self._clock = standing, able, work, clock
        self._group = standing.group
        self._lock = threading.Lock()

    def on_won(self, grant: Grant) -> None:
        with self._lock:
            self._standing.won(self._able(self._group), self._clock.monotonic())
        log.info("this instance runs a receiver group", group=str(self._group), epoch=grant.epoch)
        try:
            self._work.begin(self._group, grant)
        except Exception as error:
            self.failed(f"{type(error).__name__}: {error}")

    def on_lost(self) -> None:
        try:
            self._work.drain(self._group)
        except Exception as error:
            log.error(
                "a receiver group could not be drained", group=str(self._group), reason=f"{type(error).__name__}: {error}"
            )
        log.info("this instance no longer runs a receiver group", group=str(self._group))

    def failed(self, reason: str) -> None:
        with self._lock:
            rest = self._standing.failed()
        log.warning("a receiver group failed; another may try", group=str(self._group), reason=reason, rests=round(rest, 1))
        self.lease.give_up(rest)

    def look(self) -> None:
        if self.lease.grant is None:
            return
        with self._lock:
            goes = self._standing.hands_over(self._able(self._group), self._clock.monotonic())
        if goes:
            log.info("a receiver group goes to the preferred instance", group=str(self._group))
            self.lease.give_up(FREE_SECONDS)
