"""A group's routes at one revision, compiled: what a worker keeps between batches, and moves on by what changed.

The driver has one too, for what it does of a batch itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trunkline.core.collector import collector_at_rest
from trunkline.db.lease import Grant
from trunkline.pipeline.jobs.programs import Program, Programs
from trunkline.pipeline.jobs.receivers import Receiver, ReceiverReader
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.pipeline.jobs.stored import Connection, Member, changes, goes_on
from trunkline.routes.chain import Chain
from trunkline.routes.compile import CompiledRoute
from trunkline.routes.index import MatchIndex
from trunkline.routes.local.keeping import LaneName
from trunkline.routes.local.opening import key_of, name_of
from trunkline.routes.making import making_at
from trunkline.routes.needs import Needs, read
from trunkline.routes.plugin import Around, SenderPlugin
from trunkline.routes.registry import Registry, registry
from trunkline.routes.route import DeliveryMode, PluginUse
from trunkline.routes.shared import End, PluginKey
from trunkline.routes.storage.base import RouteConfig
from trunkline.routes.workshop import Workshop


class LoadedRoute:
    """Compiled when it is first asked for: of a hundred thousand routes most see no event for a long time.

    `cut`: the place of its first filter that remembers: from there on the driver goes on. `spread`: tasks send its messages
    themselves. `sure`: what cannot be sent is kept for another try. `label`: what ids of its messages are made with."""

    __slots__ = ("__dict__", "__weakref__", "hash", "label", "program")  # what every event looks at lies together

    def __init__(
        self, member: Member, receiver: Receiver, compile: Callable[[Member], CompiledRoute], plugins: Registry,
        programs: Programs,
    ) -> None:  # fmt: skip
        self.member, self.receiver = member, receiver
        self.hash, self.label = member.hash, str(member.key)
        self.program: Program | None = None
        self._compile, self._plugins, self._programs = compile, plugins, programs

    @cached_property
    def needs(self) -> Needs:
        return read(self.member.needs)

    @cached_property
    def compiled(self) -> CompiledRoute:
        return self._compile(self.member)

    @cached_property
    def chain(self) -> Chain:
        return self.compiled.chain

    def programmed(self) -> Program:
        """Once; from then on it is `program`."""
        self.program = self._programs.of(self.compiled, self.needs)
        return self.program

    @cached_property
    def cut(self) -> int | None:
        return self.chain.stateful

    @cached_property
    def use(self) -> PluginUse:
        return self.compiled.config.sender

    @cached_property
    def sender(self) -> PluginKey:
        return key_of(End.SENDER, self.member.key.tenant, self.use)

    @cached_property
    def sender_name(self) -> str:
        return name_of(self.sender)

    @cached_property
    def plugin(self) -> SenderPlugin[Any]:
        plugin = self._plugins.sender(self.use.plugin)
        assert plugin is not None, "it is compiled"
        return plugin

    @cached_property
    def spread(self) -> bool:
        return self.plugin.spread

    @cached_property
    def lane(self) -> LaneName:
        return LaneName(self.hash, self.member.key, self.plugin.name)

    @cached_property
    def once(self) -> bool:
        return self.compiled.config.delivery_mode is DeliveryMode.EFFECTIVELY_ONCE

    @cached_property
    def written_ahead(self) -> bool:
        """What is sent once, and joined of several, has to be joined in the same way again."""
        return self.once and self.chain.joins

    @cached_property
    def sure(self) -> bool:
        return self.compiled.config.delivery_mode is not DeliveryMode.FIRE_AND_FORGET


@dataclass
class Said:
    """What filters told people since it was last taken: numbers of their own metrics, and lines of the log."""

    counts: dict[str, int] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    most: int = 100

    def count(self, name: str, number: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + number

    def log(self, line: Mapping[str, Any]) -> None:
        if len(self.lines) < self.most:
            self.lines.append(dict(line))

    def take(self) -> tuple[dict[str, int], list[dict[str, Any]]]:
        counts, lines, self.counts, self.lines = self.counts, self.lines, {}, []
        return counts, lines


class Loaded:
    """`revision`: 0 before anything is loaded. `receivers`: by their names."""

    def __init__(self, settings: JobSettings, plugins: Registry | None = None, now: Callable[[], float] = time.time) -> None:
        self.said = Said()
        self.revision = 0
        self.routes: dict[str, LoadedRoute] = {}
        self.receivers: dict[str, Receiver] = {}
        self._indexes: dict[str, MatchIndex[LoadedRoute]] = {}
        self._group, self._plugins = settings.group, plugins or registry()
        self.programs = Programs(self._plugins)
        self._reader = ReceiverReader(settings, self._plugins)
        around = Around({"site": settings.site}, now, self.said.count, self.said.log)
        self._compile = making_at(Workshop(self._plugins, around, lambda: settings.secrets), "").compile

    def move(self, conn: Connection, revision: int) -> None:
        """To the routes of that revision, wherever it stands; nothing is loaded twice."""
        if revision == self.revision:
            return
        if not goes_on(conn, self._group, self.revision, revision):
            self.revision = 0
            self.routes.clear()
            self.receivers.clear()
            self._indexes.clear()
        came, went = changes(conn, self._group, self.revision, revision)
        with collector_at_rest(len(came)):
            for hash in went:
                self._leave(hash)
            for one in came:
                self.join(one)
        self.revision = revision

    def index(self, receiver: str) -> MatchIndex[LoadedRoute]:
        return self._indexes[receiver]

    def made(self, member: Member) -> LoadedRoute:
        return LoadedRoute(member, self._reader.of(member), self._compiled, self._plugins, self.programs)

    def _compiled(self, member: Member) -> CompiledRoute:
        compiled: CompiledRoute = self._compile(RouteConfig(member.key, member.hash, member.body, {}, 0, 0.0, 0.0))
        return compiled

    def join(self, member: Member) -> None:
        route = self.made(member)
        self._leave(route.hash)
        self.routes[route.hash] = route
        name = route.receiver.name
        self.receivers[name] = route.receiver
        self._indexes.setdefault(name, MatchIndex()).add(route, route.needs)

    def _leave(self, hash: str) -> None:
        route = self.routes.pop(hash, None)
        if route is None:
            return
        name = route.receiver.name
        self._indexes[name].discard(route)
        if not len(self._indexes[name]):
            del self.receivers[name], self._indexes[name]


_MOST_KEPT = 8  # groups whose tasks a worker may meet in turn
_kept: dict[tuple[str, str, str], tuple[Grant, Loaded]] = {}


@contextmanager
def kept_in_worker(settings: JobSettings) -> Iterator[Loaded]:
    """The one of this process; after a failure it is loaded anew. So it is under another grant: the database may have been
    restored in between, and the same revision be of other routes."""
    name = (settings.dsn, settings.site, settings.group)
    kept = _kept.pop(name, None)
    loaded = kept[1] if kept is not None and kept[0] == settings.grant else Loaded(settings)
    yield loaded
    _kept[name] = settings.grant, loaded
    if len(_kept) > _MOST_KEPT:
        del _kept[next(iter(_kept))]
