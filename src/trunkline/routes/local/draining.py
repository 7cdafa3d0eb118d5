"""Draining the outboxes of the routes that run here, and looking after those of routes that run nowhere any more (H33).

V1  A lane is drained in order, by one instance at a time, while its route only appends. A try that failed is followed by a
    pause that grows with the tries, and asks for fewer messages: a sender that is slow, and tells nothing of a call that took
    too long, gets as many in the end as it can take in time. A try that brought some of them on their way is none that failed.
V2  What the sender never takes becomes a dead letter. An event that is tried again goes through the route's filters, from the
    one that could not process it on; what comes out goes behind what waits in the lane.
V3  A lane whose route was updated belongs to what the route is now, if its sender is of the same plugin; otherwise, and if the
    route was removed, its messages become dead letters. The storage is asked, so that nobody decides by what it has not
    heard of yet.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.errors import Retryable, TrunklineError
from trunkline.net.tasks import Tasks
from trunkline.routes.ends import Sendable, Undelivered
from trunkline.routes.event import Event
from trunkline.routes.keys import RouteKey
from trunkline.routes.local.here import Here
from trunkline.routes.local.keeping import SENDER, LaneName
from trunkline.routes.local.outbox import Drained, Outbox, Row, WaitingLane
from trunkline.routes.outcome import Done, Outcome
from trunkline.routes.storage.base import RouteConfig

AT_ONCE = 500
AT_A_TIME = 16  # lanes that are drained side by side: more would only wait for connections
SEND_SECONDS = 10.0  # shorter than a lane is held
QUICK_SECONDS = SEND_SECONDS / 4  # twice as many messages are done in time, too
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
LOOK_SECONDS = 1.0
ORPHAN_SECONDS = 5.0  # so long a route may be between two revisions
REST_SECONDS = 5.0
FORGET_SECONDS = 3600.0

Stored = Callable[[RouteKey], Awaitable[RouteConfig | None]]
"""The route as the storage has it now."""

log = structlog.get_logger(__name__)


class DrainedSender(Protocol):
    async def send(self, messages: Sequence[Sendable], seconds: float) -> Sequence[Undelivered | None]: ...


class DrainedLane(Protocol):
    """`only_appends`: it has messages in the outbox, as far as is known; `drained`: perhaps no longer."""

    only_appends: bool
    drained: bool

    @property
    def name(self) -> LaneName: ...

    @property
    def keeps(self) -> bool: ...

    @property
    def sender(self) -> DrainedSender: ...


class DrainedRoute(Protocol):
    """A live route, as far as its outbox is concerned. `sends`: the type of its sender's messages; `once`: they are sent
    effectively once."""

    @property
    def lane(self) -> DrainedLane: ...

    @property
    def sends(self) -> type: ...

    @property
    def once(self) -> bool: ...

    def drained(self, sent: int, dead: int) -> None:
        """So many messages have left the outbox."""

    async def retry(self, event: Event, row: Row, seconds: float) -> Done:
        """V2."""


def _nowhere(hash: str) -> bool:
    return False


class Drainer:
    """`live`: the routes that run here, by hash; `elsewhere`: whether one runs, though not here. `every`: seconds between two
    looks. `waiting`: lanes that had something."""

    def __init__(
        self,
        outbox: Outbox,
        here: Here,
        live: Callable[[], Mapping[str, DrainedRoute]],
        stored: Stored | None,
        every: float = LOOK_SECONDS,
        elsewhere: Callable[[str], bool] = _nowhere,
    ) -> None:
        self._outbox, self._here, self._live, self._stored, self._every = outbox, here, live, stored, every
        self._elsewhere = elsewhere
        self.waiting: set[str] = set()
        self._draining: set[str] = set()
        self._orphans: dict[str, float] = {}
        self._resting = False
        self._looks, self._drains = Tasks(), Tasks()

    def start(self) -> None:
        self._looks.spawn(self._run(), "outboxes")
        self._looks.spawn(self._forget(), "ids of messages sent once")

    async def rest(self) -> None:
        self._resting = True
        await self._looks.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                await self._drains.join()
        await self._drains.cancel()

    async def look(self) -> list[WaitingLane]:
        """Lanes with something in their outbox only append from now on; others may perhaps send."""
        lanes = await self._outbox.lanes(self._here.instance)
        self.waiting = {lane.name.hash for lane in lanes}
        for hash, track in self._live().items():
            if hash in self.waiting:
                track.lane.only_appends = track.lane.keeps
            elif track.lane.only_appends:
                track.lane.drained = True
        return lanes

    async def _run(self) -> None:
        while True:
            try:
                for lane in await self.look():
                    await self._look_at(lane)
            except TrunklineError as error:
                log.warning("outboxes cannot be looked at", reason=error.why, next_step=error.next_step)
            await asyncio.sleep(self._every)

    async def _look_at(self, lane: WaitingLane) -> None:
        hash = lane.name.hash
        track = self._live().get(hash)
        if track is None:
            with contextlib.suppress(Retryable):
                if not self._elsewhere(hash):
                    await self._orphan(lane)
            return
        self._orphans.pop(hash, None)
        if lane.due and not lane.held and hash not in self._draining and len(self._draining) < AT_A_TIME:
            self._draining.add(hash)
            self._drains.spawn(self._drain(hash, track), f"outbox of {lane.name.key}")

    # -- draining

    async def _drain(self, hash: str, track: DrainedRoute) -> None:
        try:
            tries = await self._outbox.claim(hash, self._here.instance)
            count = max(1, AT_ONCE >> (tries or 0))
            while tries is not None and not self._resting:
                rows, began = await self._outbox.first(hash, count), self._here.clock.monotonic()
                if not rows:
                    return
                done = await self._tried(rows, track, tries)
                if self._here.clock.monotonic() - began < QUICK_SECONDS:
                    count = min(2 * count, AT_ONCE)
                left = await self._outbox.drained(hash, self._here.instance, done)
                track.drained(len(done.gone), len(done.dead))
                track.lane.drained = left == 0
                if left <= 0 or done.failure:
                    return
                tries = 0
        except TrunklineError as error:
            log.warning("an outbox cannot be drained", hash=hash, reason=error.why, next_step=error.next_step)
        finally:
            self._draining.discard(hash)

    async def _tried(self, rows: list[Row], track: DrainedRoute, tries: int) -> Drained:
        """Messages up to the first event, or that event."""
        count = next((n for n, row in enumerate(rows) if row.step != SENDER), len(rows))
        if count:
            done = await self._sent(rows[:count], track)
        else:
            done = await self._again(rows[0], track)
        pause = Backoff(FIRST_PAUSE, LONGEST_PAUSE, self._here.random, tries).after_failure() if done.failure else 0.0
        return msgspec.structs.replace(done, pause=pause)

    async def _sent(self, rows: list[Row], track: DrainedRoute) -> Drained:
        gone: list[int] = []
        dead: dict[int, str] = {}
        messages = {row: message for row in rows if (message := _read(row, track, dead)) is not None}
        try:
            answers = await track.lane.sender.send(list(messages.values()), SEND_SECONDS) if messages else ()
        except Exception as error:
            return Drained([], dead, f"the sender raised {type(error).__name__}: {error}")
        failure = ""
        for row, answer in zip(messages, answers, strict=True):
            if answer is None:
                gone.append(row.seq)
            elif answer.again:
                failure = failure or answer.reason or "it was not sent"
            else:
                dead[row.seq] = answer.reason
        return Drained(gone, dead, "" if gone else failure)

    async def _again(self, row: Row, track: DrainedRoute) -> Drained:
        try:
            event = msgspec.json.decode(row.message, type=Event)
        except msgspec.MsgspecError as error:
            return Drained([], {row.seq: f"it cannot be read: {error}"})
        done = await track.retry(event, row, SEND_SECONDS)
        return Drained([row.seq], {}) if done.outcome is Outcome.ACKED else Drained([], {}, done.reason)

    # -- lanes without a route

    async def _orphan(self, lane: WaitingLane) -> None:
        now, name = self._here.clock.monotonic(), lane.name
        if self._stored is None or now - self._orphans.setdefault(name.hash, now) < ORPHAN_SECONDS:
            return
        config = await self._stored(name.key)
        if config is None:
            number = await self._outbox.bury_lane(name.hash, "the route was removed")
            log.warning("a route was removed; what waited in its outbox are dead letters", route=str(name.key), messages=number)
        elif config.hash != name.hash and (track := self._live().get(config.hash)) is not None:
            await self._outbox.inherit(name, track.lane.name)
            track.lane.only_appends = True
        else:
            return
        self._orphans.pop(name.hash, None)

    async def _forget(self) -> None:
        while True:
            with contextlib.suppress(Retryable):
                await self._outbox.forget_sent()
            await asyncio.sleep(FORGET_SECONDS)


def _read(row: Row, track: DrainedRoute, dead: dict[int, str]) -> Sendable | None:
    try:
        message: Any = msgspec.json.decode(row.message, type=track.sends)
    except msgspec.MsgspecError as error:
        dead[row.seq] = f"it cannot be read: {error}"
        return None
    return Sendable(row.id, message, track.once)
