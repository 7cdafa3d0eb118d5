"""What may take long to compile is compiled in a thread: the event loop has others to serve.

A script is read by another process, a schema of a megabyte takes seconds; most filters take less than handing them over would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from trunkline.routes.registry import Registry
from trunkline.routes.storage.base import Body

AT_ONCE = 2  # each that reads scripts has a process of its own; others wait for their turn

T = TypeVar("T")


class Compiling:
    """`plugins`: none of them is heavy if there are none."""

    def __init__(self, plugins: Registry | None = None) -> None:
        self._plugins = plugins
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="compiles-routes")

    async def do(self, body: Body, work: Callable[[], T]) -> T:
        """`work`: reads or compiles this route, as somebody wrote it."""
        if not self.is_heavy(body):
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def is_heavy(self, body: Body) -> bool:
        chains = [body.get(key) for key in ("filterChain", "filter_chain")] if self._plugins is not None else []
        return any(self._is_heavy(use) for chain in chains if isinstance(chain, list | tuple) for use in chain)

    def _is_heavy(self, use: Any) -> bool:
        name = use.get("plugin") if isinstance(use, Mapping) else None
        plugin = self._plugins.filter(name) if self._plugins is not None and isinstance(name, str) else None
        return plugin is not None and plugin.heavy
