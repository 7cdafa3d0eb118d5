"""The queue receiver: a named consumer over all receive queues of a client, new ones included.

1.  Each queue has its window (`queue_window`): a few batches under way, and its position behind what is done.
2.  A position moves in a transaction that is fenced with the grant of the group: whoever lost it writes nothing down (H01).
3.  Windows outlast a lost connection: what is under way then is not given again. If somebody else moved the position
    meanwhile, the window is forgotten and the queue is read from there.
4.  It polls, like every consumer: 20 ms after the last work, at most 250 ms when all is quiet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.errors import Retryable
from trunkline.db.away import AWAY, in_one_line
from trunkline.db.lease import Grant
from trunkline.queues import consumers
from trunkline.queues.kinds import Kind
from trunkline.queues.reader import Received
from trunkline.routes.ends import Give, Place
from trunkline.routes.outcome import Done, Outcome
from trunkline.routes.receivers.queue import QueueReceiverConfig
from trunkline.routes.receivers.queue_consumer import Consumer, consumer_name
from trunkline.routes.receivers.queue_event import KINDS, queue_event
from trunkline.routes.receivers.queue_window import Window
from trunkline.trunk.log import LOST

MOST_OF_A_QUEUE = 2  # batches under way: while one is sent, the next is filtered
MOST_BATCHES = 8  # of all queues: each may hold BATCH_BYTES
_BUSY, _IDLE = 0.02, 0.25
_SEEN_SECONDS = 10.0
_FIRST_RETRY, _LAST_RETRY = 0.1, 5.0

T = TypeVar("T")
log = structlog.get_logger(__name__)


class _Queue:
    def __init__(self, position: int, backoff: Backoff) -> None:
        self.window, self.backoff, self.not_before = Window(position), backoff, 0.0


class QueueReceiving:
    def __init__(self, config: QueueReceiverConfig, place: Place) -> None:
        self._config, self._place = config, place
        self._name = consumer_name(place.plugin)
        self._queues: dict[int, _Queue] = {}
        self._batches = 0
        self._settled = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "route-queue")
        self._seen = float("-inf")

    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        try:
            consumer = await self._aside(lambda: Consumer(self._place.database, self._config.client, self._name, grant))
            try:
                await self._serve(consumer, give, stop)
            finally:
                await self._aside(consumer.close)
        except AWAY as error:
            why = in_one_line(error)
            raise Retryable(f"queues of client {self._config.client}", why, "see that the database runs") from None

    async def close(self) -> None:
        self._thread.shutdown()

    async def _aside(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _serve(self, consumer: Consumer, give: Give, stop: asyncio.Event) -> None:
        await self._aside(lambda: consumer.attach(self._config.start_at == "newest"))
        pause = _BUSY
        while not stop.is_set():
            worked = await self._round(consumer, give, stop)
            pause = _BUSY if worked else min(2 * pause, _IDLE)
            if not worked:
                await self._rest(pause, stop)
        while self._batches:
            self._settled.clear()
            await self._settled.wait()
        await self._advance(consumer)

    async def _rest(self, seconds: float, stop: asyncio.Event) -> None:
        """Until something is done, but no longer."""
        try:
            async with asyncio.timeout(min(seconds, _IDLE)):
                await self._settled.wait()
        except TimeoutError:
            return

    async def _round(self, consumer: Consumer, give: Give, stop: asyncio.Event) -> bool:
        self._settled.clear()
        worked = await self._advance(consumer)
        now = self._place.clock.monotonic()
        seen = now - self._seen >= _SEEN_SECONDS
        places = await self._aside(lambda: consumer.positions(seen))
        self._seen = now if seen else self._seen
        for place in places:
            if not stop.is_set() and self._batches < MOST_BATCHES:
                worked |= await self._step(consumer, give, place, self._known(place), stop)
        return worked

    def _known(self, place: consumers.Place) -> _Queue:
        queue = self._queues.get(place.queue)
        if queue is None or queue.window.position != place.position:
            backoff = Backoff(_FIRST_RETRY, _LAST_RETRY, self._place.random)
            queue = self._queues[place.queue] = _Queue(place.position, backoff)
        return queue

    async def _step(self, consumer: Consumer, give: Give, place: consumers.Place, queue: _Queue, stop: asyncio.Event) -> bool:
        """One batch of one queue, if it may have one now."""
        window = queue.window
        if again := window.again():
            if self._place.clock.monotonic() < queue.not_before:
                return False
            window.retried()
            await self._give(give, queue, again)
            return True
        if not window.wants or window.under_way >= MOST_OF_A_QUEUE or place.head <= window.upto:
            return False
        entries = await self._aside(lambda: consumer.read(place, window.upto, self._config.batch_entries))
        if stop.is_set():
            return False
        events = [entry for entry in entries if entry.kind in KINDS]
        for entry in entries:
            if entry.kind is Kind.LOST:
                log.error("entries are lost: their source had trimmed them", source=entry.source, which=entry.headers.get(LOST))
        window.add(entries, [entry for entry in entries if entry.kind not in KINDS])
        if events:
            await self._give(give, queue, events)
        return True

    async def _give(self, give: Give, queue: _Queue, entries: list[Received]) -> None:
        at = self._place.clock.wall()
        events = [queue_event(self._config.client, entry, self._place.tenant, at) for entry in entries]
        positions = [entry.position for entry in entries]
        queue.window.given()
        self._batches += 1
        try:
            future = await give(events, self._config.acknowledge_timeout)
        except BaseException:
            self._finished(queue, positions, None)
            raise
        future.add_done_callback(
            lambda done: self._finished(queue, positions, None if done.cancelled() or done.exception() else done.result())
        )

    def _finished(self, queue: _Queue, positions: list[int], outcomes: list[Done] | None) -> None:
        well = [False] * len(positions) if outcomes is None else [done.outcome is Outcome.ACKED for done in outcomes]
        self._batches -= 1
        if queue.window.finished(positions, well):
            queue.backoff.success()
        else:
            queue.not_before = self._place.clock.monotonic() + queue.backoff.after_failure()
        self._settled.set()

    async def _advance(self, consumer: Consumer) -> bool:
        moved = False
        for number, queue in list(self._queues.items()):
            done, at = queue.window.done_upto(), queue.window.position
            if done > at:
                try:
                    await self._aside(lambda number=number, done=done, at=at: consumer.advance(number, done, at))  # type: ignore[misc]
                except consumers.Overtaken:
                    del self._queues[number]
                    raise
                queue.window.advanced(done)
                moved = True
        return moved
