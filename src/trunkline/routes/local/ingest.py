"""Which events are appended to the site's ingest instead of going through the routes here, and who routes them in the end.

Receivers that leave their routes to a pipeline (`trunkline.routes.placement`) have a door: it says, whenever events come, which
way they go.

E4  An event that was appended is acked: it is committed, and will be routed whoever is killed.
E5  While a pipeline is alive that routes them, events are appended; so they are as long as others of the receiver still
    wait, for nothing overtakes. Otherwise they go through the routes here, as if there were no ingest.
E6  Before the first event is appended, what is under way in the routes here has QUIET_SECONDS to end. What takes longer (a
    filter holds it, or its destination is slow) may be overtaken.
E7  When no pipeline is alive, one instance routes what is left: that with the lease of the group (`ingest_draining`).

E1 to E3 are in `trunkline.routes.ingest`.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import structlog

from trunkline.core.errors import Retryable, TrunklineError
from trunkline.net.tasks import Tasks
from trunkline.routes.event import Event
from trunkline.routes.ingest import WAITING, WAITS, Ingested, ingested, receiver_for
from trunkline.routes.keys import HOUSE
from trunkline.routes.local.appending import Appender, Taker
from trunkline.routes.local.asking import Asking
from trunkline.routes.local.here import Here
from trunkline.routes.local.ingest_draining import IngestReceiving
from trunkline.routes.local.line import Line
from trunkline.routes.local.opening import name_of
from trunkline.routes.local.placing import Alive, Placing
from trunkline.routes.local.reading import Reading
from trunkline.routes.outcome import Done
from trunkline.routes.placement import INGEST, pipeline_takes, source_of
from trunkline.routes.quotas import Quotas
from trunkline.routes.shared import End, PluginKey

LOOK_SECONDS = 1.0
QUIET_SECONDS = 2.0

log = structlog.get_logger(__name__)


class Door:
    """One receiver's. It routes here only when it knows that nothing of the receiver waits elsewhere."""

    def __init__(self, ingest: Ingest, line: Line, config: Any) -> None:
        self.taker = Taker(name_of(line.key), line.key.tenant, source_of(config))
        self.line = line
        self._ingest = ingest
        self._routes_here = False
        self._under_way = 0

    async def appends(self) -> bool:
        """Asked for events that just came."""
        if self._ingest.pipeline_takes:
            if self._routes_here:
                await self.line.quiet(QUIET_SECONDS)
            self._routes_here = False
        elif not self._routes_here:
            self._routes_here = not self._under_way and not await self._ingest.waits(self.taker)
        return not self._routes_here

    async def append(self, events: list[Event], seconds: float) -> asyncio.Future[list[Done]]:
        self._under_way += 1
        try:
            future = await self._ingest.appender.put(self.taker, events, seconds)
        except BaseException:
            self._under_way -= 1
            raise
        future.add_done_callback(self._appended)
        return future

    def unsure(self) -> None:
        """Another instance may have read for this receiver since."""
        self._routes_here = False

    def close(self) -> None:
        self._ingest.leave(self)

    def _appended(self, future: asyncio.Future[list[Done]]) -> None:
        self._under_way -= 1


class Ingest:
    """That of one runner."""

    def __init__(self, here: Here, alive: Alive, placing: Placing, quotas: Quotas) -> None:
        self.appender = Appender(here.pool, here.random)
        self._ask, self._alive, self._placing = Asking(here.pool, "ingest"), alive, placing
        self._doors: dict[str, Door] = {}
        self._left = Line(PluginKey(End.RECEIVER, HOUSE, INGEST.plugin, "", ""), quotas, here.clock)
        receiving = IngestReceiving(here.database, here.random, self.line_for)
        self._reading = Reading("ingest", receiving, self._left.give, here.clock, here.random)
        self._left.reading, self._left.group = self._reading, INGEST
        self._drains = False
        self._tasks = Tasks()

    @property
    def pipeline_takes(self) -> bool:
        return pipeline_takes(self._alive())

    def door(self, line: Line, config: Any) -> Door:
        door = Door(self, line, config)
        self._doors[door.taker.receiver] = door
        return door

    def leave(self, door: Door) -> None:
        self._doors.pop(door.taker.receiver, None)

    def line_for(self, row: Ingested) -> Line | None:
        """Whose routes get these events; none: nobody's here."""
        by_source = {(door.taker.tenant, door.taker.source): door for door in self._doors.values()}
        door = receiver_for(row, self._doors, by_source)
        return door.line if door is not None else None

    async def waits(self, of: Taker) -> bool:
        """While nobody can say, they are appended: that waits for the database."""
        try:
            return bool(await self._ask.rows(WAITS, (of.receiver,)))
        except Retryable:
            return True

    def receive(self) -> None:
        self._tasks.spawn(self._keep_looking(), "ingest that is left")

    async def rest(self) -> None:
        await self._tasks.cancel()
        await self._end()

    async def close(self) -> None:
        await self._left.close()
        await self.appender.close()

    async def _keep_looking(self) -> None:
        while True:
            with contextlib.suppress(TrunklineError):
                await self._look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        """E7. The lease is wanted only while there is something to do."""
        wanted = bool(self._doors) and not self.pipeline_takes and await self._anything_left()
        if wanted and not self._drains:
            log.info("no pipeline is alive: nodes route what is left in the ingest")
            self._placing.joined(self._left)
            self._drains = True
        elif not wanted:
            await self._end()

    async def _end(self) -> None:
        if self._drains:
            self._drains = False
            await self._reading.stop()  # before the lease goes: what is under way is passed, and not routed twice
            self._placing.left(self._left)

    async def _anything_left(self) -> bool:
        return any(self.line_for(row) is not None for row in ingested(await self._ask.rows(WAITING)))
