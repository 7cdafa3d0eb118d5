"""The live routes of one instance: started, replaced and stopped until its table is what the storage says.

V1  Of one hash at most one thing is under way: it starts, stops, or is taken over. Whoever needs that hash waits for it and
    for nothing else, so a slow start delays only the ids that want the very same configuration.
V2  Who waited for a start that failed is refused with the same reason; nobody tries it again on its own.
V3  The table moves between two steps of the event loop, after the start and before the stop.
V4  Every live route that started is stopped once: by its last id, by what takes over from it, or by the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
import structlog

from trunkline.core.errors import TrunklineError
from trunkline.routes.compiling import Compiling
from trunkline.routes.keys import RouteKey
from trunkline.routes.storage.base import Body, RouteConfig
from trunkline.routes.table import Known, Plan, Table

START_SECONDS = 10.0
STARTS_AT_ONCE = 256
"""Bounds what starting costs in memory and connections; far more than can be slow at once in a site that is well."""
RELOADED = "reloaded"
"""The note that says since when a route is to be built anew."""

log = structlog.get_logger(__name__)


class LiveRoute(msgspec.Struct, frozen=True, eq=False):
    """The live route wrapper. `config` is that of the id it was started for; others may use it too."""

    hash: str
    config: RouteConfig
    compiled: Any


class Runner(Protocol):
    async def start(self, route: LiveRoute) -> None:
        """The route is attached before its receiver starts, and takes events when this returns. If it raises or is cancelled,
        nothing of the route is left."""

    async def replace(self, old: LiveRoute, new: LiveRoute) -> None:
        """`new` takes over from `old` between two events. Receivers and senders that both use go on untouched. If it raises or
        is cancelled, `old` runs as before and nothing of `new` is left."""

    async def stop(self, route: LiveRoute) -> None:
        """Takes no more events, finishes those it has, flushes what is buffered. It has stopped even if this raises."""


Compile = Callable[[RouteConfig], Any]
Rests = Callable[[Body], str]
"""Why a route does not run here; empty if it does."""


class Brought(msgspec.Struct, frozen=True, gc=False):
    """`changed`: whether the table moved. `reason`: why it refused to."""

    changed: bool
    reason: str = ""


class LiveRoutes:
    def __init__(
        self, runner: Runner, compile: Compile, rests: Rests, start_seconds: float = START_SECONDS,
        compiling: Compiling | None = None,
    ) -> None:  # fmt: skip
        self.table = Table()
        self.routes: dict[str, LiveRoute] = {}
        self._runner, self._compile, self._rests, self._start_seconds = runner, compile, rests, start_seconds
        self._compiling = compiling or Compiling()
        self._under_way: dict[str, asyncio.Future[str]] = {}
        self._prepared: dict[str, LiveRoute] = {}
        self._limits: set[asyncio.Timeout] = set()
        self._turns = asyncio.Semaphore(STARTS_AT_ONCE)
        self._closing = False

    @contextmanager
    def prepared(self, routes: Sequence[LiveRoute]) -> Iterator[None]:
        """They were compiled to see whether they can be: whoever starts one meanwhile need not do it again."""
        mine = {route.hash: route for route in routes}
        self._prepared |= mine
        try:
            yield
        finally:
            for hash in mine:
                self._prepared.pop(hash, None)

    def at_once(self, key: RouteKey, config: RouteConfig | None) -> Brought | None:
        """Where nothing has to start, to stop or to be waited for; otherwise nothing was done."""
        wanted = self._wanted(config)
        plan = self.table.plan(key, wanted)
        if plan.start or plan.stop or plan.uses in self._under_way:
            return None
        return self._moved(key, wanted, plan)[0]

    async def bring(self, key: RouteKey, config: RouteConfig | None) -> Brought:
        """The caller sees to it that of one key only one is under way."""
        wanted = self._wanted(config)
        plan = self.table.plan(key, wanted)
        while busy := self._under_way.get(plan.uses) or self._under_way.get(plan.instead_of):
            reason = await asyncio.shield(busy)
            plan = self.table.plan(key, wanted)
            if reason and plan.start and wanted is not None:
                return self._refused(key, wanted, reason)
        if plan.start and config is not None and wanted is not None:
            return await self._start(key, config, wanted, plan)
        brought, unused = self._moved(key, wanted, plan)
        await self._stop(unused)
        return brought

    def bodies(self) -> dict[str, Body]:
        """Configurations that are live, by their hash."""
        return {hash: route.config.body for hash, route in self.routes.items()}

    def refuse(self, key: RouteKey, config: RouteConfig, reason: str) -> Brought:
        return self._refused(key, self._known(config), reason)

    def hurry(self) -> None:
        """No start is waited for any more."""
        self._closing = True
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(0.0)

    async def close(self) -> None:
        """All stop. Nothing else may be under way."""
        self.table = Table()
        await asyncio.gather(*[self._stop(hash) for hash in list(self.routes)])

    async def _start(self, key: RouteKey, config: RouteConfig, wanted: Known, plan: Plan) -> Brought:
        with self._claim(plan.start, plan.instead_of) as claim:
            try:
                route = await self._started(config, plan)
            except Exception as error:
                claim.set_result(_reason(error))
                return self._refused(key, wanted, claim.result())
            if plan.instead_of:
                del self.routes[plan.instead_of]
            self.routes[plan.start] = route
            brought, unused = self._moved(key, wanted, plan)
        if unused != plan.instead_of:
            await self._stop(unused)
        return brought

    async def _started(self, config: RouteConfig, plan: Plan) -> LiveRoute:
        """Where very many start at once, those whose turn has not come compile nothing: the time of a start does not go by
        while others are compiled."""
        ahead = await self._compiled(config) if self._compiling.is_heavy(config.body) else None
        async with self._turns:
            if self._closing:
                raise TimeoutError
            route = LiveRoute(config.hash, config, ahead if ahead is not None else await self._compiled(config))
            async with asyncio.timeout(self._start_seconds) as limit:
                self._limits.add(limit)
                try:
                    if plan.instead_of:
                        await self._runner.replace(self.routes[plan.instead_of], route)
                    else:
                        await self._runner.start(route)
                finally:
                    self._limits.discard(limit)
        return route

    async def _compiled(self, config: RouteConfig) -> Any:
        """What was prepared is used once: a live route shares its filters with none."""
        ready = self._prepared.pop(config.hash, None)
        if ready is not None and ready.config.key == config.key:
            return ready.compiled
        return await self._compiling.do(config.body, lambda: self._compile(config))

    async def _stop(self, hash: str) -> None:
        if not hash:
            return
        with self._claim(hash):
            route = self.routes.pop(hash)
            try:
                await self._runner.stop(route)
            except Exception as error:
                log.warning("a route did not stop cleanly", route=str(route.config.key), reason=_reason(error))

    def _moved(self, key: RouteKey, wanted: Known | None, plan: Plan) -> tuple[Brought, str]:
        if not plan.moves:
            return Brought(False), ""
        changed = wanted is not None or key in self.table.ids or key in self.table.refused
        return Brought(changed), self.table.settle(key, wanted)

    def _refused(self, key: RouteKey, wanted: Known, reason: str) -> Brought:
        self.table.refuse(key, wanted, reason)
        return Brought(False, reason)

    def _wanted(self, config: RouteConfig | None) -> Known | None:
        return None if config is None else self._known(config)

    def _known(self, config: RouteConfig) -> Known:
        return Known(config.hash, config.revision, self._rests(config.body), str(config.notes.get(RELOADED, "")))

    @contextmanager
    def _claim(self, *hashes: str) -> Iterator[asyncio.Future[str]]:
        claim: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        claimed = {hash for hash in hashes if hash}
        self._under_way |= dict.fromkeys(claimed, claim)
        try:
            yield claim
        finally:
            for hash in claimed:
                del self._under_way[hash]
            if not claim.done():
                claim.set_result("")


def _reason(error: Exception) -> str:
    if isinstance(error, TrunklineError):
        return f"{error.what}: {error.why}"
    if isinstance(error, TimeoutError):
        return "it did not start in time"
    return f"{type(error).__name__}: {error}"
