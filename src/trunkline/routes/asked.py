"""The routing table as others ask for it, from any thread: what they want is done on the node's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

from trunkline.core.errors import Retryable
from trunkline.routes.keys import Tenant
from trunkline.routes.operating import RoutesOperating
from trunkline.routes.storage.base import TenantConfig

ASK_SECONDS = 120.0
"""Longer than any question may wait; a loop that does not answer by then has stopped."""

_T = TypeVar("_T")


class RoutesAsked:
    """Nothing can be asked before `begin` and after `end`."""

    def __init__(self) -> None:
        self._at: tuple[RoutesOperating, asyncio.AbstractEventLoop] | None = None

    def begin(self, operating: RoutesOperating) -> None:
        """On the node's event loop."""
        self._at = (operating, asyncio.get_running_loop())

    def end(self) -> None:
        self._at = None

    def begun(self, question: Callable[[RoutesOperating], Awaitable[_T]]) -> Future[_T]:
        """Raises `Retryable` where there is nobody to ask; whoever waits for the answer blocks nobody else."""
        if self._at is None:
            raise Retryable("routing table", "this node does not hold it now", "ask another node of the site, or later")
        operating, loop = self._at

        async def answer() -> _T:
            return await question(operating)

        coroutine = answer()
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            raise Retryable("routing table", "this node stops", "ask another node of the site") from None

    def ask(self, question: Callable[[RoutesOperating], Awaitable[_T]]) -> _T:
        """Blocks; from any thread but the loop's own."""
        return self.begun(question).result(ASK_SECONDS)

    def tenant(self, tenant: Tenant) -> TenantConfig | None:
        """As this instance knows it; never waits."""
        return self._at[0].tenants.known.get(tenant) if self._at else None
