"""Looking again: routes are read from the storage and brought into the table, whoever asked for it and however often.

L1  Of one route one look is under way. Whoever asks meanwhile gets another one after it, together with all who ask until
    then: a hundred deltas of one route cost two looks.
L2  Who asks gets the result of a look whose reading began afterwards. So what it saw is never older than the question.
L3  All that is asked for is read at once; bringing it in is each route's own affair, so a slow start delays no other route.
L4  Ids that want a configuration which has to start go as a group: one starts it, the others follow or are refused alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from itertools import islice

import msgspec

from trunkline.core.errors import Retryable
from trunkline.net.tasks import Tasks, together
from trunkline.routes.keys import RouteKey
from trunkline.routes.live import Brought, LiveRoutes
from trunkline.routes.storage.base import RouteConfig, Storage

READ_AT_ONCE = 2_000
"""Bringing so many in takes the event loop some ten milliseconds."""
READERS = 2
MANY = 100
"""Of more than these, configurations that are live are not read again; for a few it costs more to name all that are."""


class Looked(msgspec.Struct, frozen=True):
    """`failure`: why nothing is known of what the storage has; the table is as it was."""

    brought: Brought
    failure: Exception | None = None


_STOPPED = Looked(Brought(False), Retryable("routing table", "this instance is stopping", "ask another instance"))

Found = Mapping[RouteKey, RouteConfig | None]
Tell = Callable[[RouteKey, Looked], None]


class Looks:
    def __init__(self, storage: Storage, live: LiveRoutes) -> None:
        self._storage, self._live = storage, live
        self._asked: dict[RouteKey, list[Tell]] = {}
        self._looking: dict[RouteKey, list[Tell]] = {}
        self._stirred = asyncio.Event()
        self._tasks = Tasks()
        self._finished = False

    def ask(self, key: RouteKey, tell: Tell) -> None:
        if self._finished:
            tell(key, _STOPPED)
            return
        self._asked.setdefault(key, []).append(tell)
        self._stirred.set()

    async def look(self, keys: Collection[RouteKey]) -> dict[RouteKey, Looked]:
        """`keys`: each once."""
        results: dict[RouteKey, Looked] = {}
        complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell(key: RouteKey, looked: Looked) -> None:
            results[key] = looked
            if len(results) == len(keys) and not complete.done():
                complete.set_result(None)

        for key in keys:
            self.ask(key, tell)
        if keys:
            await complete
        return results

    async def take(self, configs: Mapping[RouteKey, RouteConfig]) -> None:
        """Brings in what was read already; what is being looked at is looked at again instead."""
        free = {key: config for key, config in configs.items() if key not in self._looking}
        again = [key for key in configs if key in self._looking]
        self._looking |= {key: [] for key in free}
        tasks = self._bring(free)
        if tasks:
            await asyncio.wait(tasks)
        await self.look(again)

    async def run(self) -> None:
        """While one brings in what it read, the storage is at work for the other."""
        await together(*[self._run() for _ in range(READERS)])

    async def _run(self) -> None:
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            while keys := list(islice((key for key in self._asked if key not in self._looking), READ_AT_ONCE)):
                await self._read(keys)

    async def finish(self) -> None:
        """No more looks: those under way end, those asked for end without one."""
        self._finished = True
        self._live.hurry()
        await self._tasks.join()
        for asked in (self._asked, self._looking):
            for key, tells in asked.items():
                for tell in tells:
                    tell(key, _STOPPED)
        self._asked, self._looking = {}, {}

    async def _read(self, keys: list[RouteKey]) -> None:
        self._looking |= {key: self._asked.pop(key) for key in keys}
        try:
            configs = await self._storage.read(keys, self._live.bodies() if len(keys) > MANY else {})
        except Exception as failure:
            for key in keys:
                self._done(key, Looked(Brought(False), failure))
            return
        self._bring({key: configs.get(key) for key in keys})

    def _bring(self, found: Found) -> list[asyncio.Task[None]]:
        """Gives the tasks that do what cannot be done at once."""
        groups: dict[object, list[RouteKey]] = {}
        for key, config in found.items():
            group = key if config is None or config.hash in self._live.table.live else config.hash
            if group in groups:
                groups[group].append(key)
            elif brought := self._live.at_once(key, config):
                self._done(key, Looked(brought))
            else:
                groups[group] = [key]
        return [self._tasks.spawn(self._all_after_the_first(keys, found), f"route {keys[0]}") for keys in groups.values()]

    async def _all_after_the_first(self, keys: list[RouteKey], found: Found) -> None:
        first = await self._bring_one(keys[0], found[keys[0]])
        later: list[RouteKey] = []
        for key in keys[1:]:
            config = found[key]
            brought = self._live.at_once(key, config)
            if brought is None and config is not None and first.reason:
                brought = self._live.refuse(key, config, first.reason)
            if brought is None:
                later.append(key)
            else:
                self._done(key, Looked(brought))
        await asyncio.gather(*[self._bring_one(key, found[key]) for key in later])

    async def _bring_one(self, key: RouteKey, config: RouteConfig | None) -> Brought:
        brought = await self._live.bring(key, config)
        self._done(key, Looked(brought))
        return brought

    def _done(self, key: RouteKey, looked: Looked) -> None:
        for tell in self._looking.pop(key):
            tell(key, looked)
        if key in self._asked:
            self._stirred.set()
