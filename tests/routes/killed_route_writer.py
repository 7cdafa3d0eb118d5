"""A writer of routes that the test kills: `killed_route_writer.py <dsn>` changes twenty routes at a time, for ever.

Step n gives all routes the configuration n, removes the route that step n - 1 added, and adds one of its own.
"""

from __future__ import annotations

import asyncio
import sys

from trunkline.routes.keys import HOUSE, RouteKey
from trunkline.routes.storage.base import Change, Put, Remove, Scan
from trunkline.routes.storage.postgres import PostgresStorage

SHARED = [RouteKey(HOUSE, f"shared{n}") for n in range(20)]


def own(step: int) -> RouteKey:
    return RouteKey(HOUSE, f"own{step % 5}")


def hash_of(step: int) -> str:
    return f"hash-{step}"


def changes(step: int) -> list[Change]:
    puts = [Put(key, hash_of(step), {"step": step}) for key in (*SHARED, own(step))]
    return [*puts, Remove(own(step - 1))] if step > 1 else list(puts)


def standing(scan: Scan) -> int:
    """The last step that was made."""
    return max((int(line.hash.removeprefix("hash-")) for line in scan.routes), default=0)


async def write(dsn: str) -> None:
    storage = PostgresStorage(dsn)
    await storage.open()
    step = standing(await storage.scan())
    while True:
        step += 1
        made = await storage.change(changes(step))
        sys.stdout.write(f"{step} {made[own(step)].revision}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1]))
