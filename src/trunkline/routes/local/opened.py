"""Plugins that are open: one of each, however many live routes use it.

O1  It is opened by its first user and closed behind its last; a plugin that closes is closed before it is opened again.
O2  Opening has a limit and belongs to nobody: a user that does not wait any longer neither stops it for others nor leaves
    something open. What failed to open is tried again by the next user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog

from trunkline.net.tasks import Tasks
from trunkline.routes.route import PluginUse
from trunkline.routes.shared import PluginKey, SharedPlugins

T = TypeVar("T")
Open = Callable[[PluginKey, PluginUse], Awaitable[T]]
Close = Callable[[T], Awaitable[None]]

CLOSE_SECONDS = 10.0  # what is not flushed by then waits in the retry outbox, or comes again from its source

log = structlog.get_logger(__name__)


class Opened(Generic[T]):
    def __init__(self, open: Open[T], close: Close[T], tasks: Tasks) -> None:
        self.counts = SharedPlugins()
        self._open, self._close, self._tasks = open, close, tasks
        self._there: dict[PluginKey, asyncio.Future[T]] = {}
        self._closing: dict[PluginKey, asyncio.Task[None]] = {}

    def all(self) -> dict[PluginKey, T]:
        """Those that are open."""
        return {key: at.result() for key, at in self._there.items() if at.done() and not at.cancelled() and not at.exception()}

    async def join(self, key: PluginKey, use: PluginUse) -> T:
        if self.counts.join([key]):
            self._there[key] = there = asyncio.get_running_loop().create_future()
            self._tasks.spawn(self._opening(key, use, there), f"opens {key.end} {key.plugin}")
        try:
            return await asyncio.shield(self._there[key])
        except BaseException:
            self.leave(key)
            raise

    def leave(self, key: PluginKey) -> asyncio.Task[None] | None:
        """Gives the closing, if this was its last user."""
        if not self.counts.leave([key]):
            return None
        there = self._there.pop(key)
        closing = self._tasks.spawn(self._ending(key, there), f"closes {key.end} {key.plugin}")
        self._closing[key] = closing
        closing.add_done_callback(lambda _: self._closed(key, closing))
        return closing

    def _closed(self, key: PluginKey, closing: asyncio.Task[None]) -> None:
        if self._closing.get(key) is closing:
            del self._closing[key]

    async def _opening(self, key: PluginKey, use: PluginUse, there: asyncio.Future[T]) -> None:
        try:
            if key in self._closing:
                await asyncio.wait([self._closing[key]])
            there.set_result(await self._open(key, use))
        except asyncio.CancelledError:
            there.cancel()
            raise
        except Exception as error:
            there.set_exception(error)
            there.exception()  # that nobody waits for it any more is no defect

    async def _ending(self, key: PluginKey, there: asyncio.Future[T]) -> None:
        await asyncio.wait([there])
        if there.cancelled() or there.exception() is not None:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._close(there.result())
        except Exception as error:
            log.warning(
                "a plugin did not close cleanly", plugin=key.plugin, end=key.end, reason=f"{type(error).__name__}: {error}"
            )
