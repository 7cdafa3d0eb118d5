"""Tasks of one owner: none is lost by the collector, none fails in silence, all end with the owner.

A cancellation can get lost: `asyncio.wait_for` of Python 3.11 forgets one that comes at the very moment it has its result, and
so does all that is built on it, pools of connections among it. So whoever must end is told again (`end`), which a TaskGroup
never does (`together`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import structlog

AGAIN_SECONDS = 5.0
"""Longer than work that was told to end takes to clean up."""

log = structlog.get_logger(__name__)


async def end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels them, and returns when all have ended; who is cancelled meanwhile, perhaps again, leaves none behind either."""
    left, cancelled = set(tasks), False
    while left:
        for task in left:
            task.cancel()
        try:
            _, left = await asyncio.wait(left, timeout=AGAIN_SECONDS)
        except asyncio.CancelledError:
            left, cancelled = {task for task in left if not task.done()}, True
    if cancelled:
        raise asyncio.CancelledError


async def together(*works: Coroutine[Any, Any, None]) -> None:
    """Side by side. The first that fails ends the others and is raised; so does whoever cancels the caller."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await end(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


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
        await end(self._running)
        await self.join()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._dropped.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a task died", task=task.get_name(), next_step="report this defect", exc_info=error)
