"""The two ends of a route while it runs: what a runner asks of receivers and senders, and what it gives them.

N1  A receiver gives its events in batches, in its source's order. `give` waits until a batch may come in (the tenant's quota,
    the events under way): so a source is read no faster than its events go. What it gives back is finished when every event
    of the batch is, and says of each, in the batch's order, what became of it: exactly once.
N2  An event that was acked is done at its source. What a nack means is the receiver's own affair: it comes again, or whoever
    sent it is told. A receiver that runs alone at its site (all but those that run `everywhere`) is given the grant of its
    group, and fences with it what it writes down of its progress.
N3  When `stop` is set a receiver reads no more, waits for what it has given, writes its progress down and returns. One that
    takes too long is cancelled. It raises `Retryable` when its source is away, and is then started again, with growing pauses.
N4  A sender says of each message whether it is where it shall be, as durable as that place is. Whether trying again may help
    is part of the answer; what it raises is the answer for all of them.
N5  A message has the same id whenever it is sent again, so that whoever gets it twice can know. One that is `once` is sent in
    a transaction that also keeps its id, and not if that id is there already (`SenderPlugin.once` says who can do that).
    A sender whose messages go one by one can be told how long it has (`TimedSending`): so what was sent is known as sent, also
    when there was no time for the others.
N6  Opening neither connects nor waits for what may be away: a broker that is down stops no route from starting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import msgspec
import psycopg
from psycopg_pool import AsyncConnectionPool

from trunkline.core.clock import Clock
from trunkline.db.lease import Grant
from trunkline.routes.event import Event
from trunkline.routes.keys import Tenant
from trunkline.routes.outcome import Done

Pool = AsyncConnectionPool[psycopg.AsyncConnection[Any]]


class Took(msgspec.Struct, frozen=True):
    """What one route made of an event. `route`: its id. `sent`: messages that are where they shall be; `kept`: those that wait
    for another try; `letters`: why something of it became a dead letter."""

    route: str
    sent: int = 0
    kept: int = 0
    letters: tuple[str, ...] = ()


class Watch(Protocol):
    """Hears which routes took an event, before the event is done. Those that dropped it are not told."""

    def took(self, took: Took) -> None: ...


class Give(Protocol):
    async def __call__(self, events: list[Event], seconds: float, watch: Watch | None = None) -> asyncio.Future[list[Done]]:
        """`seconds`: what is not done by then counts as failed."""


class Receiving(Protocol):
    """An open receiver."""

    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        """Until `stop` (N3), or until there will never be anything more."""

    async def close(self) -> None:
        """It does not run any more; called once."""


class Sendable(msgspec.Struct, frozen=True):
    """`message`: what the plugin's `message` made of an event."""

    id: str
    message: Any
    once: bool = False


class Undelivered(msgspec.Struct, frozen=True):
    """`again`: whether another try may help."""

    reason: str
    again: bool


class Sending(Protocol):
    """An open sender; several routes may share it, and call it at the same time."""

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        """An answer for each, in their order; none: it is sent."""

    async def close(self) -> None:
        """Flushes first; called once."""


@runtime_checkable
class TimedSending(Sending, Protocol):
    async def send_within(self, messages: Sequence[Sendable], seconds: float) -> Sequence[Undelivered | None]:
        """The same, before these seconds are over: what it did not come to may be tried again."""


class Bulk(Protocol):
    """An open sender for bulk: it is given many messages, and asked once what became of all of them. One thread uses it."""

    def put(self, messages: Sequence[Sendable]) -> None:
        """In their order; may wait for room."""

    def finish(self) -> dict[str, Undelivered]:
        """Returns when nothing is under way: those that were not sent since it was last asked, by their ids."""

    def close(self) -> None: ...


class PostHooks(Protocol):
    """Where receivers that have no server of their own hear what is posted to the node's API."""

    def add(self, tenant: Tenant, method: str, path: str, give: Give, seconds: float) -> Callable[[], None]:
        """`path`: of the request; empty for events that name none. Gives what takes it away again."""


@dataclass(frozen=True)
class Place:
    """The process that a plugin runs in, and what it may use of it. `plugin`: a name of this one plugin, the same at every
    instance of the site and after every restart: what it keeps for itself elsewhere (a consumer group) is named by it.
    `pool`: connections to the site's own database, `database` where that is."""

    site: str
    instance: str
    tenant: Tenant
    plugin: str
    pool: Pool
    database: str
    clock: Clock
    random: Callable[[], float]
    hooks: PostHooks


OpenReceiver = Callable[[Any, Place], Awaitable[Receiving]]
OpenSender = Callable[[Any, Place], Awaitable[Sending]]
OpenBulk = Callable[[Any, Place], Bulk]
