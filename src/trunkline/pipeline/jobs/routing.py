"""The site's routing table at a pipeline: storage, delta syncer, manager and Spark runner, with one start and one stop.

A pipeline is an instance like any node: it registers, listens, reads again, and acks. Its manager lives in an event loop of its
own thread; Spark's queries have theirs, and the two meet in `SparkRunner`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.clock import Clock
from trunkline.core.config import ProcessConfig
from trunkline.core.errors import TrunklineError
from trunkline.net.tasks import Tasks
from trunkline.pipeline.jobs.batches import Tell
from trunkline.pipeline.jobs.deliver import Loop
from trunkline.pipeline.jobs.feed import RUNS
from trunkline.pipeline.jobs.job import Job
from trunkline.pipeline.jobs.runner import Here, SparkRunner
from trunkline.pipeline.session import Spark
from trunkline.routes.groups import Group
from trunkline.routes.instances import Instance, Kind, Presence, new_id
from trunkline.routes.keys import RouteKey
from trunkline.routes.making import making_at
from trunkline.routes.manager import RoutingTableManager
from trunkline.routes.plugin import Around
from trunkline.routes.registry import Registry, registry
from trunkline.routes.repair import Pace
from trunkline.routes.storage.base import RouteConfig, Storage
from trunkline.routes.storage.opened import storage_at
from trunkline.routes.sync.opened import syncer_at
from trunkline.routes.workshop import Workshop

STOP_SECONDS = 20.0

T = TypeVar("T")

log = structlog.get_logger(__name__)


class PipelineRouting:
    """`start` returns at once, and what cannot start is tried again. `runner` and `manager` are there when it has started."""

    def __init__(
        self, config: ProcessConfig, spark: Spark, scratch: Path, clock: Clock, tell: Tell,
        chance: Callable[[], float] = random.random, plugins: Registry | None = None,
    ) -> None:  # fmt: skip
        self._config, self._spark, self._scratch, self._clock, self._tell = config, spark, scratch, clock, tell
        self._chance, self._plugins = chance, plugins or registry()
        self._dsn = config.database.reveal()
        self.instance = Instance(new_id(f"{config.node}-pipeline"), Kind.PIPELINE, RUNS)
        self.manager: RoutingTableManager | None = None
        self.runner: SparkRunner | None = None
        self._loop = Loop("routes")
        self._stack = AsyncExitStack()
        self._starting = Tasks()

    def start(self) -> None:
        async def begin() -> None:
            self._starting.spawn(self._start_until_there(), "routes: start")

        self._loop.run(begin())

    @property
    def jobs(self) -> dict[Group, Job]:
        """Those that run here."""
        return self.runner.jobs if self.runner is not None else {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the loop of the routing table, from another thread."""
        return self._loop.run(work)

    def stop(self) -> None:
        try:
            self._loop.run(self._stop(), STOP_SECONDS)
        except TimeoutError:
            log.warning("routes did not stop in time", next_step="none: their leases lapse")
        self._loop.close()

    async def _stop(self) -> None:
        await self._starting.cancel()
        await self._stack.aclose()
        self.manager = self.runner = None

    async def _start_until_there(self) -> None:
        backoff = Backoff(0.2, 5.0, self._chance)
        while True:
            try:
                async with AsyncExitStack() as stack:
                    await self._start(stack)
                    self._stack = stack.pop_all()
                log.info("routes run", instance=self.instance.id)
                return
            except TrunklineError as error:
                pause = backoff.after_failure()
                log.warning("routes cannot run yet", reason=str(error), retry_seconds=round(pause, 2))
                await asyncio.sleep(pause)

    async def _start(self, stack: AsyncExitStack) -> None:
        config, routing = self._config, self._config.routing
        prefix = f"{{{config.site}}}:"
        storage = storage_at(routing.storage.reveal(), self._dsn, prefix)
        await storage.open()
        stack.push_async_callback(storage.close)
        presence = Presence(self._dsn, self.instance)
        await presence.start()
        stack.push_async_callback(presence.stop)
        here = Here(
            config.site, self.instance.id, self._dsn, config.route_secrets, self._scratch, self._clock, self._chance,
            config.spark.few_events,
        )  # fmt: skip
        runner = SparkRunner(self._spark, here, self._tell, self._plugins)
        stack.push_async_callback(runner.close)
        around = Around({"site": config.site}, now=self._clock.wall)
        making = making_at(Workshop(self._plugins, around, lambda: config.route_secrets), routing.region)
        syncer = syncer_at(routing.sync.reveal(), self._dsn, self.instance.id, prefix)
        manager = RoutingTableManager(
            storage, syncer, runner, making, self._clock, self._chance, Pace(routing.repair_seconds, look=routing.look_seconds),
            lambda: [other.id for other in presence.others],
        )  # fmt: skip
        await manager.start()
        presence.tells = manager.told
        stack.push_async_callback(manager.stop)
        await runner.receive(lambda: (self.instance, *presence.others), partial(_stored, storage))
        stack.push_async_callback(runner.rest)
        self.manager, self.runner = manager, runner


async def _stored(storage: Storage, key: RouteKey) -> RouteConfig | None:
    return (await storage.read([key])).get(key)
