"""A site of one instance with its routing table in memory, as an API over it sees it, and clients of that API."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from memory_node import MemoryNode, client_over
from routes_in_memory import NEVER
from trunkline.core.clock import SystemClock
from trunkline.core.mistakes import Mistakes
from trunkline.core.secret import Secret
from trunkline.routes.asked import RoutesAsked
from trunkline.routes.compile import CompiledRoute
from trunkline.routes.instances import Instance
from trunkline.routes.keys import Tenant
from trunkline.routes.live import LiveRoute, Runner
from trunkline.routes.manager import Making, RoutingTableManager, rests_outside
from trunkline.routes.model import RouteReader, read_route
from trunkline.routes.operating import RoutesOperating
from trunkline.routes.quota_buckets import MemoryBuckets
from trunkline.routes.quotas import Quotas
from trunkline.routes.registry import registry
from trunkline.routes.storage.base import Body, RouteConfig, Storage
from trunkline.routes.storage.memory import MemoryStorage
from trunkline.routes.sync.base import DeltaSyncer
from trunkline.routes.sync.memory import MemoryHub, MemorySyncer
from trunkline.routes.tenants import Tenants
from trunkline.routes.workshop import Workshop

PASSWORD = "hunter2-never-shown"
SECRETS = {"myorg": {"myapp": {"kafka.password": Secret(PASSWORD), "api.token": Secret(PASSWORD)}}}
T = "/v1/orgs/myorg/applications/myapp"


def simple(**more: Any) -> dict[str, Any]:
    return {"userId": "boris", "receiver": {"plugin": "debug"}, "sender": {"plugin": "debug"}, **more}


class CountingRunner:
    """Starts and stops nothing, and counts."""

    def __init__(self) -> None:
        self.running: dict[str, LiveRoute] = {}
        self.told: list[str] = []
        self.fails = ""

    async def start(self, route: LiveRoute) -> None:
        self._check()
        self.told.append("start")
        self.running[route.hash] = route

    async def replace(self, old: LiveRoute, new: LiveRoute) -> None:
        self._check()
        self.told.append("replace")
        del self.running[old.hash]
        self.running[new.hash] = new

    async def stop(self, route: LiveRoute) -> None:
        self.told.append("stop")
        del self.running[route.hash]

    def _check(self) -> None:
        if self.fails:
            raise ConnectionError(self.fails)


def making(workshop: Workshop, region: str = "") -> Making:
    reader = RouteReader(workshop.plugins)

    def read(tenant: Tenant, body: Body) -> Any:
        reading = read_route(dict(body), reader, tenant)
        if reading.mistakes:
            raise Mistakes("stored route", reading.mistakes, "mend it")
        return reading.routes[0]

    def compiled(config: RouteConfig) -> CompiledRoute:
        return workshop.compiled(read(config.key.tenant, {**config.body, "id": config.key.id}).route)

    return Making(lambda tenant, body: read(tenant, body).hash, compiled, rests_outside(region))


@dataclass
class RoutedInstance:
    operating: RoutesOperating
    manager: RoutingTableManager
    storage: Storage
    runner: Any
    node: MemoryNode

    def client(self, **api: Any) -> httpx.AsyncClient:
        return client_over(self.node, **api)


@asynccontextmanager
async def routed(
    storage: Storage | None = None, syncer: DeltaSyncer | None = None, runner: Runner | None = None, region: str = "",
    others: Callable[[], list[str]] = list, alive: Callable[[], list[Instance]] = list, injects: Any = None,
    quotas: Quotas | None = None, **more: Any,
) -> AsyncIterator[RoutedInstance]:  # fmt: skip
    storage, clock = storage or MemoryStorage(), SystemClock()
    await storage.open()
    workshop, quotas = (
        Workshop(registry(), secrets=lambda: SECRETS),
        quotas or Quotas(MemoryBuckets(clock), clock, random.random),
    )
    tenants, runner = Tenants(storage, quotas, random.random), runner or CountingRunner()
    manager = RoutingTableManager(
        storage, syncer or MemorySyncer(MemoryHub(), "i1"), runner, making(workshop, region), clock, random.random, NEVER,
        others, tenants.on_delta,
    )  # fmt: skip
    asked, operating = RoutesAsked(), RoutesOperating(manager, storage, tenants, workshop, alive, runner=injects, **more)
    await manager.start()
    await tenants.load()
    asked.begin(operating)
    try:
        yield RoutedInstance(operating, manager, storage, runner, MemoryNode(routes=asked))
    finally:
        asked.end()
        await manager.stop()
        await storage.close()


async def with_tenant(client: httpx.AsyncClient, address: str = T, **config: Any) -> None:
    answer = await client.put(address, json=config)
    assert answer.status_code == 200, answer.text
