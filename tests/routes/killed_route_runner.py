"""A runner of routes that the test kills: `killed_route_runner.py <dsn> [<last>]` reads a source of numbers, for ever or
up to the last.

Three routes share the source: one whose sender is well, one whose sender often is not, and one whose filter refuses every
seventh number. The source keeps its progress in the database, as far as all is done; what arrives is written down there, too.
"""

from __future__ import annotations

import asyncio
import random
import sys
import uuid
from collections import deque
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

from trunkline.core.clock import SystemClock
from trunkline.core.errors import Retryable
from trunkline.db.lease import Grant
from trunkline.routes.compile import compile_route
from trunkline.routes.ends import Give, Place, Sendable, Undelivered
from trunkline.routes.event import Event, Source
from trunkline.routes.keys import HOUSE
from trunkline.routes.live import LiveRoute
from trunkline.routes.local import draining, outbox
from trunkline.routes.local.here import Here
from trunkline.routes.local.runner import LocalRunner
from trunkline.routes.model import RouteReader, read_route
from trunkline.routes.outcome import Done, Outcome
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin, ReceiverPlugin, Runs, SenderPlugin
from trunkline.routes.quota_buckets import MemoryBuckets
from trunkline.routes.quotas import Quotas
from trunkline.routes.registry import OURS, Registry
from trunkline.routes.storage.base import RouteConfig

ROUTES = ("well", "ill", "strict")
BATCH, UNDER_WAY = 5, 4
TABLES = """
CREATE TABLE IF NOT EXISTS progress (one boolean PRIMARY KEY DEFAULT true, upto bigint NOT NULL);
CREATE TABLE IF NOT EXISTS arrived (at bigint GENERATED ALWAYS AS IDENTITY, route text NOT NULL, number bigint NOT NULL);
INSERT INTO progress (upto) VALUES (-1) ON CONFLICT DO NOTHING;
"""


class Named(BaseModel):
    of: str = ""


class Numbers:
    def __init__(self, conn: psycopg.AsyncConnection[Any], last: float) -> None:
        self._conn, self._last = conn, last

    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        cursor = await self._conn.execute("SELECT upto FROM progress")
        at = (await cursor.fetchone() or (0,))[0] + 1
        given: deque[tuple[int, asyncio.Future[list[Done]]]] = deque()
        while not stop.is_set() and at <= self._last:
            events = [Event(n, {}, Source(f"n{n}", HOUSE)) for n in range(at, at + BATCH)]
            at += BATCH
            given.append((at - 1, await give(events, 600.0)))
            if len(given) == UNDER_WAY:
                await self._finish(*given.popleft())
        for one in given:
            await self._finish(*one)

    async def _finish(self, upto: int, future: asyncio.Future[list[Done]]) -> None:
        assert {one.outcome for one in await future} == {Outcome.ACKED}
        await self._conn.execute("UPDATE progress SET upto = %s", (upto,))
        sys.stdout.write(f"{upto}\n")
        sys.stdout.flush()

    async def close(self) -> None: ...


class Arrivals:
    def __init__(self, conn: psycopg.AsyncConnection[Any], of: str, calm: bool) -> None:
        self._conn, self._of, self._calm, self._turn = conn, of, calm, asyncio.Lock()

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        if self._of == "ill" and not self._calm and random.random() < 0.5:
            raise Retryable("arrivals", "they are ill", "wait")
        values = ([self._of] * len(messages), [one.message.payload for one in messages])
        async with self._turn:
            await self._conn.execute(
                "INSERT INTO arrived (route, number) SELECT * FROM unnest(%s::text[], %s::bigint[])", values
            )
        return [None] * len(messages)

    async def close(self) -> None: ...


def compile_strict(config: Named, around: Around) -> Filter:
    def strict(batch: list[Event], faults: Faults) -> list[Event]:
        for event in batch:
            if event.payload % 7 == 0:
                faults.add(event, "a seventh")
        return [event for event in batch if event.payload % 7]

    return strict


async def opened(dsn: str, calm: bool, last: float) -> tuple[Registry, psycopg.AsyncConnection[Any]]:
    conn = await psycopg.AsyncConnection.connect(dsn, autocommit=True)

    async def numbers(config: Named, place: Place) -> Numbers:
        return Numbers(conn, last)

    async def arrivals(config: Named, place: Place) -> Arrivals:
        return Arrivals(conn, config.of, calm)

    receiver = ReceiverPlugin("numbers", Named, Runs.LOCAL, numbers)
    sender = SenderPlugin("arrivals", Named, Runs.LOCAL, open=arrivals)
    return Registry((*OURS, receiver, sender, FilterPlugin("strict", Named, compile_strict))), conn


def live(id: str, plugins: Registry) -> LiveRoute:
    chain = [{"plugin": "strict"}] if id == "strict" else []
    raw = {
        "id": id,
        "receiver": {"plugin": "numbers"},
        "filterChain": chain,
        "sender": {"plugin": "arrivals", "config": {"of": id}},
    }
    (one,) = read_route(raw, RouteReader(plugins), HOUSE).routes
    config = RouteConfig(one.key, one.hash, one.configuration.body, {}, 1, 0.0, 0.0)
    return LiveRoute(one.hash, config, compile_route(one.route, Around(), plugins))


async def run(dsn: str, last: float = float("inf")) -> None:
    """To the end of the source and of the outboxes, if there is one; then all senders are well."""
    plugins, conn = await opened(dsn, last < float("inf"), last)
    await conn.execute(TABLES)
    clock = SystemClock()
    pool = AsyncConnectionPool(dsn, min_size=2, max_size=4, open=False)
    await pool.open()
    here = Here("site", uuid.uuid4().hex, dsn, pool, clock, random.random)
    runner = LocalRunner(here, plugins, {}, Quotas(MemoryBuckets(clock), clock, random.random), outbox.Outbox(pool))
    await runner.open()
    routes = [live(id, plugins) for id in ROUTES]
    for route in routes:
        await runner.start(route)
    runner.receive(look_seconds=0.02)
    await _ended(conn, last)
    await runner.rest()
    for route in routes:
        await runner.stop(route)
    await runner.close()
    await pool.close()
    await conn.close()


async def _ended(conn: psycopg.AsyncConnection[Any], last: float) -> None:
    while True:
        cursor = await conn.execute("SELECT upto FROM progress WHERE NOT EXISTS (SELECT FROM routes.lane)")
        row = await cursor.fetchone()
        if row is not None and row[0] >= last:
            return
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    outbox.HOLD_SECONDS, draining.FIRST_PAUSE, draining.LONGEST_PAUSE = 1.0, 0.01, 0.05
    asyncio.run(run(sys.argv[1], *map(float, sys.argv[2:])))
