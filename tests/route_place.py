"""The process that a plugin under test runs in: its place, with real connections or with none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import random
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from trunkline.core.clock import SystemClock
from trunkline.routes.ends import Give, Place
from trunkline.routes.event import Event, Source
from trunkline.routes.keys import Tenant
from trunkline.routes.plugin import Around

MINE = Tenant("myorg", "myapp")
NOWHERE = "host=127.0.0.1 port=1 dbname=none connect_timeout=1"
AROUND = Around({"site": "leaf"})
SENT = "CREATE TABLE IF NOT EXISTS routes.sent (message_id text PRIMARY KEY, at timestamptz NOT NULL)"


class Hooks:
    """What is posted to the node's API, by (tenant, method, path)."""

    def __init__(self) -> None:
        self.added: dict[tuple[Tenant, str, str], tuple[Give, float]] = {}

    def add(self, tenant: Tenant, method: str, path: str, give: Give, seconds: float) -> Callable[[], None]:
        self.added[tenant, method, path] = give, seconds
        return lambda: self.added.pop((tenant, method, path)) and None


@asynccontextmanager
async def place_at(dsn: str = NOWHERE, instance: str = "leaf/a", plugin: str = "p1") -> AsyncIterator[Place]:
    pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]] = AsyncConnectionPool(
        dsn, min_size=0, max_size=4, open=False, reconnect_timeout=1.0
    )
    if dsn != NOWHERE:
        await pool.open()
    try:
        yield Place("leaf", instance, MINE, plugin, pool, dsn, SystemClock(), random, Hooks())
    finally:
        await pool.close()


def event(payload: Any, **metadata: Any) -> Event:
    return Event(payload, metadata, Source("s1", MINE, "trace-1", 1_700_000_000.0))


async def until(holds: Callable[[], Any], seconds: float = 60.0) -> None:
    """Also of something awaited."""
    async with asyncio.timeout(seconds):
        while True:
            held = holds()
            if await held if asyncio.iscoroutine(held) else held:
                return
            await asyncio.sleep(0.02)
