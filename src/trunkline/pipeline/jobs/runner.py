"""The Spark runner: live routes become streaming work, by receiver groups.

    runner = SparkRunner(spark, here, ...)
    await manager.start()        # of RoutingTableManager(..., runner, ...): it knows all routes
    await runner.receive(alive, stored)  # from now on it takes the leases of groups, and runs those it wins
    ...
    await runner.rest()
    await manager.stop()

A route whose receiver no pipeline reads is none of its business: nodes run it. A change of a group that runs elsewhere is only
known here; of one that runs here it is written down before `start`, `replace` and `stop` return. When that fails, nobody knows
what was: the job then writes down all that its group shall be, until it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from trunkline.core.clock import Clock
from trunkline.core.config import FEW_EVENTS
from trunkline.db.lease import Grant
from trunkline.net.tasks import Tasks
from trunkline.pipeline.jobs.batches import Tell
from trunkline.pipeline.jobs.deliver import Loop
from trunkline.pipeline.jobs.draining import JobDrainer
from trunkline.pipeline.jobs.feed import group_of
from trunkline.pipeline.jobs.job import Job
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.pipeline.jobs.stored import Member
from trunkline.pipeline.session import Spark
from trunkline.routes.compile import CompiledRoute
from trunkline.routes.groups import DRAIN_SECONDS, Group, GroupKeepers, keep_wanted
from trunkline.routes.instances import Instance
from trunkline.routes.live import LiveRoute
from trunkline.routes.local.draining import Stored
from trunkline.routes.local.placing import able
from trunkline.routes.needs import needs_of, written
from trunkline.routes.registry import Registry, registry
from trunkline.routes.secrets import Sections

Alive = Callable[[], Iterable[Instance]]

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Here:
    """The process that route jobs run in."""

    site: str
    instance: str
    database: str
    secrets: Sections
    scratch: Path
    clock: Clock
    random: Callable[[], float]
    few_events: int = FEW_EVENTS


@dataclass
class _Changes:
    """Of a group that runs here, on their way into Postgres; `written` when they are there. `undone`: somebody did not wait
    for it, and has taken his change back."""

    group: Group
    written: asyncio.Future[None]
    came: dict[str, Member] = field(default_factory=dict)
    went: set[str] = field(default_factory=set)
    undone: bool = False


class SparkRunner:
    """A `Runner` (`trunkline.routes.live`). `tell`: hears what each batch came to."""

    def __init__(self, spark: Spark, here: Here, tell: Tell, plugins: Registry | None = None) -> None:
        self._spark, self._here, self._tell, self._plugins = spark, here, tell, plugins or registry()
        self._groups: dict[Group, dict[str, Member]] = {}
        self._jobs: dict[Group, Job] = {}
        self._changes: dict[Group, _Changes] = {}
        self._senders = Loop("route-senders")
        self._keepers: GroupKeepers | None = None
        self._drainer: JobDrainer | None = None
        self._live: set[str] = set()
        self._changed = asyncio.Event()
        self._tasks = Tasks()

    @property
    def jobs(self) -> dict[Group, Job]:
        """Those that run here."""
        return dict(self._jobs)

    @property
    def groups(self) -> Set[Group]:
        return self._groups.keys()

    # -- routes

    async def start(self, route: LiveRoute) -> None:
        await self._written(self._join(route), undo=lambda: self._leave(route))

    async def replace(self, old: LiveRoute, new: LiveRoute) -> None:
        def undo() -> None:
            if old.hash != new.hash:
                self._leave(new)
            self._join(old)

        left = self._leave(old) if old.hash != new.hash else None
        await self._written(self._join(new), left, undo=undo)

    async def stop(self, route: LiveRoute) -> None:
        await self._written(self._leave(route))

    def _join(self, route: LiveRoute) -> _Changes | None:
        self._live.add(route.hash)
        group = self._group(route)
        if group is None:
            return None
        compiled: CompiledRoute = route.compiled
        needs = written(needs_of(compiled.config.filter_chain))
        member = Member(route.hash, route.config.key, route.config.body, needs)
        if group not in self._groups:
            self._changed.set()
        self._groups.setdefault(group, {})[route.hash] = member
        changes = self._coming(group)
        if changes is not None:
            changes.came[route.hash] = member
        return changes

    def _leave(self, route: LiveRoute) -> _Changes | None:
        self._live.discard(route.hash)
        group = self._group(route)
        if group is None or self._groups.get(group, {}).pop(route.hash, None) is None:
            return None
        changes = self._coming(group)
        if changes is not None and changes.came.pop(route.hash, None) is None:
            changes.went.add(route.hash)
        if not self._groups[group]:
            del self._groups[group]
            if group in self._jobs:
                self._jobs[group].unsettle()
            self._changed.set()
        return changes

    def _group(self, route: LiveRoute) -> Group | None:
        compiled: CompiledRoute = route.compiled
        plugin = self._plugins.receiver(compiled.config.receiver.plugin)
        return group_of(plugin, compiled.config.receiver.config) if plugin is not None else None

    def _coming(self, group: Group) -> _Changes | None:
        """Many changes of a moment are one. None where the group does not run: a job that begins writes down all of it."""
        changes = self._changes.get(group)
        if changes is None and group in self._jobs:
            changes = self._changes[group] = _Changes(group, asyncio.get_running_loop().create_future())
            self._tasks.spawn(self._write(changes), f"changes of {group}")
        return changes

    async def _written(self, *changes: _Changes | None, undo: Callable[[], object] = lambda: None) -> None:
        waited = [one for one in changes if one is not None]
        try:
            for one in waited:
                await asyncio.shield(one.written)
        except BaseException:
            undo()
            for one in waited:
                one.undone = True
                self._unsure(one.group)
            raise

    async def _write(self, changes: _Changes) -> None:
        await asyncio.sleep(0)
        del self._changes[changes.group]
        job = self._jobs.get(changes.group)
        try:
            if job is not None and (changes.came or changes.went):
                await asyncio.to_thread(job.change, list(changes.came.values()), changes.went)
        except Exception as error:
            changes.written.set_exception(error)
            changes.written.exception()  # those who waited for it may have gone
            self._unsure(changes.group)
        else:
            changes.written.set_result(None)
            if changes.undone:
                self._unsure(changes.group)

    def _unsure(self, group: Group) -> None:
        job = self._jobs.get(group)
        if job is not None:
            job.write_all()

    # -- groups

    async def receive(self, alive: Alive, stored: Stored) -> None:
        """`stored`: what the storage says of a route."""
        here = self._here
        self._drainer = JobDrainer(
            here.site, here.instance, here.database, here.clock, here.random, self._found, self._live.__contains__, stored,
            self._tell,
        )  # fmt: skip
        await self._drainer.start()
        self._keepers = GroupKeepers(
            here.database, here.instance, lambda group: able(group, alive()), _Work(self, asyncio.get_running_loop()),
            here.clock, here.random,
        )  # fmt: skip
        self._tasks.spawn(self._keepers.run(), "receiver groups")
        wanted = lambda: self._wanted(alive)  # noqa: E731
        self._tasks.spawn(keep_wanted(self._keepers, wanted, self._changed), "receiver groups to keep")

    async def rest(self) -> None:
        """No group runs here when it returns."""
        await self._tasks.cancel()
        self._keepers = None
        if self._drainer is not None:
            await self._drainer.rest()
            self._drainer = None
        await asyncio.gather(*[asyncio.to_thread(job.stop) for job in self._jobs.values()])
        self._jobs.clear()

    async def close(self) -> None:
        await asyncio.to_thread(self._senders.close)

    def begin(self, group: Group, grant: Grant) -> Job:
        """On the loop, so that no change comes between what is written down and what is changed from then on."""
        here = self._here
        settings = JobSettings(
            here.database, here.site, here.instance, group, grant, self._spark.cores, here.secrets, few_events=here.few_events
        )
        folder = here.scratch / "checkpoints" / f"routes-{grant.epoch}-{abs(hash(group))}"
        job = Job(self._spark, settings, folder, self._senders, here.clock, self._tell, lambda why: self._failed(group, why))
        self._jobs[group] = job
        job.start(lambda: self._groups.get(group, {}).copy())
        return job

    def end(self, group: Group) -> Job | None:
        return self._jobs.pop(group, None)

    def _found(self, hash: str) -> tuple[Job, Member] | None:
        for group, job in self._jobs.items():
            member = self._groups.get(group, {}).get(hash)
            if member is not None:
                return job, member
        return None

    def _failed(self, group: Group, reason: str) -> None:
        """Another may try, if there is one; otherwise it is tried on here."""
        keepers = self._keepers
        if keepers is not None and len(keepers.able(group)) > 1:
            keepers.failed(group, reason)

    def _wanted(self, alive: Alive) -> Set[Group]:
        unsettled = {group for group, job in self._jobs.items() if not job.settled}
        return {group for group in self._groups if self._here.instance in able(group, alive())} | unsettled


class _Work:
    """The keepers' threads call here."""

    def __init__(self, runner: SparkRunner, loop: asyncio.AbstractEventLoop) -> None:
        self._runner, self._loop = runner, loop

    def begin(self, group: Group, grant: Grant) -> None:
        async def begin() -> None:
            self._runner.begin(group, grant)

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result(DRAIN_SECONDS)

    def drain(self, group: Group) -> None:
        async def end() -> Job | None:
            return self._runner.end(group)

        job = asyncio.run_coroutine_threadsafe(end(), self._loop).result(DRAIN_SECONDS)
        if job is not None:
            job.stop()
