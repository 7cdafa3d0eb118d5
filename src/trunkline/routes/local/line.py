"""One receiver's events: to the routes that may take them, and what became of each back to the receiver.

D1  A route is attached before the receiver starts. Events are given to routes found by the match index, never by a scan.
D2  A source event counts once against its tenant's quota, however many routes take it. One that may not pass in time failed.
D3  At most MAX_OPEN events are under way; and none comes in while a route's lane is full.
D4  Every event is finished once: acked when all routes are done with it, nacked by the first that cannot be, or by its
    deadline. What a route's own code raises is a nack at once, and harms no other route.
D5  Events of a receiver with a door go where that says: through the routes here, or into the site's ingest, where they are done
    when they are appended (`trunkline.routes.local.ingest`). They count against the quota when they come, and only then.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from trunkline.core.clock import Clock
from trunkline.routes.acks import Acks, Node, Root
from trunkline.routes.ends import Watch
from trunkline.routes.event import Event, Source
from trunkline.routes.groups import Group
from trunkline.routes.index import MatchIndex
from trunkline.routes.local.counts import ReceiverStatus
from trunkline.routes.local.reading import Reading
from trunkline.routes.local.slots import Given, Slot
from trunkline.routes.local.track import Track
from trunkline.routes.needs import needs_of
from trunkline.routes.outcome import Done, Outcome
from trunkline.routes.quotas import Quotas
from trunkline.routes.shared import PluginKey

if TYPE_CHECKING:
    from trunkline.routes.local.ingest import Door

MAX_OPEN = 10_000  # events: tens of megabytes of a receiver, and far more than a sender in good health has under way
SLICE = 250  # events between two turns of the loop, so that no batch holds others up for long

log = structlog.get_logger(__name__)


class Line:
    """`reading`: none for a receiver that reads nothing here; `group`: none if it runs everywhere. `door`: none if its
    routes run here only. `watched`: batches under way that somebody watches."""

    def __init__(self, key: PluginKey, quotas: Quotas, clock: Clock) -> None:
        self.key, self.acks = key, Acks()
        self.reading: Reading | None = None
        self.group: Group | None = None
        self.door: Door | None = None
        self.received, self.last = 0, 0.0
        self._quotas, self._clock = quotas, clock
        self._index = MatchIndex[Track]()
        self._remembering: dict[Track, None] = {}
        self._full: set[Track] = set()
        self._freed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf
        self.watched = 0

    def __len__(self) -> int:
        return len(self._index)

    def attach(self, track: Track) -> None:
        self._index.add(track, needs_of(track.config.filter_chain))
        if track.remembers:
            self._remembering[track] = None

    def detach(self, track: Track) -> None:
        self._index.discard(track)
        self._remembering.pop(track, None)
        self.room(track, False)

    def room(self, track: Track, full: bool) -> None:
        (self._full.add if full else self._full.discard)(track)
        self._freed.set()

    async def give(self, events: list[Event], seconds: float, watch: Watch | None = None) -> asyncio.Future[list[Done]]:
        """`watch` hears nothing of events that are appended: nobody knows yet who takes them."""
        if self.door is not None and await self.door.appends():
            return await self._append(self.door, events, seconds)
        return await self.enter(events, seconds, watch, None)

    async def enter(
        self, events: list[Event], seconds: float, watch: Watch | None, only: Track | None, counted: bool = False
    ) -> asyncio.Future[list[Done]]:
        """`only`: the one route they are for. `counted`: they came before, and were."""
        began = self._clock.monotonic()
        future: asyncio.Future[list[Done]] = asyncio.get_running_loop().create_future()
        events, given = _distinct(events), Given(events, future, began + seconds, watch)
        if watch is not None:
            self.watched += 1
            future.add_done_callback(self._unwatched)
        passed = len(events) if counted else await self._came(len(events), seconds)
        roomy = await self._room(len(events), given.until)
        roots = self._roots(events, given)
        count = passed if roomy else 0
        for at in range(0, count, SLICE):
            end = min(at + SLICE, count)
            self._dispatch(events[at:end], roots[at:end], began, only)
            if end < count:
                await asyncio.sleep(0)
        for root in roots[count:]:
            self.acks.nack(root, "too many events are under way" if not roomy else self._used_up)
        self.settle()
        return future

    async def quiet(self, seconds: float) -> None:
        """Until nothing is under way in its routes, but no longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.acks.open:
                    self._freed.clear()
                    await self._freed.wait()

    async def again(self, track: Track, event: Event, step: str, id: str, seconds: float) -> Done:
        """A dead letter of that route is tried again; it was counted when it came first."""
        future: asyncio.Future[list[Done]] = asyncio.get_running_loop().create_future()
        (root,) = self._roots([event], Given([event], future, self._clock.monotonic() + seconds, None))
        track.again(event, step, id, root)
        self.settle()
        return (await future)[0]

    def settle(self) -> None:
        """Tells what was finished since."""
        done = self.acks.take()
        if not done:
            return
        failed = False
        for one in done:
            slot: Slot = one.of
            slot.given.finish(slot.place, Done(slot.id, one.outcome, one.reason))
            failed |= one.outcome is not Outcome.ACKED
        if failed:
            for track in self._remembering:
                track.forget()
        self._freed.set()

    def status(self, routes: int) -> ReceiverStatus:
        running, failing = (self.reading.running, self.reading.failing) if self.reading is not None else (False, "")
        counts = dict(self.acks.counts)
        return ReceiverStatus(self.key, routes, running, failing, self.received, self.acks.open, counts, self.last)

    async def close(self) -> None:
        if self.reading is not None:
            await self.reading.close()
        if self._timer is not None:
            self._timer.cancel()
        self.acks.expire(math.inf)
        self.settle()

    @property
    def _used_up(self) -> str:
        return f"the quota of {self.key.tenant} is used up"

    async def _came(self, count: int, seconds: float) -> int:
        """Gives how many may pass."""
        self.received += count
        self.last = self._clock.wall()
        return await self._quotas.enter(self.key.tenant, count, seconds)

    async def _append(self, door: Door, events: list[Event], seconds: float) -> asyncio.Future[list[Done]]:
        until = self._clock.monotonic() + seconds
        events = _distinct(events)
        passed = await self._came(len(events), seconds)
        future = await door.append(events[:passed], max(0.0, until - self._clock.monotonic()))
        refused = [Done(event.source.id, Outcome.NACKED, self._used_up) for event in events[passed:]]
        return _followed_by(future, refused) if refused else future

    def _roots(self, events: Sequence[Event], given: Given) -> list[Root]:
        now = self._clock.monotonic()
        slots = [Slot(given, place, event.source.id) for place, event in enumerate(events)]
        roots = self.acks.roots(slots, now, max(0.0, given.until - now))
        self._ring(given.until)
        return roots

    def _dispatch(self, events: list[Event], roots: list[Root], at: float, only: Track | None) -> None:
        try:
            batches = self._index.batches(events) if only is None else {only: events}
            work = self._shared_out(batches, events, roots)
        except Exception as error:
            reason = f"it cannot be dispatched: {type(error).__name__}: {error}"
            log.error("events cannot be dispatched", receiver=self.key.plugin, reason=reason)
            for root in roots:
                self.acks.nack(root, reason)
            return
        for track, batch, nodes in work:
            track.take(batch, nodes, at)

    def _shared_out(
        self, batches: dict[Track, list[Event]], events: list[Event], roots: list[Root]
    ) -> list[tuple[Track, list[Event], list[Node]]]:
        """An event's first route gets its root, each other a child of it; what nobody takes is done."""
        own: dict[int, Root] = dict(zip(map(id, events), roots, strict=True))
        free = own.copy()
        child = self.acks.child
        work: list[tuple[Track, list[Event], list[Node]]] = []
        for track, batch in batches.items():
            nodes: list[Node] = [free.pop(key) if key in free else child(own[key]) for key in map(id, batch)]
            work.append((track, batch, nodes))
        for root in free.values():
            self.acks.ack(root)
        return work

    async def _room(self, count: int, until: float) -> bool:
        while self._full or (self.acks.open and self.acks.open + count > MAX_OPEN):
            left = until - self._clock.monotonic()
            if left <= 0:
                return False
            self._freed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._freed.wait()
        return True

    def _unwatched(self, future: asyncio.Future[list[Done]]) -> None:
        self.watched -= 1

    def _ring(self, at: float | None) -> None:
        """Looks at the deadlines then, if not before."""
        if at is None or at >= self._rings_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        delay = max(0.0, at - self._clock.monotonic())
        self._rings_at, self._timer = at, asyncio.get_running_loop().call_later(delay, self._expire)

    def _expire(self) -> None:
        self._rings_at, self._timer = math.inf, None
        self.acks.expire(self._clock.monotonic())
        self.settle()
        self._ring(self.acks.due())


def _followed_by(future: asyncio.Future[list[Done]], more: list[Done]) -> asyncio.Future[list[Done]]:
    both: asyncio.Future[list[Done]] = asyncio.get_running_loop().create_future()

    def finish(done: asyncio.Future[list[Done]]) -> None:
        if not both.done():
            both.set_result([*done.result(), *more])

    future.add_done_callback(finish)
    return both


def _distinct(events: list[Event]) -> list[Event]:
    """Each an object of its own, and with an id."""
    if all(event.source.id for event in events) and len(set(map(id, events))) == len(events):
        return events
    return [replace(event, source=_named(event.source)) for event in events]


def _named(source: Source) -> Source:
    return source if source.id else replace(source, id=uuid.uuid4().hex)
