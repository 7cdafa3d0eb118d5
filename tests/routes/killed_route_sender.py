"""A sender that the test kills: `killed_route_sender.py <plugin> <config> <dsn> <first number>` sends for ever, and says after
each answer which number comes next."""

from __future__ import annotations

import asyncio
import sys
from itertools import count

from route_place import AROUND, event, place_at
from route_sender_suite import BATCH
from trunkline.routes.ends import Sendable
from trunkline.routes.registry import registry


async def send(name: str, config: str, dsn: str, first: int) -> None:
    plugin = registry().sender(name)
    assert plugin is not None
    assert plugin.open is not None
    model = plugin.config.model_validate_json(config)
    message = plugin.message(model, AROUND)
    async with place_at(dsn) as place:
        sending = await plugin.open(model, place)
        for begin in count(first, BATCH):
            messages = [Sendable(f"id-{n}", message(event({"n": n}))) for n in range(begin, begin + BATCH)]
            if not any(await sending.send(messages)):
                sys.stdout.write(f"{begin + BATCH}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(send(*sys.argv[1:4], int(sys.argv[4])))
