"""One instance of a site's routing table: storage, delta syncer and manager as in a node, around a runner that keeps the match
index and runs chains, and has no plugins to start."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from trunkline.core.clock import SystemClock
from trunkline.core.mistakes import Mistakes
from trunkline.routes.compile import CompiledRoute, compile_route
from trunkline.routes.event import Event
from trunkline.routes.index import MatchIndex
from trunkline.routes.keys import Tenant
from trunkline.routes.live import LiveRoute
from trunkline.routes.manager import Making, RoutingTableManager, rests_outside
from trunkline.routes.model import ReadRoute, RouteReader, read_route
from trunkline.routes.needs import needs_of
from trunkline.routes.storage.base import Body, RouteConfig
from trunkline.routes.storage.opened import storage_at
from trunkline.routes.sync.postgres import PostgresSyncer
from trunkline.routes.sync.redis import RedisSyncer


class IndexRunner:
    def __init__(self) -> None:
        self.running: dict[str, LiveRoute] = {}
        self.moved = asyncio.Event()
        self._index = MatchIndex[str]()

    async def start(self, route: LiveRoute) -> None:
        self._index.add(route.hash, needs_of(route.compiled.config.filter_chain))
        self.running[route.hash] = route
        self.moved.set()

    async def replace(self, old: LiveRoute, new: LiveRoute) -> None:
        await self.start(new)
        if old.hash != new.hash:
            await self.stop(old)

    async def stop(self, route: LiveRoute) -> None:
        self._index.discard(route.hash)
        del self.running[route.hash]

    def process(self, events: list[Event]) -> list[Any]:
        return [out for hash, mine in self._index.batches(events).items() for out in self.running[hash].compiled.run(mine)]


def making() -> Making:
    reader = RouteReader()

    def read(tenant: Tenant, body: Body) -> ReadRoute:
        reading = read_route(body, reader, tenant)
        if reading.mistakes:
            raise Mistakes("route", reading.mistakes, "mend it")
        return reading.routes[0]

    def compile(config: RouteConfig) -> CompiledRoute:
        return compile_route(read(config.key.tenant, config.body).route)

    return Making(lambda tenant, body: read(tenant, body).hash, compile, rests_outside(""))


@asynccontextmanager
async def instance(
    name: str, database: str, redis: str = "", others: Callable[[], Iterable[str]] = lambda: ()
) -> AsyncIterator[tuple[RoutingTableManager, IndexRunner]]:
    """Started, so all that is stored is live. `redis`: where storage and syncer are, in place of the database."""
    storage = storage_at(redis or "postgres", database)
    syncer = RedisSyncer(redis, name) if redis else PostgresSyncer(database, name)
    runner = IndexRunner()
    manager = RoutingTableManager(storage, syncer, runner, making(), SystemClock(), random.random, others=others)
    await storage.open()
    try:
        await manager.start()
        yield manager, runner
        await manager.stop()
    finally:
        await storage.close()
