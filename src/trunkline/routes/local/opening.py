"""How a declared plugin becomes one that is open: its secrets followed, in its place, within a limit.

A plugin's `open` may be a plain function that gives an awaitable: then all it does before is done in a thread, and may block.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from trunkline.core.errors import Invalid, Retryable, Terminal, TrunklineError
from trunkline.routes.canonical import content_hash
from trunkline.routes.ends import Place, PostHooks, Receiving, Sending
from trunkline.routes.keys import Tenant
from trunkline.routes.local.here import Here
from trunkline.routes.local.hushed import HushedReceiving, Raised, hushed_sending, hushing
from trunkline.routes.registry import Kind, Registry
from trunkline.routes.route import PluginUse
from trunkline.routes.secrets import Sections, TenantSecrets
from trunkline.routes.shared import End, PluginKey

OPEN_SECONDS = 10.0
BLOCKING_AT_ONCE = 16  # constructors that block, each in a thread; others wait for their turn and nobody else does

T = TypeVar("T")


def key_of(end: End, tenant: Tenant, use: PluginUse) -> PluginKey:
    return PluginKey(end, tenant, use.plugin, use.name, content_hash(use.config))


def name_of(key: PluginKey) -> str:
    """The same at every instance of the site, and after every restart."""
    return f"{key.plugin}-{content_hash([key.end, key.tenant.org, key.tenant.app, key.plugin, key.name, key.hash])[:16]}"


class Opening:
    def __init__(
        self, here: Here, plugins: Registry, secrets: Sections, hooks: PostHooks, seconds: float = OPEN_SECONDS
    ) -> None:
        self._here, self._plugins, self._secrets, self._hooks, self._seconds = here, plugins, secrets, hooks, seconds
        self._threads = ThreadPoolExecutor(BLOCKING_AT_ONCE, thread_name_prefix="opens-plugins")

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    async def sender(self, key: PluginKey, use: PluginUse) -> Sending:
        plugin = self._plugins.sender(use.plugin)
        if plugin is None or plugin.open is None:
            known = [name for name in self._plugins.names(Kind.SENDER) if _opens(self._plugins.sender(name))]
            raise Invalid(f"sender {use.plugin}", "it cannot be run here", f"take one of {', '.join(known)}")
        sending, config = await self._opened(plugin.open, key, use)
        return hushed_sending(sending, config)

    async def receiver(self, key: PluginKey, use: PluginUse) -> Receiving | None:
        """None: it has nothing to read here; its routes take injected events."""
        plugin = self._plugins.receiver(use.plugin)
        return None if plugin is None or plugin.open is None else HushedReceiving(*await self._opened(plugin.open, key, use))

    def followed(self, key: PluginKey, use: PluginUse) -> tuple[Any, Place]:
        """What a plugin is opened with."""
        return TenantSecrets(key.tenant, self._secrets).resolved(use.config), self._place(key)

    async def _opened(self, open: Callable[[Any, Place], Awaitable[T]], key: PluginKey, use: PluginUse) -> tuple[T, Any]:
        """With its configuration, whose references are followed."""
        config, place = self.followed(key, use)
        try:
            async with asyncio.timeout(self._seconds):
                with hushing(config):
                    return await (await self._called(open, config, place)), config
        except TimeoutError:
            raise Retryable(f"{key.end} {key.plugin}", f"it did not open within {self._seconds:g} s", "try again") from None
        except TrunklineError:
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, Raised) else f"{type(error).__name__}: {error}"
            raise Terminal(f"{key.end} {key.plugin}", reason, "look at its configuration") from None

    async def _called(self, open: Callable[[Any, Place], Awaitable[T]], config: Any, place: Place) -> Awaitable[T]:
        if inspect.iscoroutinefunction(open):
            return open(config, place)
        return await asyncio.get_running_loop().run_in_executor(self._threads, open, config, place)

    def _place(self, key: PluginKey) -> Place:
        here = self._here
        return Place(
            site=here.site, instance=here.instance, tenant=key.tenant, plugin=name_of(key), pool=here.pool,
            database=here.database, clock=here.clock, random=here.random, hooks=self._hooks,
        )  # fmt: skip


def _opens(plugin: Any) -> bool:
    return plugin is not None and plugin.open is not None
