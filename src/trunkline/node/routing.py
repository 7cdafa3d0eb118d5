"""The site's routing table at a node: storage, delta syncer, quotas, runner and manager, with one start and one stop.

It starts in this order:

    storage    it answers                            runner     routes can be run
    pool       plugins have connections              table      all that is stored was started or refused
    instance   others count on this one              file       the site's own routes are in the table
    tenants    their quotas are known                receivers  they read, so that no route misses what another one takes

It stops the other way round: receivers read no more and what they gave is finished, senders flush, what waits for another try
is written down, the instance is unregistered, connections close. A start that fails leaves nothing behind: whoever started it
tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool

from trunkline.core.clock import Clock
from trunkline.core.config import ProcessConfig
from trunkline.core.errors import Retryable
from trunkline.core.health import Check
from trunkline.core.routing import POSTGRES
from trunkline.node import routingshown
from trunkline.node.plugincounts import PluginCounts
from trunkline.node.routefile import file_routes
from trunkline.node.routetotals import CountingRunner
from trunkline.node.supervise import Supervisor
from trunkline.routes.counted import SparkCounts
from trunkline.routes.ends import Pool
from trunkline.routes.instances import Instance, Kind, Presence, new_id
from trunkline.routes.keys import HOUSE, RouteKey
from trunkline.routes.live import Runner
from trunkline.routes.local.deadletters import DeadLetters
from trunkline.routes.local.here import Here
from trunkline.routes.local.hooks import Posted
from trunkline.routes.local.outbox import Outbox
from trunkline.routes.local.runner import LocalRunner
from trunkline.routes.making import making_at
from trunkline.routes.manager import RoutingTableManager
from trunkline.routes.operating import RoutesOperating
from trunkline.routes.placement import INGEST
from trunkline.routes.plugin import Around
from trunkline.routes.quota_buckets import Buckets, PostgresBuckets, RedisBuckets
from trunkline.routes.quotas import Quotas
from trunkline.routes.registry import Kind as PluginKind
from trunkline.routes.registry import Registry, registry
from trunkline.routes.repair import Pace
from trunkline.routes.storage.base import RouteConfig, Storage
from trunkline.routes.storage.opened import storage_at
from trunkline.routes.sync.acked_rows import PostgresAcks
from trunkline.routes.sync.opened import syncer_at
from trunkline.routes.tenants import Tenants
from trunkline.routes.told import PostgresTold
from trunkline.routes.workshop import Workshop

CONNECTIONS = 8
"""Of plugins of all routes: senders commit many messages at once, so a few are enough to keep a database busy."""

T = TypeVar("T")


class Routing:
    """`operating` and `runner` are there between a start and a stop."""

    def __init__(
        self, config: ProcessConfig, supervisor: Supervisor, clock: Clock, random: Callable[[], float],
        plugins: Registry | None = None,
    ) -> None:  # fmt: skip
        self._config, self._supervisor, self._clock, self._random = config, supervisor, clock, random
        self._plugins = plugins or registry()
        self._dsn = config.database.reveal()
        self._prefix = f"{{{config.site}}}:"
        self._custom = routingshown.Custom()
        around = Around({"site": config.site}, now=clock.wall, count=self._custom.add, log=routingshown.say)
        self._workshop = Workshop(self._plugins, around, lambda: config.route_secrets)
        self._file = file_routes(config.routes, around, self._plugins) if config.routes else []
        self.instance = Instance(new_id(config.node), Kind.NODE, self._runs())
        self._stack = AsyncExitStack()
        self._operating: RoutesOperating | None = None
        self._runner: LocalRunner | None = None
        self._counting: CountingRunner | None = None

    @property
    def operating(self) -> RoutesOperating:
        return _there(self._operating)

    @property
    def runner(self) -> LocalRunner:
        return _there(self._runner)

    async def start(self) -> None:
        """Raises `Retryable` while something that it needs is away."""
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        self._operating = self._runner = None
        await self._stack.aclose()

    async def post(self, payload: Any, metadata: dict[str, str]) -> Posted:
        """To the http receivers of the house; those with a path hear nothing of it."""
        event = routingshown.event_of(payload, metadata, self._clock.wall())
        return await self.runner.hooks.post(HOUSE, "POST", "", event)

    def check(self) -> Check:
        if self._operating is None or self._runner is None:
            return Check("routes", False, "the routing table is not there")
        return routingshown.check(self._operating.manager, self._runner, self._clock.wall())

    def numbers(self) -> dict[str, Any]:
        if self._operating is None or self._runner is None or self._counting is None:
            return {}
        return routingshown.numbers(self._operating, self._runner, self._counting, self._custom)

    async def all_numbers(self) -> dict[str, Any]:
        """With those of routes on Spark, if the database answers."""
        numbers = self.numbers()
        return numbers | await routingshown.spark_numbers(self._operating.spark) if self._operating is not None else numbers

    # -- the steps

    async def _start(self, stack: AsyncExitStack) -> None:
        storage = storage_at(self._config.routing.storage.reveal(), self._dsn, self._prefix)
        await storage.open()
        stack.push_async_callback(storage.close)
        pool = self._pool()
        await pool.open()
        stack.push_async_callback(pool.close)
        presence = Presence(self._dsn, self.instance)
        await presence.start()
        stack.push_async_callback(presence.stop)
        quotas = self._quotas(stack)
        tenants = Tenants(storage, quotas, self._random)
        await tenants.load()
        runner = self._local_runner(pool, quotas, presence)
        stack.push_async_callback(runner.close)
        await runner.open()
        manager = await self._run(stack, storage, runner, presence, tenants)
        self._operating, self._runner = self._operated(manager, storage, tenants, presence, pool, runner), runner

    async def _run(
        self, stack: AsyncExitStack, storage: Storage, runner: LocalRunner, presence: Presence, tenants: Tenants
    ) -> RoutingTableManager:
        self._counting = CountingRunner(runner, self._clock)
        manager = self._manager(storage, self._counting, presence, tenants)
        await manager.start()
        presence.tells = manager.told
        stack.push_async_callback(manager.stop)
        await tenants.load()  # again: now deltas are heard
        if self._file:
            await manager.change(self._file)
        runner.receive(partial(_stored, storage))
        stack.push_async_callback(runner.rest)
        stack.push_async_callback(self._supervisor.keep("tenants", tenants.run).stop)
        return manager

    # -- the parts

    def _runs(self) -> tuple[str, ...]:
        names = self._plugins.names(PluginKind.RECEIVER)
        opened = (name for name in names if (found := self._plugins.receiver(name)) is not None and found.open is not None)
        return (*opened, INGEST.plugin)

    def _pool(self) -> Pool:
        return AsyncConnectionPool[psycopg.AsyncConnection[Any]](
            self._dsn, min_size=1, max_size=CONNECTIONS, open=False, name="route-plugins",
            check=AsyncConnectionPool.check_connection,
            kwargs={
                "application_name": "trunkline-route-plugins", "tcp_user_timeout": 10_000,
                "options": "-c idle_in_transaction_session_timeout=3000 -c jit=off",
            },
        )  # fmt: skip

    def _quotas(self, stack: AsyncExitStack) -> Quotas:
        where = self._config.routing.storage.reveal()
        buckets: Buckets = PostgresBuckets(self._dsn) if where == POSTGRES else RedisBuckets(where, self._prefix)
        stack.push_async_callback(buckets.close)
        return Quotas(buckets, self._clock, self._random)

    def _local_runner(self, pool: Pool, quotas: Quotas, presence: Presence) -> LocalRunner:
        here = Here(self._config.site, self.instance.id, self._dsn, pool, self._clock, self._random)
        alive = lambda: (self.instance, *presence.others)  # noqa: E731
        return LocalRunner(here, self._plugins, self._config.route_secrets, quotas, Outbox(pool), alive)

    def _manager(self, storage: Storage, runner: Runner, presence: Presence, tenants: Tenants) -> RoutingTableManager:
        routing = self._config.routing
        syncer = syncer_at(routing.sync.reveal(), self._dsn, self.instance.id, self._prefix)
        return RoutingTableManager(
            storage, syncer, runner, making_at(self._workshop, routing.region), self._clock, self._random,
            Pace(routing.repair_seconds, look=routing.look_seconds), lambda: [other.id for other in presence.others],
            tenants.on_delta,
        )  # fmt: skip

    def _operated(
        self, manager: RoutingTableManager, storage: Storage, tenants: Tenants, presence: Presence, pool: Pool,
        runner: LocalRunner,
    ) -> RoutesOperating:  # fmt: skip
        routing = self._config.routing
        acks = PostgresAcks(pool) if routing.sync.reveal() == POSTGRES else None
        return RoutesOperating(
            manager, storage, tenants, self._workshop, lambda: presence.others, acks,
            PluginCounts(runner, self._clock), runner, runner.hooks, routing.event_seconds, DeadLetters(pool),
            runner.counts, SparkCounts(pool), PostgresTold(pool),
        )  # fmt: skip


async def _stored(storage: Storage, key: RouteKey) -> RouteConfig | None:
    return (await storage.read([key])).get(key)


def _there(found: T | None) -> T:
    if found is None:
        raise Retryable("routing table", "this node starts or stops", "try again, or at another node")
    return found
