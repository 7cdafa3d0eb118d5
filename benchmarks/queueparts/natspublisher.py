"""Publishing to JetStream as its Python client allows: message by message, or whole batches of which only the last is answered.

Either way several batches are under way, and a batch counts when its acknowledgement is there.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import nats

from queueparts.natsservers import STREAM, SUBJECT
from queueparts.pace import Pace

UNDER_WAY = 20
Batch = Awaitable[Any]


async def one_by_one(js: Any, connection: Any, payloads: list[bytes]) -> Batch:
    return asyncio.gather(*[await js.publish_async(SUBJECT, payload, stream=STREAM) for payload in payloads])


class Atomic:
    """The server takes a batch as a whole; the client has no call of its own for it, so the headers are written here."""

    def __init__(self) -> None:
        self._number = 0

    async def __call__(self, js: Any, connection: Any, payloads: list[bytes]) -> Batch:
        self._number += 1
        headers = {"Nats-Batch-Id": f"{os.getpid()}-{self._number}"}
        for n, payload in enumerate(payloads[:-1], 1):
            await connection.publish(SUBJECT, payload, headers={**headers, "Nats-Batch-Sequence": str(n)})
        last = {**headers, "Nats-Batch-Sequence": str(len(payloads)), "Nats-Batch-Commit": "1"}
        return await js.publish_async(SUBJECT, payloads[-1], headers=last)


WAYS: dict[str, Callable[[], Any]] = {"one_by_one": lambda: one_by_one, "atomic": Atomic}


def publish(url: str, way: str, size: int, batch: int, pace: Pace) -> None:
    asyncio.run(_publish(url, WAYS[way](), size, batch, pace))


async def _publish(url: str, way: Any, size: int, batch: int, pace: Pace) -> None:
    connection = await nats.connect(url)
    js = connection.jetstream(publish_async_max_pending=UNDER_WAY * batch)
    payloads = [os.urandom(size) for _ in range(batch)]
    waiting: deque[Batch] = deque()
    while not pace.ended.value:
        if not pace.may_go():
            await asyncio.sleep(0.002)
        elif len(waiting) < UNDER_WAY:
            waiting.append(await way(js, connection, payloads))
            continue
        if waiting:
            await waiting.popleft()
            pace.sent.value += batch
    await connection.close()
