"""The routing table manager: one per instance. All instances of a site change the same stored table and run what it says.

M1  A change is checked and compiled here and now, then stored with compare-and-set, then published, then applied here. What
    is wrong with it ends it before anything has changed.
M2  Whoever hears a delta reads the storage, applies what is there, and acks with its result. So does its publisher.
M3  The storage is read for every change: no message, and no answer of the storage to a change, is ever applied itself. So
    the order, loss and doubling of messages do not matter.
M4  It is ready when all that is stored was started or refused with its reason; when it has stopped, all has stopped, once.
M5  A storage that fails changes nothing here. What was missed is found by the next repair, which then comes soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import msgspec
import structlog

from trunkline.core.clock import Clock
from trunkline.core.collector import collector_at_rest
from trunkline.core.errors import Retryable, Terminal
from trunkline.net.tasks import Tasks
from trunkline.routes.acked import Acked
from trunkline.routes.awaited import Awaited, Outcome
from trunkline.routes.compiling import Compiling
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.live import RELOADED, START_SECONDS, Compile, LiveRoute, LiveRoutes, Rests, Runner
from trunkline.routes.looking import Looked, Looks
from trunkline.routes.refusals import Refusals
from trunkline.routes.repair import USUAL_PACE, Pace, Repaired, Repairs
from trunkline.routes.storage.base import Body, Change, Put, Remove, RouteConfig, Storage
from trunkline.routes.sync.base import Ack, Answer, Delta, DeltaSyncer, Item, OnDelta, Operation
from trunkline.routes.sync.waiting import MANY
from trunkline.routes.table import Table
from trunkline.routes.told import Told, told_of

GAP_SECONDS = 1.0
"""So long the deltas behind a gap wait for its repair; what is slow to start then goes on beside them."""

log = structlog.get_logger(__name__)


class NoSuchRoute(Terminal):
    def __init__(self, key: RouteKey) -> None:
        super().__init__(f"route {key}", "there is none", "look at the tenant's routes for its id")


@dataclass(frozen=True)
class Making:
    """What becomes of a stored configuration. `hash`: of a tenant's configuration. `compile`: raises `Invalid` for what is
    wrong with it. `rests`: why it does not run at this instance."""

    hash: Callable[[Tenant, Body], str]
    compile: Compile
    rests: Rests
    start_seconds: float = START_SECONDS
    compiling: Compiling = field(default_factory=Compiling)


def rests_outside(region: str) -> Rests:
    """Routes that are inactive, or of another region than this instance's, do not run here."""

    def rests(body: Body) -> str:
        if body.get("inactive"):
            return "it is inactive"
        of = body.get("region") or region
        return "" if of == region else f"it runs in region {of} only; this instance is in {region or 'none'}"

    return rests


class Status(msgspec.Struct, frozen=True, gc=False):
    """A route at this instance. `revision`: the one it has, 0 if none. `reason`: why it is not live, or why a newer revision,
    `refused`, was not taken."""

    revision: int = 0
    hash: str = ""
    live: bool = False
    reason: str = ""
    refused: int = 0


class Changed(msgspec.Struct, frozen=True):
    """`routes`: as they are stored now. `here`: what became of them at this instance. `session`: under which the acks of the
    others come; empty if there was nothing to tell."""

    session: str
    routes: dict[RouteKey, RouteConfig]
    here: dict[RouteKey, Status]


async def _ignore(delta: Delta) -> None: ...


def _nobody() -> Iterable[str]:
    return ()


