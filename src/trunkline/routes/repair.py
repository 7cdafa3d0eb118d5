"""The whole table at once: loaded at the start, and compared with the storage now and then.

R1  A scan only says where to look again. What is different is read once more before anything changes (the first load, into
    an empty table, takes configurations by their hash, and only of routes nobody has looked at since it began).
R2  What it reports is what it changed: a second repair right after it reports nothing.
R3  What did not start is tried again by every repair, and reported with its reason until it does.
R4  A repair that fails is repeated soon, with growing pauses.
R5  Every few seconds it asks for what is newer than the newest revision that it has looked at: whoever changed the storage and
    died before telling leaves the others behind no longer than that (H41).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.clock import Clock
from trunkline.core.collector import collector_at_rest, leave_out
from trunkline.net.tasks import together
from trunkline.routes.keys import RouteKey
from trunkline.routes.live import LiveRoutes
from trunkline.routes.looking import Looked, Looks
from trunkline.routes.storage.base import RouteConfig, Scan, Storage
from trunkline.routes.table import Kind

REPORTS = 100
RETRY_FIRST, RETRY_MOST = 0.5, 30.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Pace:
    """`seconds`: between two repairs, `look`: between two looks for what is newer; give or take `jitter` of it, so that
    instances do not ask all at once."""

    seconds: float = 300.0
    jitter: float = 0.1
    look: float = 3.0


USUAL_PACE = Pace()


class Repaired(msgspec.Struct, frozen=True):
    """`revision`: that of the scan. `routes`: what was wrong and is right now. `refused`: what did not start, and why."""

    revision: int
    routes: dict[RouteKey, Kind]
    refused: dict[RouteKey, str]
    at: float

    @property
    def count(self) -> int:
        return len(self.routes)


class Repairs:
    """`last`: the newest comparison, also one that found nothing. `done`: how many there were, `repaired`: routes in all."""

    def __init__(
        self, storage: Storage, live: LiveRoutes, looks: Looks, clock: Clock, random: Callable[[], float], pace: Pace
    ) -> None:
        self._storage, self._live, self._looks, self._clock = storage, live, looks, clock
        self._random, self._pace = random, pace
        self._soon = asyncio.Event()
        self._one = asyncio.Lock()
        self.reports: list[Repaired] = []
        self.last: Repaired | None = None
        self.done = self.repaired = self._seen = 0

    @property
    def revision(self) -> int:
        """The newest that this instance has heard of."""
        return max(self._live.table.revision, self._seen)

    @property
    def looked(self) -> int:
        """All that is not newer was looked at."""
        return self._seen

    def soon(self) -> None:
        self._soon.set()

    async def load(self) -> None:
        with collector_at_rest():
            await self._load()

    async def _load(self) -> None:
        number, scan = await self._scan()
        bodies = await self._storage.bodies(list({route.hash for route in scan.routes}))
        missing = self._live.table.differences(scan, number)
        configs = {
            route.key: RouteConfig(route.key, route.hash, bodies[route.hash], {}, route.revision, 0.0, 0.0)
            for route in scan.routes
            if route.key in missing and route.hash in bodies
        }
        await self._looks.take(configs)
        _readable(await self._looks.look([key for key in missing if key not in configs]))
        self._live.table.end_scan(number)
        self._seen = scan.revision
        self.last = Repaired(scan.revision, {}, {}, self._clock.wall())
        leave_out(len(bodies))

    async def repair(self) -> Repaired:
        async with self._one:
            number, scan = await self._scan()
            wrong = self._live.table.differences(scan, number)
            looked = _readable(await self._looks.look(list(wrong)))
            self._live.table.end_scan(number)
        return self._report(scan, wrong, looked)

    async def look(self) -> int:
        """At what is newer than what it has looked at; gives how many routes that changed."""
        newer = await self._storage.newer(self._seen)
        wrong = self._live.table.behind(newer)
        looked = _readable(await self._looks.look(list(wrong)))
        self._seen = max(self._seen, newer.revision)
        routes = {key: kind for key, kind in wrong.items() if looked[key].brought.changed}
        if routes:
            self._told(Repaired(newer.revision, routes, {}, self._clock.wall()))
        return len(routes)

    async def run(self) -> None:
        await together(
            self._repeat(self.repair, self._pace.seconds, self._soon),
            self._repeat(self.look, self._pace.look, asyncio.Event()),
        )

    async def _repeat(self, do: Callable[[], Awaitable[object]], seconds: float, soon: asyncio.Event) -> None:
        backoff = Backoff(RETRY_FIRST, RETRY_MOST, self._random)
        pause = self._pause(seconds)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await soon.wait()
            soon.clear()
            try:
                await do()
                backoff.success()
                pause = self._pause(seconds)
            except Exception as error:
                pause = backoff.after_failure()
                log.warning("the routing table was not compared with the storage", reason=str(error), again_in=pause)

    async def _scan(self) -> tuple[int, Scan]:
        number = self._live.table.begin_scan()
        return number, await self._storage.scan()

    def _report(self, scan: Scan, wrong: Mapping[RouteKey, Kind], looked: Mapping[RouteKey, Looked]) -> Repaired:
        routes = {key: kind for key, kind in wrong.items() if looked[key].brought.changed}
        refused = {key: one.brought.reason for key, one in looked.items() if one.brought.reason}
        repaired = self.last = Repaired(scan.revision, routes, refused, self._clock.wall())
        self.done, self._seen = self.done + 1, max(self._seen, scan.revision)
        if routes or refused:
            self._told(repaired)
        return repaired

    def _told(self, one: Repaired) -> None:
        log.warning("the routing table was repaired", revision=one.revision, repaired=one.count, refused=len(one.refused))
        self.repaired += one.count
        self.reports = [*self.reports[1 - REPORTS :], one]

    def _pause(self, seconds: float) -> float:
        return seconds * (1 + self._pace.jitter * (2 * self._random() - 1))


def _readable(looked: dict[RouteKey, Looked]) -> dict[RouteKey, Looked]:
    for one in looked.values():
        if one.failure is not None:
            raise one.failure
    return looked
