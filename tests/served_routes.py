"""A site of some instances in a thread: one table in memory, deltas between them, and the real API over the first."""

from __future__ import annotations

import asyncio
import queue
import random
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any

import structlog

from memory_bridge import MemoryBridge
from memory_queues import MemoryQueues
from memory_store import MemoryStore
from routes_in_memory import NEVER
from running_routes import here, pool_of
from trunkline.api.app import create_app
from trunkline.api.server import serve
from trunkline.core.clock import SystemClock
from trunkline.core.config import ApiConfig
from trunkline.core.secret import Secret
from trunkline.routes.asked import RoutesAsked
from trunkline.routes.compile import CompiledRoute
from trunkline.routes.counted import SparkCounts
from trunkline.routes.instances import Instance
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.live import LiveRoute
from trunkline.routes.local.deadletters import DeadLetters
from trunkline.routes.local.outbox import Outbox
from trunkline.routes.local.runner import LocalRunner
from trunkline.routes.manager import Making, RoutingTableManager, rests_outside
from trunkline.routes.model import RouteReader, read_route
from trunkline.routes.operating import RoutesOperating
from trunkline.routes.plugin import Around
from trunkline.routes.quota_buckets import MemoryBuckets
from trunkline.routes.quotas import Quotas
from trunkline.routes.registry import registry
from trunkline.routes.storage.base import Body, RouteConfig
from trunkline.routes.storage.memory import MemoryStorage
from trunkline.routes.storage.postgres import PostgresStorage
from trunkline.routes.sync.memory import MemoryHub, MemorySyncer
from trunkline.routes.sync.postgres import PostgresSyncer
from trunkline.routes.tenants import Tenants
from trunkline.routes.workshop import Workshop

SECRETS = {"all": {"all": {"redis.password": Secret("never-shown"), "api.token": Secret("never-shown")}}}


class QuietRunner:
    """Runs nothing. `refuses`: ids of routes that it cannot start."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.refuses = ""

    async def start(self, route: LiveRoute) -> None:
        self._check()
        self.running.add(route.hash)

    async def replace(self, old: LiveRoute, new: LiveRoute) -> None:
        self._check()
        self.running = self.running - {old.hash} | {new.hash}

    async def stop(self, route: LiveRoute) -> None:
        self.running.discard(route.hash)

    def _check(self) -> None:
        if self.refuses:
            raise ConnectionError(self.refuses)


class ServedRoutes:
    """`runners`: one for each instance."""

    def __init__(self, instances: int) -> None:
        self.names = [f"i{n + 1}" for n in range(instances)]
        self.runners = [QuietRunner() for _ in self.names]
        self.storage, self.asked, self._hub, self._clock = MemoryStorage(), RoutesAsked(), MemoryHub(), SystemClock()
        self._workshop = Workshop(registry(), Around({"site": "lyon"}, self._clock.wall), lambda: SECRETS)
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.storage.open()
        async with AsyncExitStack() as stack:
            managers = [await stack.enter_async_context(self._instance(n)) for n in range(len(self.names))]
            tenants = Tenants(self.storage, Quotas(MemoryBuckets(self._clock), self._clock, random.random), random.random)
            others = [Instance(name, "node", "", 0.0) for name in self.names[1:]]
            self.asked.begin(RoutesOperating(managers[0], self.storage, tenants, self._workshop, lambda: others))
            try:
                yield
            finally:
                self.asked.end()
        await self.storage.close()

    @asynccontextmanager
    async def _instance(self, n: int) -> AsyncIterator[RoutingTableManager]:
        syncer = MemorySyncer(self._hub, self.names[n])
        manager = RoutingTableManager(
            self.storage, syncer, self.runners[n], self._making(), self._clock, random.random, NEVER,
            lambda: [name for name in self.names if name != self.names[n]],
        )  # fmt: skip
        await manager.start()
        try:
            yield manager
        finally:
            await manager.stop()

    def _making(self) -> Making:
        reader = RouteReader()

        def read(tenant: Tenant, body: Body) -> Any:
            return read_route(dict(body), reader, tenant).routes[0]

        def compiled(config: RouteConfig) -> CompiledRoute:
            return self._workshop.compiled(read(config.key.tenant, {**config.body, "id": config.key.id}).route)

        return Making(lambda tenant, body: read(tenant, body).hash, compiled, rests_outside(""))


class RunningRoutes(ServedRoutes):
    """One instance whose routes run, over a real database."""

    def __init__(self, dsn: str) -> None:
        super().__init__(1)
        self._dsn = dsn

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        quotas, storage = Quotas(MemoryBuckets(self._clock), self._clock, random.random), PostgresStorage(self._dsn)
        await storage.open()
        tenants = Tenants(storage, quotas, random.random)

        async def stored(key: RouteKey) -> RouteConfig | None:
            return (await storage.read([key])).get(key)

        async with pool_of(self._dsn) as pool:
            runner = LocalRunner(here(self._dsn, pool), registry(), {}, quotas, Outbox(pool))
            await runner.open()
            manager = RoutingTableManager(
                storage, PostgresSyncer(self._dsn, "i1"), runner, self._making(), self._clock, random.random, NEVER
            )
            await manager.start()
            runner.receive(stored)
            operating = RoutesOperating(
                manager,
                storage,
                tenants,
                self._workshop,
                runner=runner,
                hooks=runner.hooks,
                dead_letters=DeadLetters(pool),
                counts_of=runner.counts,
                spark=SparkCounts(pool),
            )
            self.asked.begin(operating)
            try:
                yield
            finally:
                self.asked.end()
                await runner.rest()
                await manager.stop()
                await runner.close()
                await storage.close()


@contextmanager
def served_routes(instances: int = 1, dsn: str = "", views: Mapping[str, Any] | None = None) -> Iterator[ServedRoutes]:
    """`dsn`: a database with queues and routes; then there is one instance, and its routes run."""
    site = RunningRoutes(dsn) if dsn else ServedRoutes(instances)
    none = {"status": dict, "topology": dict, "trunk": dict, "checks": list, "inject": lambda *_: []}
    have = {"queues": MemoryQueues(), "bridge": MemoryBridge(), "store": MemoryStore(), "routes": site.asked}
    view = SimpleNamespace(**{**none, **have, **(views or {})})
    bound: queue.Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def run() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        async with site.running():
            await serve(create_app(view, ApiConfig()), "127.0.0.1:0", lambda address: bound.put((address, loop, stop)), stop)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    with structlog.testing.capture_logs():  # standard output is for the command under test
        thread.start()
        address, loop, stop = bound.get(timeout=30)
        site.url = f"http://{address}"
        try:
            yield site
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
