"""A node's routing table in a thread of this process: the same site, the same storage as a pipeline's."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from trunkline.core.clock import SystemClock
from trunkline.core.config import ProcessConfig
from trunkline.node.routing import Routing
from trunkline.node.supervise import Supervisor
from trunkline.pipeline.jobs.deliver import Loop
from trunkline.routes.event import Event, Source
from trunkline.routes.keys import HOUSE, RouteKey
from trunkline.routes.local.hooks import Posted

T = TypeVar("T")


class RouteNode:
    """Routes are those of the house. `start` and `stop` alternate: each start is another instance."""

    def __init__(self, dsn: str, node: str = "n1") -> None:
        self._config = ProcessConfig(site="hub", node=node, database=dsn)
        self._loop = Loop("node")
        self._stack = AsyncExitStack()
        self._routing: Routing | None = None

    @property
    def routing(self) -> Routing:
        assert self._routing is not None, "it is not started"
        return self._routing

    def __enter__(self) -> RouteNode:
        self.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._stack.aclose())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work, 60)

    def put(self, id: str, receiver: dict[str, Any], sender: dict[str, Any], *chain: dict[str, Any]) -> None:
        body = {"receiver": receiver, "sender": sender, "filterChain": list(chain)}
        manager = self.routing.operating.manager
        self.run(manager.add(HOUSE, body, id))
        assert not manager.status(RouteKey(HOUSE, id)).reason

    def post(self, payload: Any, path: str = "") -> Posted:
        return self.run(self.posted(payload, path))

    async def posted(self, payload: Any, path: str = "") -> Posted:
        """On the loop."""
        return await self.routing.runner.hooks.post(HOUSE, "POST", path, Event(payload, {}, Source(tenant=HOUSE)))

    async def _start(self) -> None:
        clock = SystemClock()
        async with AsyncExitStack() as stack:
            supervisor = await stack.enter_async_context(Supervisor(clock, random.random))
            routing = Routing(self._config, supervisor, clock, random.random)
            await routing.start()
            stack.push_async_callback(routing.stop)
            self._routing, self._stack = routing, stack.pop_all()
