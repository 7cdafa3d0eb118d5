"""Instances of a site that write down what their delta syncers tell them, and what joins them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Protocol

import pytest

from trunkline.routes.keys import Tenant
from trunkline.routes.sync.base import Ack, Answer, Delta, Operation
from trunkline.routes.sync.carrier import Channel
from trunkline.routes.sync.syncer import Syncer

MINE = Tenant("myorg", "myapp")
_sessions = count(1)


class Between(Protocol):
    """What joins the instances under test."""

    def syncer(self, instance: str) -> Syncer: ...

    async def say(self, channel: Channel, text: str) -> None: ...

    async def connections(self) -> int:
        """Of all syncers."""

    async def lose(self) -> None: ...

    async def mend(self) -> None: ...


class Served(Between, Protocol):
    """Joined by a server, to which there are connections that can be cut: `listen` or `tell`."""

    async def cut(self, which: str) -> int:
        """How many there were."""


async def until(holds: Callable[[], object], why: Callable[[], object] = lambda: "", within: float = 30.0) -> None:
    try:
        async with asyncio.timeout(within):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    except TimeoutError:
        pytest.fail(f"it did not come to hold within {within} s: {why()}")


class Ear:
    """An instance that writes down what it hears."""

    def __init__(self, syncer: Syncer) -> None:
        self.syncer = syncer
        self.deltas: list[Delta] = []
        self.acks: list[Ack] = []
        self.gaps = 0

    @property
    def name(self) -> str:
        return self.syncer.instance

    @property
    def ids(self) -> list[str]:
        return [delta.id for delta in self.deltas]

    async def on_delta(self, delta: Delta) -> None:
        self.deltas.append(delta)

    def on_ack(self, ack: Ack) -> None:
        self.acks.append(ack)

    async def on_gap(self, answer: Answer) -> None:
        self.gaps += 1
        answer("")

    async def start(self) -> None:
        await self.syncer.start(self.on_delta, self.on_ack, self.on_gap)

    def publish(self, *ids: str, operation: Operation = Operation.ADD) -> str:
        session = new_session()
        self.syncer.publish([Delta(operation, MINE, id, self.name, session) for id in ids])
        return session


def new_session() -> str:
    return f"session-{next(_sessions)}"


@asynccontextmanager
async def listening(*ears: Ear) -> AsyncIterator[None]:
    try:
        for ear in ears:
            await ear.start()
        yield
    finally:
        for ear in ears:
            await ear.syncer.stop()


def joined(channel: Between, number: int, kind: type[Ear] = Ear) -> list[Ear]:
    return [kind(channel.syncer(f"i{n}")) for n in range(1, number + 1)]
