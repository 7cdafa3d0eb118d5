"""The delta syncer, whatever carries its texts.

Three tasks: one listens and, when the connection is lost, connects again; one sends; one calls the callbacks. The listener
never waits for a callback: a connection that is not read would hold up the server, and with Postgres every other publisher.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.errors import Retryable
from trunkline.net.tasks import Tasks
from trunkline.routes.sync.base import Ack, Delta, OnAck, OnDelta, OnGap, Operation
from trunkline.routes.sync.carrier import Carrier, Channel, Heard
from trunkline.routes.sync.texts import MOST_REASON, read_ack, read_delta
from trunkline.routes.sync.waiting import GAP, Inbox, Load, Outbox

MOST_SESSIONS = 10_000
"""Whose acks are still listened for: the newest."""
READ_AGAIN = 100
"""Sessions whose acks are read after a gap: the newest, which somebody may still wait for."""
DRAIN_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0

log = structlog.get_logger(__name__)


class Counts:
    """Since it was made. `lost`: how often the server was found away. `ignored`: texts that are no delta or ack. `failed`:
    callbacks that raised. `unsent`: deltas and acks that could not be sent though the server was there."""

    def __init__(self) -> None:
        self.heard = self.acks = self.ignored = self.gaps = self.failed = self.lost = self.unsent = 0


class Syncer:
    def __init__(self, instance: str, carrier: Carrier, chance: Callable[[], float] = random.random) -> None:
        self.counts = Counts()
        self._instance, self._carrier, self._chance = instance, carrier, chance
        self._outbox, self._inbox = Outbox(instance), Inbox()
        self._to_send, self._all_sent = asyncio.Event(), asyncio.Event()
        self._all_sent.set()
        self._sessions: dict[str, None] = {}
        self._tasks = Tasks()

    @property
    def instance(self) -> str:
        return self._instance

    async def start(self, on_delta: OnDelta, on_ack: OnAck, on_gap: OnGap) -> None:
        self._on_delta, self._on_ack, self._on_gap = on_delta, on_ack, on_gap
        listens: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks.spawn(self._listen(listens), f"deltas-heard {self._instance}")
        try:
            await listens
            await on_gap(lambda _: None)
        except BaseException:
            await self._end()
            raise
        self.counts.gaps += 1
        self._tasks.spawn(self._send(), f"deltas-sent {self._instance}")
        self._tasks.spawn(self._look(), f"deltas-looked-at {self._instance}")

    async def stop(self) -> None:
        try:
            if len(self._tasks):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await self._all_sent.wait()
        except TimeoutError:
            log.warning("deltas were not sent", to=self._carrier.title, next_step="none: the others repair")
        finally:
            await self._end()

    async def _end(self) -> None:
        await self._tasks.cancel()
        await self._carrier.close()
        self._inbox = Inbox()

    def publish(self, deltas: Sequence[Delta]) -> None:
        if not deltas:
            return
        self._remember(deltas[0].session)
        self._outbox.publish(deltas)
        self._wake_sender()

    def ack(self, ack: Ack) -> None:
        self._outbox.ack(ack if len(ack.reason) <= MOST_REASON else _cut(ack))
        self._wake_sender()

    def _wake_sender(self) -> None:
        self._all_sent.clear()
        self._to_send.set()

    def _remember(self, session: str) -> None:
        self._sessions[session] = None
        if len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]

    async def _listen(self, listens: asyncio.Future[None]) -> None:
        backoff = self._backoff()
        while True:
            try:
                async with self._carrier.listening(list(self._sessions)[-READ_AGAIN:]) as heard:
                    backoff.success()
                    self._listens(listens)
                    async for each in heard:
                        self._hear(each)
            except Exception as error:
                if not listens.done():
                    listens.set_exception(error)
                    return
                await self._rest("route changes of others are not heard", error, backoff)

    def _listens(self, first: asyncio.Future[None]) -> None:
        if first.done():
            self._inbox.put(GAP)
            log.info("route changes of others are heard again", by=self._carrier.title)
        else:
            first.set_result(None)

    def _hear(self, heard: Heard) -> None:
        hear = self._hear_ack if heard.channel is Channel.ACK else self._hear_delta
        for line in heard.text.split("\n"):
            hear(line)

    def _hear_delta(self, line: str) -> None:
        delta = read_delta(line)
        if delta is None:
            self.counts.ignored += 1
        elif delta.instance != self._instance:
            self.counts.heard += 1
            self._inbox.put(delta)

    def _hear_ack(self, line: str) -> None:
        ack = read_ack(line)
        if ack is None:
            self.counts.ignored += 1
        elif ack.session in self._sessions and ack.instance != self._instance:
            self.counts.acks += 1
            try:
                self._on_ack(ack)
            except Exception as error:
                self._failed("an ack", error)

    async def _look(self) -> None:
        backoff = self._backoff()
        while True:
            delta = await self._inbox.next()
            if delta.operation is not Operation.ALL:
                await self._done(self._on_delta(delta), f"the delta of {delta.tenant}/{delta.id}")
            elif not await self._look_at_everything(delta):
                await asyncio.sleep(backoff.after_failure())
                self._inbox.put(delta)
            else:
                backoff.success()

    async def _look_at_everything(self, delta: Delta) -> bool:
        self.counts.gaps += 1

        def answer(reason: str) -> None:
            if delta.session:
                self.ack(Ack.of(delta, self._instance, 0, reason))

        return await self._done(self._on_gap(answer), "a gap")

    async def _done(self, call: Awaitable[None], what: str) -> bool:
        try:
            await call
        except Exception as error:
            self._failed(what, error)
            return False
        return True

    def _failed(self, what: str, error: Exception) -> None:
        self.counts.failed += 1
        log.error(f"{what} was heard, and its callback failed", next_step="the next repair looks at it again", exc_info=error)

    async def _send(self) -> None:
        backoff = self._backoff()
        while True:
            await self._to_send.wait()
            self._to_send.clear()
            while load := self._outbox.take():
                await self._send_one(load, backoff)
            self._all_sent.set()

    async def _send_one(self, load: Load, backoff: Backoff) -> None:
        try:
            await self._carrier.send(load)
            backoff.success()
        except Retryable as error:
            self._outbox.give_back(load)
            await self._rest("route changes cannot be told", error, backoff)
        except Exception as error:
            self.counts.unsent += len(load.deltas) + len(load.acks)
            await self._rest("route changes were not told, the others repair", error, backoff)

    async def _rest(self, what: str, error: Exception, backoff: Backoff) -> None:
        self.counts.lost += 1
        if isinstance(error, Retryable):
            log.warning(what, why=error.why, next_step=error.next_step)
        else:
            log.error(what, next_step="report this defect", exc_info=error)
        await asyncio.sleep(backoff.after_failure())

    def _backoff(self) -> Backoff:
        return Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._chance)


def _cut(ack: Ack) -> Ack:
    reason = ack.reason[: MOST_REASON - 1] + "…"
    return Ack(ack.session, ack.instance, ack.revision, reason, ack.operation, ack.tenant, ack.id, ack.item)
