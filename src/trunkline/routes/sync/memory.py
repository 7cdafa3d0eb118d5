"""Instances of one process: for a node that is alone, and for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from trunkline.core.errors import Retryable
from trunkline.routes.sync.carrier import Channel, Heard
from trunkline.routes.sync.syncer import Syncer
from trunkline.routes.sync.texts import ack_text, delta_text
from trunkline.routes.sync.waiting import Load


class MemoryHub:
    """What a server is to other syncers. It can be away as well (`lose`, `mend`)."""

    title = "the hub in memory"

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[Heard | None]] = set()
        self._away = False

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def say(self, channel: Channel, text: str) -> None:
        self._check()
        for listener in self._listeners:
            listener.put_nowait(Heard(channel, text))

    def lose(self) -> None:
        self._away = True
        for listener in self._listeners:
            listener.put_nowait(None)

    def mend(self) -> None:
        self._away = False

    @asynccontextmanager
    async def listening(self, _: Sequence[str]) -> AsyncIterator[AsyncIterator[Heard]]:
        self._check()
        queue: asyncio.Queue[Heard | None] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            yield self._heard(queue)
        finally:
            self._listeners.discard(queue)

    async def _heard(self, queue: asyncio.Queue[Heard | None]) -> AsyncIterator[Heard]:
        while heard := await queue.get():
            yield heard
        raise self._gone()

    async def send(self, load: Load) -> None:
        for delta in load.deltas:
            self.say(Channel.SYNC, delta_text(delta))
        for ack in load.acks:
            self.say(Channel.ACK, ack_text(ack))

    async def close(self) -> None: ...

    def _check(self) -> None:
        if self._away:
            raise self._gone()

    def _gone(self) -> Retryable:
        return Retryable(self.title, "it is away", "wait until it is back")


class MemorySyncer(Syncer):
    def __init__(self, hub: MemoryHub, instance: str) -> None:
        super().__init__(instance, hub)
