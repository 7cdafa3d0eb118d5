"""The local runner: one receiver's events of about 1 KB through many routes, each for one of them, in one process.

The receiver gives batches and has a few of them under way; each route matches by two fields and transforms, and one sender that
forgets its messages is shared by all. Every event has its ack tree: the rate counts events whose acks came back to the
receiver. What EARS does with one source was measured elsewhere on this kind of machine: there every event visits every route.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any

from harness import Result, growth
from routeparts.scripts import kilobyte
from trunkline.core.clock import SystemClock
from trunkline.core.collector import patient_collector
from trunkline.db.lease import Grant
from trunkline.routes.compile import compile_route
from trunkline.routes.ends import Give, Place
from trunkline.routes.event import Event, Source
from trunkline.routes.fields import RouteModel
from trunkline.routes.keys import Tenant
from trunkline.routes.live import LiveRoute
from trunkline.routes.local.here import Here
from trunkline.routes.local.runner import LocalRunner
from trunkline.routes.model import RouteReader, read_route
from trunkline.routes.outcome import Done, Outcome
from trunkline.routes.plugin import ReceiverPlugin, Runs
from trunkline.routes.quota_buckets import MemoryBuckets
from trunkline.routes.quotas import Quotas
from trunkline.routes.registry import OURS, Registry
from trunkline.routes.storage.base import RouteConfig

TENANT = Tenant("house", "bench")
BATCH, UNDER_WAY = 250, 4
ROUNDS = 3
GOALS = {1: 40_000, 10_000: 36_000}
EARS = {1: 36_400, 100: 3_560, 1_000: 350, 10_000: 28.6}


class SourceConfig(RouteModel):
    """It gives what the benchmark tells it to."""


class Tap:
    def __init__(self) -> None:
        self.give: asyncio.Future[Give] = asyncio.get_running_loop().create_future()

    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        self.give.set_result(give)
        await stop.wait()

    async def close(self) -> None: ...


def local(events: int, routes: tuple[int, ...]) -> Iterator[Result]:
    rates = {count: asyncio.run(_rate(events, count)) for count in routes}
    for count, rate in rates.items():
        unit = "events/s, given, matched, transformed, sent and acked"
        yield Result(f"local_events_per_s_{_named(count)}", round(rate), unit, goal=GOALS.get(count))
    few, many = min(routes), max(routes)
    yield Result("local_slower_by_routes", round(rates[few] / rates[many], 2), f"times, {many:,} routes against {few}")
    yield growth("local_events", asyncio.run(_seconds(events // 2)), asyncio.run(_seconds(events)))
    for count, measured in EARS.items():
        yield Result(f"ears_events_per_s_{_named(count)}", measured, "events/s, EARS, measured elsewhere")


def _named(routes: int) -> str:
    number = f"{routes // 1000}k" if routes >= 10_000 else str(routes)
    return f"{number}_route{'s' if routes > 1 else ''}"


async def _seconds(events: int) -> float:
    return events / await _rate(events, 10)


async def _rate(events: int, routes: int) -> float:
    patient_collector()
    tap = Tap()
    runner, plugins = _runner(tap)
    await runner.open()
    live = _live(routes, plugins)
    for route in live:
        await runner.start(route)
    runner.receive()
    give = await tap.give
    batches = _batches(events, routes)
    taken = [await _poured(give, batches) for _ in range(1 + ROUNDS)][1:]
    await runner.rest()
    for route in live:
        await runner.stop(route)
    await runner.close()
    return events / min(taken)


def _runner(tap: Tap) -> tuple[LocalRunner, Registry]:
    async def opened(config: SourceConfig, place: Place) -> Tap:
        return tap

    plugins = Registry((*OURS, ReceiverPlugin("source", SourceConfig, Runs.LOCAL, opened)))
    clock = SystemClock()
    here = Here("bench", "i1", "", None, clock, random.random)  # type: ignore[arg-type]
    return LocalRunner(here, plugins, {}, Quotas(MemoryBuckets(clock), clock, random.random)), plugins


def _live(routes: int, plugins: Registry) -> list[LiveRoute]:
    reader = RouteReader(plugins)
    found: list[LiveRoute] = []
    for number in range(routes):
        [one] = read_route(_written(number), reader, TENANT).routes
        config = RouteConfig(one.key, one.hash, one.configuration.body, {}, 1, 0.0, 0.0)
        found.append(LiveRoute(one.hash, config, compile_route(one.route, plugins=plugins)))
    return found


def _written(number: int) -> dict[str, Any]:
    return {
        "id": f"r{number}",
        "receiver": {"plugin": "source"},
        "filterChain": [
            {"plugin": "match", "config": {"matcher": "pattern", "pattern": {"kind": "alarm", "customer": number}}},
            {"plugin": "transform", "config": {"transformation": {"id": "{.id}", "where": {"site": "{.at.site}"}}}},
        ],
        "sender": {"plugin": "nop"},
    }


def _batches(events: int, routes: int) -> list[list[Event]]:
    made = [Event(kilobyte(n % routes), {}, Source(f"e{n}", TENANT)) for n in range(events)]
    return [made[at : at + BATCH] for at in range(0, events, BATCH)]


async def _poured(give: Give, batches: list[list[Event]]) -> float:
    under_way: list[asyncio.Future[list[Done]]] = []
    begun, acked = time.perf_counter(), 0
    for batch in batches:
        under_way.append(await give(batch, 60.0))
        if len(under_way) == UNDER_WAY:
            acked += _acked(await under_way.pop(0))
    for future in under_way:
        acked += _acked(await future)
    assert acked == sum(map(len, batches))
    return time.perf_counter() - begun


def _acked(done: list[Done]) -> int:
    return sum(one.outcome is Outcome.ACKED for one in done)
