"""How soon a change is live everywhere: three processes, each an instance of one site, over Postgres and over Redis.

The instances take turns in changing one route's filters. As soon as an instance's table has the new revision its receiver gives
an event; the change is live there when the event is done, and the sender has what the new filters make of it. A call that ends
otherwise is one that hangs: the route was registered before it was attached. Times are those of the machine's clock, from
before the change is asked for until the last of the three has answered.

What EARS needs was measured elsewhere on this kind of machine, with the same numbers of instances and changes, over Redis.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness import Result
from routeparts.instance import RunningInstance, instance
from routeparts.table import database
from trunkline.cli.dev.redis import RedisServer
from trunkline.routes.event import Event, Source
from trunkline.routes.keys import RouteKey, Tenant

INSTANCES = ("i1", "i2", "i3")
KEY = RouteKey(Tenant("house", "bench"), "changing")
WARM = 50
LOST_SECONDS = 5.0
EARS = (
    Result("ears_change_live_median_ms", 3.0, "ms, EARS with Redis, measured elsewhere"),
    Result("ears_change_live_p99_ms", 8.5, "ms, EARS with Redis, measured elsewhere"),
    Result("ears_hung_calls", 150, "of 3,600 calls, EARS with Redis, measured elsewhere"),
)


def body(mark: int) -> dict[str, Any]:
    return {
        "userId": "ada",
        "receiver": {"plugin": "source", "name": "in"},
        "filterChain": [
            {"plugin": "match", "config": {"matcher": "pattern", "pattern": {"kind": "alarm"}}},
            {"plugin": "transform", "config": {"transformation": {"id": "{.id}", "mark": mark}}},
        ],
        "sender": {"plugin": "debug", "name": "out", "config": {"maxHistory": 1}},
    }


def sync(changes: int) -> Iterator[Result]:
    medians, p99s, hung = {}, {}, 0
    with database() as dsn, _redis() as redis:
        for name, url in {"postgres": "", "redis": redis}.items():
            times, lost = _measured(dsn, url, changes)
            hung += lost
            medians[name] = round(statistics.median(times) * 1000, 2)
            p99s[name] = round(statistics.quantiles(times, n=100)[98] * 1000, 2)
            yield Result(
                f"change_live_{name}_median_ms", medians[name], f"ms, {changes:,} changes at {len(INSTANCES)} instances"
            )
            yield Result(f"change_live_{name}_p99_ms", p99s[name], "ms")
    yield Result("change_live_median_ms", max(medians.values()), "ms, the worse of both", goal=10.0, most=True)
    yield Result("change_live_p99_ms", max(p99s.values()), "ms, the worse of both", goal=50.0, most=True)
    yield Result("hung_calls", hung, f"of {2 * changes * len(INSTANCES):,} calls", goal=0, most=True)
    yield from EARS


@contextmanager
def _redis() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder))
        server.start()
        try:
            yield server.url
        finally:
            server.stop()


def _measured(dsn: str, redis: str, changes: int) -> tuple[list[float], int]:
    """Seconds of each change, and the calls that hang."""
    with ExitStack() as stack:
        links = [stack.enter_context(_child(name, dsn, redis)) for name in INSTANCES]
        for link in links:
            link.recv()
        done = [_change(links, number) for number in range(1, WARM + changes + 1)][WARM:]
    return [taken for taken, _ in done], sum(hung for _, hung in done)


def _change(links: list[Connection], number: int) -> tuple[float, int]:
    writer = links[number % len(links)]
    for link in links:
        link.send((number, link is writer))
    begun, answers = writer.recv(), [link.recv() for link in links]
    return max(at for at, _ in answers) - begun, sum(hung for _, hung in answers)


@contextmanager
def _child(name: str, dsn: str, redis: str) -> Iterator[Connection]:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_run, args=(theirs, name, dsn, redis))
    process.start()
    theirs.close()
    try:
        yield ours
        ours.send(None)
    finally:
        process.join(LOST_SECONDS)
        process.kill()


def _run(link: Connection, name: str, dsn: str, redis: str) -> None:
    asyncio.run(_serve(link, name, dsn, redis))


async def _serve(link: Connection, name: str, dsn: str, redis: str) -> None:
    async with instance(name, dsn, redis, lambda: [other for other in INSTANCES if other != name]) as at:
        link.send("ready")
        before = at.manager.status(KEY).revision  # a change may be here before the word that it is asked for
        while order := await asyncio.to_thread(link.recv):
            number, writes = order
            async with asyncio.TaskGroup() as group:
                seen = group.create_task(_seen(at, number, before))
                if writes:
                    link.send(time.monotonic())
                    await at.manager.add(KEY.tenant, body(number), KEY.id)
            link.send(seen.result())
            before = at.manager.status(KEY).revision


async def _seen(at: RunningInstance, number: int, before: int) -> tuple[float, int]:
    """When it was live, and whether the call hung."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LOST_SECONDS):
            while at.manager.status(KEY).revision == before:
                at.runner.moved.clear()
                await at.runner.moved.wait()
    event = Event({"kind": "alarm", "id": number}, {}, Source(f"event-{number}", KEY.tenant))
    sent = await at.sent(KEY, event, LOST_SECONDS)
    return time.monotonic(), sent is None or sent.payload != {"id": number, "mark": number}
