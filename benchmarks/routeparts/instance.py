"""One instance of a site's routing table: storage, delta syncer, manager and local runner as in a node. Its routes read from a
receiver that gives what the benchmark tells it to, or from one that is idle."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from psycopg_pool import AsyncConnectionPool

from routeparts.local import SourceConfig, Tap
from trunkline.core.clock import SystemClock
from trunkline.routes.compile import NOWHERE
from trunkline.routes.ends import Place
from trunkline.routes.event import Event
from trunkline.routes.keys import RouteKey
from trunkline.routes.live import LiveRoute
from trunkline.routes.local.here import Here
from trunkline.routes.local.outbox import Outbox
from trunkline.routes.local.runner import LocalRunner
from trunkline.routes.making import making_at
from trunkline.routes.manager import RoutingTableManager
from trunkline.routes.outcome import Outcome
from trunkline.routes.plugin import ReceiverPlugin, Runs
from trunkline.routes.quota_buckets import MemoryBuckets
from trunkline.routes.quotas import Quotas
from trunkline.routes.registry import OURS, Registry
from trunkline.routes.senders.debug import DebugSender
from trunkline.routes.storage.opened import storage_at
from trunkline.routes.sync.postgres import PostgresSyncer
from trunkline.routes.sync.redis import RedisSyncer
from trunkline.routes.workshop import Workshop

CLOCK = SystemClock()


class Running(LocalRunner):
    """`moved`: is set when a route has started or was replaced."""

    def __init__(self, name: str, database: str, pool: Any) -> None:
        self.moved, self.tap = asyncio.Event(), Tap()
        self.registry = Registry((*OURS, ReceiverPlugin("source", SourceConfig, Runs.LOCAL, self._opened, everywhere=True)))
        here = Here("bench", name, database, pool, CLOCK, random.random)
        quotas = Quotas(MemoryBuckets(CLOCK), CLOCK, random.random)
        super().__init__(here, self.registry, {}, quotas, Outbox(pool))

    async def start(self, route: LiveRoute) -> None:
        await super().start(route)
        self.moved.set()

    async def replace(self, old: LiveRoute, new: LiveRoute) -> None:
        await super().replace(old, new)
        self.moved.set()

    async def _opened(self, config: SourceConfig, place: Place) -> Tap:
        return self.tap


class RunningInstance:
    def __init__(self, manager: RoutingTableManager, runner: Running) -> None:
        self.manager, self.runner = manager, runner

    async def sent(self, key: RouteKey, event: Event, seconds: float) -> Any:
        """What that route's sender, of debug, had last when the receiver heard that an event is done; none if it failed."""
        give, route = await self.runner.tap.give, self.manager.route(key)
        [done] = await (await give([event], seconds))
        sender = self.runner.sender(route) if route is not None else None
        assert isinstance(sender, DebugSender)
        return sender.history[-1].message if done.outcome is Outcome.ACKED and sender.history else None


@asynccontextmanager
async def instance(
    name: str, database: str, redis: str = "", others: Callable[[], Iterable[str]] = lambda: ()
) -> AsyncIterator[RunningInstance]:
    """Started, so all that is stored is live. `redis`: where storage and syncer are, in place of the database."""
    async with AsyncExitStack() as stack:
        pool = AsyncConnectionPool[Any](database, min_size=1, max_size=4, kwargs={"autocommit": True}, open=False)
        await stack.enter_async_context(pool)
        storage = storage_at(redis or "postgres", database)
        syncer = RedisSyncer(redis, name) if redis else PostgresSyncer(database, name)
        runner = Running(name, database, pool)
        making = making_at(Workshop(runner.registry, NOWHERE), "")
        manager = RoutingTableManager(storage, syncer, runner, making, CLOCK, random.random, others=others)
        await storage.open()
        stack.push_async_callback(storage.close)
        await runner.open()
        stack.push_async_callback(runner.close)
        await manager.start()
        stack.push_async_callback(manager.stop)
        runner.receive()
        stack.push_async_callback(runner.rest)
        yield RunningInstance(manager, runner)
