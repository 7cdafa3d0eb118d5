"""The outboxes of routes that run on Spark, drained by the pipeline that holds their group (H33).

The rules are those of `trunkline.routes.local.draining`, and so is the drainer: nodes that have the senders drain, too, and
whoever holds a lane is the only one. A batch appends to the outboxes that had something when it was planned: as long as a lane
is there, nothing overtakes it, and with its last message it is gone.

An event that is tried again runs through its filters in the driver, between two batches (`Batches.again`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from trunkline.core.clock import Clock
from trunkline.core.errors import TrunklineError
from trunkline.db.away import in_one_line
from trunkline.pipeline.jobs.batches import Tell
from trunkline.pipeline.jobs.job import Job
from trunkline.pipeline.jobs.loaded import Loaded, LoadedRoute
from trunkline.pipeline.jobs.outcomes import RouteCount, TaskCounts
from trunkline.pipeline.jobs.stage import Item
from trunkline.pipeline.jobs.stored import Member
from trunkline.routes.ends import Sendable, Undelivered
from trunkline.routes.event import Event
from trunkline.routes.local.draining import Drainer, Stored
from trunkline.routes.local.here import Here
from trunkline.routes.local.keeping import LaneName
from trunkline.routes.local.outbox import Outbox, Row
from trunkline.routes.outcome import Done, Outcome

CONNECTIONS = 4

Find = Callable[[str], tuple[Job, Member] | None]
"""The job that runs a route here, by the route's hash."""


class _Sender:
    def __init__(self, job: Job, route: LoadedRoute) -> None:
        self._job, self._route = job, route

    async def send(self, messages: Sequence[Sendable], seconds: float) -> Sequence[Undelivered | None]:
        senders, route = self._job.senders, self._route
        items = [Item(route, message, "", 0.0) for message in messages]
        return await asyncio.wrap_future(senders.loop.start(senders.send(route.sender, items, seconds)))


class _Lane:
    """What a batch does is said by its plan, not here."""

    def __init__(self, route: LoadedRoute, sender: _Sender) -> None:
        self.name: LaneName = route.lane
        self.keeps, self.sender = route.sure, sender
        self.only_appends = self.drained = False


class JobTrack:
    """A `DrainedRoute`."""

    def __init__(self, job: Job, route: LoadedRoute, instance: str, tell: Tell) -> None:
        self.job, self._route, self._instance, self._tell = job, route, instance, tell
        self.lane = _Lane(route, _Sender(job, route))
        self.sends, self.once = route.plugin.sends, route.once

    def drained(self, sent: int, dead: int) -> None:
        counts = TaskCounts(routes={self._route.hash: RouteCount(sent=sent, dead=dead)}, group=self.job.settings.group)
        self._tell(counts, {self._route.hash: self._route})

    async def retry(self, event: Event, row: Row, seconds: float) -> Done:
        try:
            await asyncio.to_thread(self.job.batches.again, self._route.hash, row, event, self._instance)
        except (psycopg.Error, TrunklineError) as error:
            why = f"{error.what}: {error.why}" if isinstance(error, TrunklineError) else in_one_line(error)
            return Done(row.id, Outcome.NACKED, why)
        return Done(row.id, Outcome.ACKED)


class JobTracks(Mapping[str, JobTrack]):
    """By hash: made when they are asked for. Only those that were are among its items: few of many routes have an outbox."""

    def __init__(self, find: Find, instance: str, tell: Tell) -> None:
        self._find, self._instance, self._tell = find, instance, tell
        self._made: dict[str, JobTrack] = {}

    def __getitem__(self, hash: str) -> JobTrack:
        found = self._find(hash)
        if found is None:
            self._made.pop(hash, None)
            raise KeyError(hash)
        job, member = found
        track = self._made.get(hash)
        if track is None or track.job is not job:
            track = self._made[hash] = JobTrack(job, Loaded(job.settings).made(member), self._instance, self._tell)
        return track

    def __iter__(self) -> Iterator[str]:
        return iter([hash for hash in self._made if self._find(hash) is not None])

    def __len__(self) -> int:
        return len(self._made)


class JobDrainer:
    """`start` and `rest` are called once, on the loop of the routing table."""

    def __init__(
        self, site: str, instance: str, dsn: str, clock: Clock, random: Callable[[], float], find: Find,
        elsewhere: Callable[[str], bool], stored: Stored, tell: Tell,
    ) -> None:  # fmt: skip
        self._pool = AsyncConnectionPool[psycopg.AsyncConnection[Any]](
            dsn, min_size=0, max_size=CONNECTIONS, open=False, name="route-outboxes",
            check=AsyncConnectionPool.check_connection,
            kwargs={
                "application_name": "trunkline-route-outboxes", "tcp_user_timeout": 10_000,
                "options": "-c idle_in_transaction_session_timeout=3000 -c jit=off",
            },
        )  # fmt: skip
        here, tracks = Here(site, instance, dsn, self._pool, clock, random), JobTracks(find, instance, tell)
        self._drainer = Drainer(Outbox(self._pool), here, lambda: tracks, stored, elsewhere=elsewhere)

    async def start(self) -> None:
        await self._pool.open()
        self._drainer.start()

    async def rest(self) -> None:
        await self._drainer.rest()
        await self._pool.close()
