"""A node that is a plain object in memory, and clients of an API over it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
from fastapi import FastAPI

from memory_bridge import MemoryBridge
from memory_paths import MemoryPaths
from memory_queues import MemoryQueues
from memory_store import MemoryStore
from trunkline.api.app import create_app
from trunkline.api.bridgeview import BridgeView
from trunkline.api.problem import MEDIA_TYPE
from trunkline.api.queuesview import QueuesView
from trunkline.api.routesview import RoutesView
from trunkline.api.server import serve
from trunkline.api.tokens import hash_of
from trunkline.core.clock import Clock
from trunkline.core.config import ApiConfig, Role, TokenConfig
from trunkline.core.health import Check
from trunkline.core.secret import Secret
from trunkline.routes.asked import RoutesAsked


class MemoryNode:
    """A node whose one route takes alarms."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        paths: MemoryPaths | None = None,
        queues: QueuesView | None = None,
        bridge: BridgeView | None = None,
        routes: RoutesView | None = None,
    ) -> None:
        self.routes = routes or RoutesAsked()
        self.bridge = bridge or MemoryBridge()
        self.store, self.paths, self.queues = store or MemoryStore(), paths or MemoryPaths(), queues or MemoryQueues()
        self.events: list[tuple[Any, dict[str, str]]] = []
        self.threads: set[str] = set()
        self.fails: Exception | None = None
        self.well = [Check("database", True, "answers"), Check("lease", True, "epoch 17")]
        self.blocks: threading.Event | None = None
        self.blocked = threading.Semaphore(0)

    def inject(self, payload: Any, metadata: dict[str, str]) -> list[str]:
        self.threads.add(threading.current_thread().name)
        if self.blocks is not None:
            self.blocked.release()
            assert self.blocks.wait(60)
        if self.fails is not None:
            raise self.fails
        self.events.append((payload, metadata))
        return ["alarm-to-hub"] if isinstance(payload, dict) and payload.get("kind") == "alarm" else []

    def routing(self) -> dict[str, Any]:
        return {}

    def status(self) -> dict[str, Any]:
        if self.fails is not None:
            raise self.fails
        return {"site": "a", "leader": True, "epoch": 17, "age_seconds": 0.5}

    def topology(self) -> dict[str, Any]:
        return self.paths.topology()

    def topology_table(self) -> dict[str, Any]:
        return self.paths.topology_table()

    def topology_why(self, site: str) -> dict[str, Any] | None:
        return self.paths.topology_why(site)

    def trunk(self) -> dict[str, Any]:
        return self.paths.trunk()

    def checks(self) -> Sequence[Check]:
        if self.fails is not None:
            raise self.fails
        return self.well


def token(name: str, role: Role = Role.READ, tenant: str | None = None) -> TokenConfig:
    """Its text is `tl_<name>`."""
    return TokenConfig(name=name, sha256=Secret(hash_of(f"tl_{name}".encode())), role=role, tenant=tenant)


def bearing(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer tl_{name}"}


def client_of(app: FastAPI, address: str = "127.0.0.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(address, 50000))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


def client_over(node: MemoryNode, clock: Clock | None = None, **api: Any) -> httpx.AsyncClient:
    return client_of(create_app(node, ApiConfig(**api), clock=clock))


@contextlib.asynccontextmanager
async def running(app: FastAPI, listen: str = "127.0.0.1:0") -> AsyncIterator[tuple[str, asyncio.Event]]:
    bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(app, listen, bound.set_result, stop))
        try:
            yield await bound, stop
        finally:
            stop.set()


def is_problem(answer: httpx.Response, status: int, slug: str) -> bool:
    """Whether this is a whole problem document of that kind; anything half right fails loudly."""
    problem = answer.json()
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert set(problem) - {"mistakes"} == {"type", "title", "status", "detail", "instance", "next"}
    assert all(problem.values())
    assert problem["status"] == answer.status_code
    assert problem["instance"] == f"urn:trunkline:request:{answer.headers['x-request-id']}"
    return (answer.status_code, problem["type"]) == (status, f"urn:trunkline:problem:{slug}")
