"""Routes that take long to compile: the event loop serves others meanwhile."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from memory_routes import CountingRunner, simple
from routes_in_memory import NEVER
from running_routes import until
from trunkline.core.clock import SystemClock
from trunkline.core.errors import Invalid
from trunkline.core.mistakes import Mistakes
from trunkline.routes.fields import RouteModel
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.making import making_at
from trunkline.routes.manager import RoutingTableManager
from trunkline.routes.plugin import FilterPlugin
from trunkline.routes.registry import OURS, Registry
from trunkline.routes.storage.base import Put
from trunkline.routes.storage.memory import MemoryStorage
from trunkline.routes.sync.memory import MemoryHub, MemorySyncer
from trunkline.routes.workshop import Workshop
from trunkline.routes.writing import Writing

TENANT = Tenant("myorg", "myapp")
KEY = RouteKey(TENANT, "r")
SECONDS = 10.0


class Slow(RouteModel):
    bad: bool = False


class Heavy:
    """A filter that compiles when the loop says so; `lost` if that did not come in time: it was the loop that waited."""

    def __init__(self) -> None:
        self.began, self.may, self.lost = threading.Event(), threading.Event(), False
        self.plugins = Registry((*OURS, FilterPlugin("slow", Slow, self._compile, heavy=True)))
        self.workshop = Workshop(self.plugins)
        self.storage, self.runner = MemoryStorage(), CountingRunner()

    def _compile(self, config: Slow, around: object) -> Any:
        self.began.set()
        self.lost |= not self.may.wait(SECONDS)
        if config.bad:
            raise Invalid("it", "it is bad", "mend it")
        return lambda batch, faults: batch

    async def let(self) -> None:
        """Once it compiles."""
        await until(self.began.is_set)
        self.may.set()

    @asynccontextmanager
    async def manager(self) -> AsyncIterator[RoutingTableManager]:
        making, clock = making_at(self.workshop, ""), SystemClock()
        syncer = MemorySyncer(MemoryHub(), "i1")
        manager = RoutingTableManager(self.storage, syncer, self.runner, making, clock, random.random, NEVER)
        await self.storage.open()
        await manager.start()
        yield manager
        await manager.stop()
        await self.storage.close()

    def route(self, **config: Any) -> dict[str, Any]:
        return simple(filterChain=[{"plugin": "slow", "config": config}])


@pytest.fixture
def heavy() -> Heavy:
    return Heavy()


async def test_a_change_is_compiled_beside_the_loop(heavy: Heavy) -> None:
    async with heavy.manager() as manager:
        changed, _ = await asyncio.gather(manager.add(TENANT, heavy.route(), "r"), heavy.let())
        assert changed.here[KEY].live
    assert not heavy.lost


async def test_what_others_stored_is_compiled_beside_the_loop(heavy: Heavy) -> None:
    async with heavy.manager() as manager:
        hash = making_at(heavy.workshop, "").hash(TENANT, heavy.route())
        await heavy.storage.change([Put(KEY, hash, heavy.route(), {}, None)])
        await asyncio.gather(manager.repair(), heavy.let())
        assert manager.status(KEY).live
    assert not heavy.lost


async def test_what_somebody_writes_is_compiled_beside_the_loop_and_its_mistakes_are_told(heavy: Heavy) -> None:
    writing = Writing(heavy.storage, heavy.workshop)
    await heavy.storage.open()
    prepared, _ = await asyncio.gather(writing.prepared(TENANT, heavy.route(), "r"), heavy.let())
    assert prepared.change.key == KEY
    with pytest.raises(Invalid, match="it is bad"):
        await writing.prepared(TENANT, heavy.route(bad=True), "r")
    with pytest.raises(Mistakes, match="filterChain"):
        await writing.prepared(TENANT, heavy.route(no=1), "r")
    assert not heavy.lost


@pytest.mark.parametrize("chain", [5, "slow", ["slow"], [{"plugin": ["slow"]}], [{}], {"plugin": "slow"}])
async def test_whatever_somebody_writes_has_mistakes_and_no_worse(heavy: Heavy, chain: Any) -> None:
    heavy.may.set()
    with pytest.raises(Mistakes):
        await Writing(heavy.storage, heavy.workshop).prepared(TENANT, simple(filterChain=chain), "r")


def test_scripts_and_schemas_are_heavy() -> None:
    assert {plugin.name for plugin in OURS if isinstance(plugin, FilterPlugin) and plugin.heavy} == {"js", "validate"}
