"""Tasks of one owner: none is lost by the collector, none fails in silence, all end with the owner."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger(__name__)


class Tasks:
    def __init__(self) -> None:
        self._running: dict[asyncio.Task[None], None] = {}  # in the order of their start
        self._dropped: set[asyncio.Task[None]] = set()  # told to end, and not yet there

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    def drop_oldest(self) -> None:
        task = next(iter(self._running))
        del self._running[task]
        self._dropped.add(task)
        task.cancel()

    async def join(self) -> None:
        await asyncio.gather(*self._running, *self._dropped, return_exceptions=True)

    async def cancel(self) -> None:
        await asyncio.sleep(0)  # a task cancelled before its first step never reaches its own `finally`
        for task in self._running:
            task.cancel()
        await self.join()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._dropped.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a task died", task=task.get_name(), next_step="report this defect", exc_info=error)