class RoutingTableManager:
    """`others`: the instances that are alive now, without this one. `on_tenant`: hears the deltas of tenants."""

    def __init__(
        self, storage: Storage, syncer: DeltaSyncer, runner: Runner, making: Making, clock: Clock, random: Callable[[], float],
        pace: Pace = USUAL_PACE, others: Callable[[], Iterable[str]] = _nobody, on_tenant: OnDelta = _ignore,
    ) -> None:  # fmt: skip
        self._storage, self._syncer, self._making, self._clock = storage, syncer, making, clock
        self._others, self._on_tenant = others, on_tenant
        self._live = LiveRoutes(runner, making.compile, making.rests, making.start_seconds, making.compiling)
        self._looks = Looks(storage, self._live)
        self.repairs = Repairs(storage, self._live, self._looks, clock, random, pace)
        self.awaited, self.acked = Awaited(), Acked()
        self._refusals = Refusals(self._live.table)
        self._loading: list[Answer] = []
        self._waiting: dict[str, asyncio.Event] = {}
        self.ready = False
        self._stopping = False
        self._sessions = count(1)
        self._tasks = Tasks()

    @property
    def instance(self) -> str:
        return self._syncer.instance

    @property
    def table(self) -> Table:
        return self._live.table

    async def start(self) -> None:
        """Ready when it returns. If it raises, nothing is left running."""
        await self._syncer.start(self._on_delta, self._on_ack, self._on_gap)
        self._tasks.spawn(self._looks.run(), name="routes: looks")
        try:
            await self.repairs.load()
        except BaseException:
            await self.stop()
            raise
        self.ready = True
        refused = self._refusals.untold()
        for answer in self._loading:
            answer(refused)
        self._tasks.spawn(self.repairs.run(), name="routes: repairs")

    async def stop(self) -> None:
        self.ready, self._stopping = False, True
        await self._syncer.stop()
        await self._tasks.cancel()
        await self._looks.finish()
        await self._live.close()

    async def add(
        self, tenant: Tenant, body: Body, id: str = "", notes: Body | None = None, expect: int | None = None
    ) -> Changed:
        """Adds a route or, if the id is there, updates it; without an id its hash is its id."""
        hash = await self._making.compiling.do(body, lambda: self._making.hash(tenant, body))
        return await self.change([Put(RouteKey(tenant, id or hash), hash, body, notes or {}, expect)])

    async def remove(self, key: RouteKey, expect: int | None = None) -> Changed:
        return await self.change([Remove(key, expect)])

    async def toggle(self, key: RouteKey) -> Changed:
        """An active route becomes inactive, and the other way round."""
        found = await self._stored(key)
        body = {**found.body, "inactive": not found.body.get("inactive")}
        return await self.add(key.tenant, body, key.id, found.notes, found.revision)

    async def reload(self, keys: Sequence[RouteKey]) -> Changed:
        """Builds their live routes anew at every instance, as after a secret has changed."""
        found = [await self._stored(key) for key in keys]
        mark = self._session()
        return await self.change([Put(at.key, at.hash, at.body, {**at.notes, RELOADED: mark}, at.revision) for at in found])

    async def change(self, changes: Sequence[Change]) -> Changed:
        """All of them as one change of the storage, or none."""
        if not self.ready:
            raise Retryable("routing table", f"instance {self.instance} is not ready", "ask another instance, or later")
        puts = [change for change in changes if isinstance(change, Put)]
        with collector_at_rest(len(changes)), self._live.prepared(await self._compiled(puts)):
            return await self._made(changes)

    async def _made(self, changes: Sequence[Change]) -> Changed:
        try:
            routes = await self._storage.change(changes)
        except Retryable:
            self._publish(changes)
            self.repairs.soon()
            raise
        session = self._publish([change for change in changes if not self._has(routes.get(change.key))])
        keys = [change.key for change in changes]
        for looked in (await self._looks.look(keys)).values():
            self._mend(looked)
        self._ack_own(changes, session)
        return Changed(session, routes, {key: self.status(key) for key in keys})

    async def everywhere(self, session: str, seconds: float) -> Outcome | None:
        """What the others made of a change: waits for all of them, but no longer than so many seconds. None: this instance
        published no such change, or long ago."""
        found = self.awaited.outcome(session)
        if found is None or found.complete:
            return found
        complete = self._waiting.setdefault(session, asyncio.Event())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await complete.wait()
        self._waiting.pop(session, None)
        return self.awaited.outcome(session)

    def tell_tenant(self, tenant: Tenant, removed: bool = False) -> None:
        """The others read this tenant anew."""
        operation = Operation.REMOVE if removed else Operation.ADD
        self._syncer.publish([Delta(operation, tenant, "", self.instance, self._session(), Item.TENANT)])

    async def repair(self) -> Repaired:
        return await self.repairs.repair()

    def status(self, key: RouteKey) -> Status:
        known, refused = self.table.ids.get(key), self.table.refused.get(key)
        if known is None:
            return Status(reason=refused.reason, refused=refused.revision) if refused else Status()
        reason = refused.reason if refused else known.rests
        return Status(known.revision, known.hash, not known.rests, reason, refused.revision if refused else 0)

    def told(self) -> Told | None:
        """How the table is beside the stored one; nothing is said before it is loaded."""
        return told_of(self.table, self.repairs.looked) if self.ready else None

    def statuses(self) -> dict[RouteKey, Status]:
        return {key: self.status(key) for key in sorted(self.table.ids.keys() | self.table.refused.keys())}

    def rests(self, body: Body) -> str:
        """Why such a route does not run here; empty if it does."""
        return self._making.rests(body)

    def route(self, key: RouteKey) -> LiveRoute | None:
        """What runs for this id."""
        known = self.table.ids.get(key)
        return self._live.routes.get(known.hash) if known is not None and not known.rests else None

    def live(self) -> list[LiveRoute]:
        return list(self._live.routes.values())

    async def _compiled(self, puts: Sequence[Put]) -> list[LiveRoute]:
        """What is not live yet; raises `Invalid` for what is wrong with it."""
        now = self._clock.wall()
        new = {put.hash: put for put in reversed(puts) if put.hash not in self.table.live}
        configs = [RouteConfig(put.key, put.hash, put.body, put.notes, 0, now, now) for put in new.values()]
        return [LiveRoute(config.hash, config, await self._compiled_one(config)) for config in configs]

    async def _compiled_one(self, config: RouteConfig) -> Any:
        return await self._making.compiling.do(config.body, lambda: self._making.compile(config))

    async def _stored(self, key: RouteKey) -> RouteConfig:
        found = (await self._storage.read([key])).get(key)
        if found is None:
            raise NoSuchRoute(key)
        return found

    def _has(self, stored: RouteConfig | None) -> bool:
        return stored is not None and self.status(stored.key).revision == stored.revision

    def _mend(self, looked: Looked) -> None:
        if looked.failure is not None:
            self.repairs.soon()

    def _session(self) -> str:
        return f"{self.instance}-{next(self._sessions)}"

    def _publish(self, changes: Sequence[Change]) -> str:
        if not changes:
            return ""
        session, now = self._session(), self._clock.monotonic()
        for late in self.awaited.overdue(now):
            log.warning("a change was not acked", session=late.session, missing=late.missing, next_step="see the others' logs")
        self.awaited.expect(session, self._others(), now, len(changes))
        self._syncer.publish([self._delta(change, session) for change in changes])
        return session

    def _delta(self, change: Change, session: str) -> Delta:
        operation = Operation.ADD if isinstance(change, Put) else Operation.REMOVE
        return Delta(operation, change.key.tenant, change.key.id, self.instance, session)

    async def _on_delta(self, delta: Delta) -> None:
        if delta.item is not Item.ROUTE:
            await self._on_tenant(delta)
        else:
            self._looks.ask(RouteKey(delta.tenant, delta.id), partial(self._answer, delta))

    def _answer(self, delta: Delta, key: RouteKey, looked: Looked) -> None:
        if self._stopping:
            return
        self._mend(looked)
        self._refusals.told(key)
        reason = str(looked.failure) if looked.failure else looked.brought.reason
        self._syncer.ack(Ack.of(delta, self.instance, self.status(key).revision, reason))

    def _ack_own(self, changes: Sequence[Change], session: str) -> None:
        """For whoever looks at all instances' acks: this one has looked as well."""
        for change in changes if session and len(changes) <= MANY else ():
            refused = self.table.refused.get(change.key)
            revision = self.status(change.key).revision
            self._syncer.ack(Ack.of(self._delta(change, session), self.instance, revision, refused.reason if refused else ""))

    def _on_ack(self, ack: Ack) -> None:
        self.acked.hear(ack, self._clock.wall())
        if self.awaited.hear(ack) and (waiting := self._waiting.get(ack.session)):
            waiting.set()

    async def _on_gap(self, answer: Answer) -> None:
        """Before it is ready the whole table is about to be loaded anyway."""
        if not self.ready:
            self._loading.append(answer)
            return
        failed: list[Exception] = []
        repair = self._tasks.spawn(self._after_gap(failed, answer), name="routes: after a gap")
        await asyncio.wait([repair], timeout=GAP_SECONDS)
        if failed:
            raise failed[0]

    async def _after_gap(self, failed: list[Exception], answer: Answer) -> None:
        try:
            await self.repair()
            answer(self._refusals.untold())
        except Exception as error:
            self.repairs.soon()
            failed.append(error)
