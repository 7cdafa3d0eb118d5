"""Which receivers run at this instance.

Those that run everywhere start as soon as a route is attached. All others belong to a group (`trunkline.routes.groups`), and
run while this instance holds the lease of theirs. Where pipelines run a plugin, nodes leave it to them.

A receiver that fails is started again here. Only when all receivers of a group have failed LET_GO times in a row, the group is
let go of, for then it may well be this instance's fault (H04).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Set

import structlog

from trunkline.core.errors import Retryable
from trunkline.db.lease import Grant
from trunkline.net.tasks import Tasks
from trunkline.routes.groups import DRAIN_SECONDS, Group, GroupKeepers, keep_wanted
from trunkline.routes.instances import Instance, Kind
from trunkline.routes.local.here import Here
from trunkline.routes.local.line import Line

LET_GO = 3
READERS_STOP_SECONDS = DRAIN_SECONDS - 1.0

Alive = Callable[[], Iterable[Instance]]
"""The site's instances that are alive, with this one."""

log = structlog.get_logger(__name__)


def able(group: Group, alive: Iterable[Instance]) -> Set[str]:
    can = [instance for instance in alive if group.plugin in instance.runs]
    pipelines = {instance.id for instance in can if instance.kind is Kind.PIPELINE}
    return pipelines or {instance.id for instance in can}


async def _nothing() -> None: ...


class Placing:
    """`alive`: none for an instance that is alone at its site and needs no leases. `prepare`: what has to be done before a
    group's receivers begin."""

    def __init__(self, here: Here, alive: Alive | None, prepare: Callable[[], Awaitable[None]] = _nothing) -> None:
        self._here, self._alive, self._prepare = here, alive, prepare
        self._lines: dict[Line, None] = {}
        self._grants: dict[Group, Grant] = {}
        self._receives = False
        self._changed = asyncio.Event()
        self._keepers: GroupKeepers | None = None
        self._tasks = Tasks()

    @property
    def held(self) -> Set[Group]:
        return self._grants.keys()

    def joined(self, line: Line) -> None:
        """A route is attached to it."""
        if line.reading is None:
            return
        if line not in self._lines:
            self._lines[line] = None
            line.reading.on_failure = lambda: self._failed(line)
            self._changed.set()
        self._start(line)

    def left(self, line: Line) -> None:
        self._lines.pop(line, None)
        self._changed.set()

    def grant(self, line: Line) -> Grant | None:
        return self._grants.get(line.group) if line.group is not None else None

    def receive(self) -> None:
        self._receives = True
        if self._alive is not None:
            here, alive, work = self._here, self._alive, _FromThreads(self, asyncio.get_running_loop())
            keepers = GroupKeepers(
                here.database, here.instance, lambda group: able(group, alive()), work, here.clock, here.random
            )  # fmt: skip
            self._keepers = keepers
            self._tasks.spawn(keepers.run(), "receiver groups")
            wanted = lambda: self._wanted(alive)  # noqa: E731
            self._tasks.spawn(keep_wanted(keepers, wanted, self._changed), "receiver groups to keep")
        for line in self._lines:
            self._start(line)

    async def rest(self) -> None:
        """No receiver reads when it returns."""
        self._receives = False
        await self._tasks.cancel()
        self._keepers = None
        self._grants.clear()
        await asyncio.gather(*[line.reading.stop() for line in self._lines if line.reading is not None])

    async def begin(self, group: Group, grant: Grant) -> None:
        self._grants[group] = grant
        try:
            await self._prepare()
        except Retryable as error:
            if self._keepers is not None:
                self._keepers.failed(group, error.why)
            return
        if self._grants.get(group) is grant:
            for line in self._lines:
                if line.group == group:
                    self._start(line)

    async def drain(self, group: Group) -> None:
        self._grants.pop(group, None)
        readings = [line.reading for line in self._lines if line.group == group and line.reading is not None]
        await asyncio.gather(*[reading.stop(READERS_STOP_SECONDS) for reading in readings])

    def _start(self, line: Line) -> None:
        grant = self.grant(line)
        if self._receives and line.reading is not None and (line.group is None or self._alive is None or grant is not None):
            if line.door is not None and not line.reading.running:
                line.door.unsure()
            line.reading.start(grant)

    def _failed(self, line: Line) -> None:
        group = line.group
        if group is None or self._keepers is None or group not in self._grants:
            return
        readings = [one.reading for one in self._lines if one.group == group and one.reading is not None]
        if all(reading.failures >= LET_GO for reading in readings):
            self._keepers.failed(group, readings[0].failing)

    def _wanted(self, alive: Alive) -> Set[Group]:
        groups = {line.group for line in self._lines if line.group is not None}
        return {group for group in groups if self._here.instance in able(group, alive())}


class _FromThreads:
    """The keepers' threads call here, the work is done on the loop."""

    def __init__(self, placing: Placing, loop: asyncio.AbstractEventLoop) -> None:
        self._placing, self._loop = placing, loop

    def begin(self, group: Group, grant: Grant) -> None:
        asyncio.run_coroutine_threadsafe(self._placing.begin(group, grant), self._loop)

    def drain(self, group: Group) -> None:
        asyncio.run_coroutine_threadsafe(self._placing.drain(group), self._loop).result(DRAIN_SECONDS)
