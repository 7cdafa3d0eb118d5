"""A local runner with routes as people write them, and plugins that tests hold in their hands."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from psycopg_pool import AsyncConnectionPool

from trunkline.core.clock import SystemClock
from trunkline.core.errors import Retryable
from trunkline.db.lease import Grant
from trunkline.routes.compile import compile_route
from trunkline.routes.ends import Give, Place, Sendable, Undelivered
from trunkline.routes.event import Event, Source
from trunkline.routes.fields import RouteModel
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.live import LiveRoute
from trunkline.routes.local.here import Here
from trunkline.routes.local.outbox import Outbox
from trunkline.routes.local.placing import Alive
from trunkline.routes.local.runner import LocalRunner
from trunkline.routes.model import RouteReader, read_route
from trunkline.routes.outcome import Done, Outcome
from trunkline.routes.plugin import Around, FilterPlugin, Plugin, ReceiverPlugin, Runs, SenderPlugin
from trunkline.routes.quota_buckets import MemoryBuckets
from trunkline.routes.quotas import Quotas
from trunkline.routes.registry import OURS, Registry
from trunkline.routes.storage.base import RouteConfig

TENANT = Tenant("myorg", "myapp")


class Named(RouteModel):
    of: str = ""


@dataclass
class Tap:
    """A receiver that gives what the test tells it to."""

    give: Give | None = None
    runs: int = 0
    closed: int = 0
    opened: int = 0

    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        self.give, self.runs = give, self.runs + 1
        await stop.wait()
        self.give = None

    async def close(self) -> None:
        self.closed += 1

    async def pour(self, *payloads: Any, seconds: float = 60.0, ids: Sequence[str] = ()) -> list[Done]:
        return await (await self.poured(*payloads, seconds=seconds, ids=ids))

    async def poured(self, *payloads: Any, seconds: float = 60.0, ids: Sequence[str] = ()) -> asyncio.Future[list[Done]]:
        await until(lambda: self.give)
        assert self.give is not None
        sources = [Source(ids[n] if ids else "", TENANT) for n in range(len(payloads))]
        return await self.give([Event(payload, {}, source) for payload, source in zip(payloads, sources, strict=True)], seconds)


Answer = Callable[[Sendable], Undelivered | None]


@dataclass
class Sink:
    """A sender that writes down what it gets. `answer` says what it cannot take, `broken` what it raises, `refuses`
    which calls are in vain, `gate` when it answers, `slow` how long it takes for each message."""

    got: list[Any] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    calls: int = 0
    opened: int = 0
    closed: int = 0
    answer: Answer = lambda _: None
    broken: Exception | None = None
    refuses: Callable[[list[Any]], bool] = lambda _: False
    gate: asyncio.Event | None = None
    slow: float = 0.0

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        self.calls += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.slow:
            await asyncio.sleep(self.slow * len(messages))
        if self.broken is not None:
            raise self.broken
        if self.refuses([one.message.payload for one in messages]):
            raise AWAY
        answers = [self.answer(one) for one in messages]
        taken = [one for one, answer in zip(messages, answers, strict=True) if answer is None]
        self.got += [one.message.payload for one in taken]
        self.ids += [one.id for one in taken]
        return answers

    async def close(self) -> None:
        self.closed += 1


AWAY = Retryable("sink", "it is away", "wait")


class Workshop:
    """The plugins `tap` and `sink`, each with as many instances as there are names (`of`); and filters of the test."""

    def __init__(self, *more: Plugin) -> None:
        self.taps: dict[str, Tap] = {}
        self.sinks: dict[str, Sink] = {}
        tap = ReceiverPlugin("tap", Named, Runs.LOCAL, self._tap)
        sink = SenderPlugin("sink", Named, Runs.LOCAL, open=self._sink)
        once = SenderPlugin("once", Named, Runs.LOCAL, open=self._sink, once=True)
        self.registry = Registry((*OURS, tap, sink, once, *more))
        self._reader = RouteReader(self.registry)

    def tap(self, of: str = "") -> Tap:
        return self.taps.setdefault(of, Tap())

    def sink(self, of: str = "") -> Sink:
        return self.sinks.setdefault(of, Sink())

    def live(self, id: str, raw: dict[str, Any], tenant: Tenant = TENANT) -> LiveRoute:
        reading = read_route(
            {"id": id, "receiver": {"plugin": "tap"}, "sender": {"plugin": "sink"}, **raw}, self._reader, tenant
        )
        assert not reading.mistakes, reading.mistakes
        (one,) = reading.routes
        around = Around(now=SystemClock().wall)
        config = RouteConfig(one.key, one.hash, one.configuration.body, {}, 1, 0.0, 0.0)
        return LiveRoute(one.hash, config, compile_route(one.route, around, self.registry))

    async def _tap(self, config: Named, place: Place) -> Tap:
        tap = self.tap(config.of)
        tap.opened += 1
        return tap

    async def _sink(self, config: Named, place: Place) -> Sink:
        sink = self.sink(config.of)
        sink.opened += 1
        return sink


def raising_filter(name: str = "raises") -> FilterPlugin[Named]:
    """Raises for every event whose payload holds `bad`."""

    def compile(config: Named, around: Around) -> Any:
        def filter(batch: list[Event], faults: Any) -> list[Event]:
            if any("bad" in event.payload for event in batch):
                raise RuntimeError("a defect")
            return batch

        return filter

    return FilterPlugin(name, Named, compile)


@dataclass
class Bench:
    """A runner, what it runs, and the plugins that it runs with."""

    runner: LocalRunner
    shop: Workshop
    running: dict[str, LiveRoute] = field(default_factory=dict)

    async def stored(self, key: RouteKey) -> RouteConfig | None:
        """What a storage would say."""
        route = self.running.get(str(key))
        return route.config if route is not None else None

    async def add(self, id: str, tenant: Tenant = TENANT, **raw: Any) -> LiveRoute:
        """Starts the route of this id, or replaces it."""
        route, old = self.shop.live(id, raw, tenant), self.running.get(f"{tenant}/{id}")
        await (self.runner.replace(old, route) if old is not None else self.runner.start(route))
        self.running[f"{tenant}/{id}"] = route
        return route

    async def remove(self, id: str, tenant: Tenant = TENANT) -> None:
        await self.runner.stop(self.running.pop(f"{tenant}/{id}"))


def here(dsn: str = "", pool: Any = None, instance: str = "i1") -> Here:
    return Here("site", instance, dsn, pool, SystemClock(), random.Random(7).random)


@asynccontextmanager
async def bench(
    *plugins: Plugin,
    at: Here | None = None,
    outbox: Outbox | None = None,
    quotas: Quotas | None = None,
    alive: Alive | None = None,
) -> AsyncIterator[Bench]:
    place = at or here()
    shop = Workshop(*plugins)
    quotas = quotas or Quotas(MemoryBuckets(place.clock), place.clock, place.random)
    runner = LocalRunner(place, shop.registry, {}, quotas, outbox, alive)
    one = Bench(runner, shop)
    await runner.open()
    runner.receive(one.stored, look_seconds=0.05)
    try:
        yield one
    finally:
        await runner.rest()
        for route in one.running.values():
            await runner.stop(route)
        await runner.close()


async def until(holds: Callable[[], object | Awaitable[object]], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while True:
            held = holds()
            if isinstance(held, Awaitable):
                held = await held
            if held:
                return
            await asyncio.sleep(0.005)


def outcomes(done: Sequence[Done]) -> list[Outcome]:
    return [one.outcome for one in done]


@asynccontextmanager
async def pool_of(dsn: str) -> AsyncIterator[Any]:
    async with AsyncConnectionPool(dsn, min_size=1, max_size=4, kwargs={"autocommit": True}, open=False) as pool:
        yield pool
