"""A live route at work: events through its filters, and what comes out into its lane.

T1  Its batches go through the filters one after the other: on the loop, or in a thread if a filter may block. So the order of
    its receiver is that of its lane.
T2  An event is done when all that became of it is: sent, kept for another try, a committed dead letter, or dropped. With
    fire_and_forget it is done when it is handed over.

T3 to T5 are in `trunkline.routes.local.chained`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from trunkline.core.clock import Clock
from trunkline.core.errors import Invalid
from trunkline.net.tasks import Tasks
from trunkline.routes.acks import Node
from trunkline.routes.chain import MAX_REASON, Ran
from trunkline.routes.compile import CompiledRoute
from trunkline.routes.ends import Sendable
from trunkline.routes.event import Event
from trunkline.routes.leaves import Leaves
from trunkline.routes.live import LiveRoute
from trunkline.routes.local.booking import Booking
from trunkline.routes.local.burying import Dead, Undertaker
from trunkline.routes.local.chained import Chained, Made
from trunkline.routes.local.counts import RouteCounts
from trunkline.routes.local.keeping import MESSAGE, Keeper, LaneName, Letter
from trunkline.routes.local.lane import Lane
from trunkline.routes.local.outbox import Row
from trunkline.routes.local.sending import Sender
from trunkline.routes.local.slots import Item
from trunkline.routes.naming import numbered
from trunkline.routes.outcome import Done
from trunkline.routes.plugin import SenderPlugin
from trunkline.routes.route import DeliveryMode, Route

if TYPE_CHECKING:
    from trunkline.routes.local.line import Line

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Shop:
    """What all tracks of a runner share. `threads`: for chains that may block."""

    clock: Clock
    random: Callable[[], float]
    threads: ThreadPoolExecutor
    keeper: Keeper | None
    undertaker: Undertaker
    leaves: Leaves


class Job(msgspec.Struct, frozen=True):
    """Events for the filters, with their nodes; none of them: a flush. `at`: when they were given (monotonic). Of an event
    that is tried again, `first` is the place of the filter that it comes to, and `id` what it was called."""

    events: list[Event]
    nodes: list[Node]
    at: float
    first: int | None = None
    id: str = ""


class Track:
    """`sends`: the type of its sender's messages; `once`: they are sent effectively once."""

    def __init__(
        self, route: LiveRoute, line: Line, sender: Sender, plugin: SenderPlugin[Any], shop: Shop, blocking: bool
    ) -> None:
        self.route, self.line = route, line
        compiled: CompiledRoute = route.compiled
        self.config: Route = compiled.config
        self.chained = Chained(compiled.chain, line.acks)
        self._message, self._shop, self._blocking = compiled.message, shop, blocking
        sure = self.config.delivery_mode is not DeliveryMode.FIRE_AND_FORGET
        self.sends, self.once = plugin.sends, self.config.delivery_mode is DeliveryMode.EFFECTIVELY_ONCE
        self._key = str(route.config.key)
        name = LaneName(route.hash, route.config.key, self.config.sender.plugin)
        self.book = Booking(self, line, name, sure, shop.clock, shop.undertaker)
        keeper, leaves = (shop.keeper, None) if sure else (None, shop.leaves)
        self.lane = Lane(name, sender, self.book, keeper, shop.clock, shop.random, leaves)
        self._jobs: deque[Job] = deque()
        self.gated = self._hurries = self._running = self._forgets = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()

    @property
    def remembers(self) -> bool:
        return self.chained.remembers

    @property
    def counts(self) -> RouteCounts:
        return self.book.counts

    @property
    def at_once(self) -> bool:
        """What is asked of its filters is done when the call returns."""
        return not self.gated and not self._blocking

    # -- events

    def take(self, events: list[Event], nodes: list[Node], at: float) -> None:
        self.counts.received += len(events)
        self.counts.last = self._shop.clock.wall()
        self._do(Job(events, nodes, at))

    def again(self, event: Event, step: str, id: str, node: Node) -> None:
        """A dead letter that is tried again, from the filter of that name on; if there is no such one, from the beginning."""
        names = [*(at.name for at in self.chained.chain.steps), MESSAGE]
        first = names.index(step) if step in names else 0
        at = self._shop.clock.monotonic()
        self._do(Job([event if step in names else event.origin], [node], at, first, id))

    async def retry(self, event: Event, row: Row, seconds: float) -> Done:
        """One that waits in the outbox."""
        return await self.line.again(self, event, row.step, row.id, seconds)

    def drained(self, sent: int, dead: int) -> None:
        self.counts.sent += sent
        self.counts.dead += dead

    def gate(self) -> None:
        """What comes from now on waits for `open`."""
        self.gated = True

    def open(self) -> None:
        self.gated = False
        self._ring(self.chained.chain.due())
        while self._jobs and not self._blocking:
            self._run(self._jobs.popleft())
        if self._jobs:
            self._go()

    def hurry(self) -> None:
        """Filters hold nothing back any more."""
        self._hurries = True
        if self.chained.holds:
            self._do(Job([], [], self._shop.clock.monotonic()))

    def forget(self, nacked: bool = False) -> None:
        """Something failed that its source may give again (T4). `nacked`: it was this route."""
        if self._running:
            self._forgets = True
        elif self.remembers and (nacked or self.book.pending):
            self.chained.forget()

    async def worked(self) -> None:
        """No batch waits for the filters any more."""
        while self._jobs or self._running:
            await self._tasks.join()
            await asyncio.sleep(0.001)

    async def finish(self, seconds: float) -> None:
        """Everything is done or given back."""
        self.hurry()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.worked()
                await self.lane.done()
                while self.book.pending:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        await self._tasks.cancel()
        self._ring(None)
        await self.lane.finish(0.0)
        self.line.settle()

    def _do(self, job: Job) -> None:
        if not self.gated and not self._blocking:
            self._run(job)
            return
        self._jobs.append(job)
        if not self.gated:
            self._go()

    def _go(self) -> None:
        if not self._running:
            self._running = True
            self._tasks.spawn(self._work(), f"filters of {self.route.config.key}")

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._jobs:
                job = self._jobs.popleft()
                try:
                    ran = await loop.run_in_executor(self._shop.threads, self._begun(job))
                    self._came_out(self.chained.settle(ran), job)
                except Exception as error:
                    self._defect(error, job.nodes)
        finally:
            self._running = False

    def _run(self, job: Job) -> None:
        try:
            if job.events and job.first is None and not self.remembers:
                made = self.chained.straight(job.events, job.nodes)
            else:
                made = self.chained.settle(self._begun(job)())
            self._came_out(made, job)
        except Exception as error:
            self._defect(error, job.nodes)

    def _begun(self, job: Job) -> Callable[[], Ran]:
        """What is left to be done, on the loop or in a thread."""
        if not job.events:
            now = math.inf if self._hurries else self._shop.clock.wall()
            return lambda: self.chained.flush(now)
        if job.first is not None:
            events, first = self.chained.enter_again(job.events[0], job.nodes[0]), job.first
            return lambda: self.chained.chain.run(events, first)
        events = self.chained.enter(job.events, job.nodes, quiet=not self.book.pending)
        return lambda: self.chained.chain.run(events)

    def _came_out(self, made: Made, job: Job) -> None:
        counts = self.counts
        counts.matched += len(made.out)
        counts.dropped += made.dropped
        counts.failed += made.failed
        items, dead = self._prepared(made, job)
        self.book.begin(items, dead)
        if items:
            self.lane.put(items)
        if dead:
            self._shop.undertaker.take(dead)
        if self.remembers:
            self._afterwards(made, job)
        self.line.settle()

    def _prepared(self, made: Made, job: Job) -> tuple[list[Item], list[Dead]]:
        items: list[Item] = []
        dead = [
            self._dead(fault.event, self._id(fault.event, job), node, fault.step, fault.reason) for fault, node in made.letters
        ]
        for event, node in made.out:
            try:
                message = self._message(event)
            except Invalid as error:
                dead.append(self._dead(event, self._id(event, job), node, MESSAGE, f"{error.what}: {error.why}"))
            except Exception as error:
                self._defect(error, [node])
            else:
                items.append(Item(Sendable(self._id(event, job), message, self.once), node, event, job.at))
        self.chained.numbered()
        return items, [one for one in dead if one is not None]

    def _dead(self, event: Event, id: str, node: Node, step: str, reason: str) -> Dead | None:
        try:
            content = msgspec.json.encode(event)
        except Exception as error:
            self._defect(error, [node])
            return None
        letter = Letter(
            self.lane.name, step, id, event.source.id, content, reason[:MAX_REASON], event.source.at
        )  # fmt: skip
        return Dead(letter, node, self.book)

    def _id(self, event: Event, job: Job) -> str:
        return f"{job.id or f'{event.source.id}:{self._key}'}:{numbered(self.chained.number(event), event)}"

    def _afterwards(self, made: Made, job: Job) -> None:
        if made.failed or self._forgets:
            self._forgets = False
            self.chained.forget()
        if self._hurries and self.chained.holds and job.events:
            self._do(Job([], [], job.at))
        self._ring(self.chained.chain.due())

    def _ring(self, due: float | None) -> None:
        """Flushes then (unix seconds)."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            delay = max(0.0, due - self._shop.clock.wall())
            self._timer = asyncio.get_running_loop().call_later(delay, self._flush)

    def _flush(self) -> None:
        self._timer = None
        self._do(Job([], [], self._shop.clock.monotonic()))

    def _defect(self, error: Exception, nodes: Sequence[Node]) -> None:
        reason = f"the route raised {type(error).__name__}: {error}"[:MAX_REASON]
        log.error("a route failed", route=str(self.lane.name.key), reason=reason)
        self.counts.failed += len(nodes)
        for node in nodes:
            self.line.acks.nack(node, reason)
        self.line.settle()
