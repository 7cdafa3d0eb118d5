"""Instances of one site in one event loop: a storage and a hub in memory, and runners that write down what they are told."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from trunkline.core.clock import ManualClock
from trunkline.core.errors import Invalid, Retryable
from trunkline.routes.canonical import content_hash
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.live import LiveRoute
from trunkline.routes.manager import Making, RoutingTableManager, rests_outside
from trunkline.routes.repair import Pace
from trunkline.routes.shared import End, PluginKey, SharedPlugins, plugins_of
from trunkline.routes.storage.base import NONE_KNOWN, Body, Change, RouteConfig, Scan
from trunkline.routes.storage.memory import MemoryStorage
from trunkline.routes.sync.base import Delta, OnAck, OnDelta, OnGap
from trunkline.routes.sync.memory import MemoryHub, MemorySyncer

TENANT = Tenant("myorg", "myapp")
PLUGINS = ("debug", "nop")
NEVER = Pace(seconds=100_000.0, look=100_000.0)


def key(id: str) -> RouteKey:
    return RouteKey(TENANT, id)


def route(mark: object = "", receiver: str = "R", sender: str = "S", **more: Any) -> dict[str, Any]:
    """`mark`: what makes its filters, and so its hash, another's."""
    chain = [{"plugin": "match", "config": {"pattern": {"mark": mark}}}] if mark != "" else []
    ends = {"receiver": {"plugin": "debug", "name": receiver}, "sender": {"plugin": "debug", "name": sender}}
    return {**ends, "filterChain": chain, **more}


def hash_of(tenant: Tenant, body: Body) -> str:
    return content_hash([str(tenant), dict(body)])


def h(mark: object = "", **more: Any) -> str:
    return hash_of(TENANT, route(mark, **more))


def compile(config: RouteConfig) -> Body:
    for end in ("receiver", "sender"):
        plugin = config.body[end]["plugin"]
        if plugin not in PLUGINS:
            raise Invalid(f"route {config.key.id}", f"{end}: there is no plugin {plugin}", "take debug or nop")
    return config.body


async def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


class UnsteadyStorage(MemoryStorage):
    """Others run while it is asked. It can be away (`away`), its answer to a change can be lost (`silent`), and a scan that was
    made can be held back (`hold_scan`). `made` hears of each change as it is made."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.away = self.silent = False
        self.made: Callable[[Sequence[Change]], None] = lambda _: None
        self.hold_scan: asyncio.Event | None = None
        self.scanned = asyncio.Event()

    async def read(self, keys: Sequence[RouteKey], known: Mapping[str, Body] = NONE_KNOWN) -> dict[RouteKey, RouteConfig]:
        await self._meet()
        found = await super().read(keys, known)
        await asyncio.sleep(0)
        return found

    async def scan(self) -> Scan:
        await self._meet()
        scan = await super().scan()
        self.scanned.set()
        if self.hold_scan is not None:
            await self.hold_scan.wait()
        return scan

    async def change(self, changes: Sequence[Change]) -> dict[RouteKey, RouteConfig]:
        await self._meet()
        routes = await super().change(changes)
        self.made(changes)
        await asyncio.sleep(0)
        if self.silent:
            raise Retryable("storage", "it did not answer", "ask again")
        return routes

    async def _meet(self) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise Retryable("storage", "it is away", "wait")


class HalfDeafSyncer(MemorySyncer):
    """Loses deltas while it is `deaf`; `loses` says which."""

    deaf = False
    loses: Callable[[], bool] = staticmethod(lambda: False)

    async def start(self, on_delta: OnDelta, on_ack: OnAck, on_gap: OnGap) -> None:
        async def hears(delta: Delta) -> None:
            if not self.deaf and not self.loses():
                await on_delta(delta)

        await super().start(hears, on_ack, on_gap)


class RecordingRunner:
    """A runner whose receivers give what `receive` says. It fails when it is told something that makes no sense."""

    def __init__(self) -> None:
        self.running: dict[str, LiveRoute] = {}
        self.plugins = SharedPlugins()
        self.starts: Counter[PluginKey] = Counter()
        self.stops: Counter[PluginKey] = Counter()
        self.told: list[tuple[str, str]] = []
        self.sent: list[tuple[str, Any]] = []
        self.buffered: list[tuple[str, Any]] = []
        self.built: list[str] = []
        self.broken: set[str] = set()
        self.gates: dict[str, asyncio.Event] = {}

    async def start(self, route: LiveRoute) -> None:
        assert route.hash not in self.running
        await self._build(route)
        assert route.hash not in self.running
        self.told.append(("start", route.hash))
        self.starts.update(self.plugins.join(_plugins(route)))
        self.running[route.hash] = route

    async def replace(self, old: LiveRoute, new: LiveRoute) -> None:
        assert self.running[old.hash] is old
        await self._build(new)
        assert self.running.pop(old.hash) is old
        assert new.hash not in self.running
        self.told.append(("replace", new.hash))
        effects = self.plugins.swap(_plugins(old), _plugins(new))
        self.starts.update(effects.start)
        self._stopped(effects.stop)
        self.running[new.hash] = new

    async def stop(self, route: LiveRoute) -> None:
        assert self.running[route.hash] is route
        await asyncio.sleep(0)
        assert self.running.pop(route.hash) is route
        self.told.append(("stop", route.hash))
        self._stopped(self.plugins.leave(_plugins(route)))

    def _stopped(self, plugins: Sequence[PluginKey]) -> None:
        """A sender that stops flushes what it has."""
        self.stops.update(plugins)
        names = {at.name for at in plugins if at.end is End.SENDER}
        self.sent += [send for send in self.buffered if send[0] in names]
        self.buffered = [send for send in self.buffered if send[0] not in names]

    async def _build(self, route: LiveRoute) -> None:
        self.built.append(route.hash)
        await asyncio.sleep(0)
        if gate := self.gates.get(route.hash):
            await gate.wait()
        if route.hash in self.broken:
            raise ConnectionError("the broker is away")

    def receive(self, receiver: str, payload: Any) -> None:
        """An event of the debug receiver of that name, for every live route that is attached to it."""
        for route in self.running.values():
            if route.compiled["receiver"].get("name") == receiver:
                self.buffered.append((route.compiled["sender"]["name"], payload))

    @property
    def delivered(self) -> list[tuple[str, Any]]:
        """To senders, with their names."""
        return self.sent + self.buffered

    def running_plugins(self, end: End) -> int:
        return sum(at.end is end for at in self.plugins.users)

    @property
    def balanced(self) -> bool:
        """Each plugin that runs started once more than it stopped, and each other as often."""
        return self.starts - self.stops == Counter(dict.fromkeys(self.plugins.users, 1)) and self.starts >= self.stops


def _plugins(route: LiveRoute) -> list[PluginKey]:
    return plugins_of(route.config.key.tenant, route.compiled, content_hash)


class Instance:
    def __init__(self, site: Site, name: str, region: str = "", start_seconds: float = 10.0, pace: Pace = NEVER) -> None:
        self.runner, self.syncer = RecordingRunner(), HalfDeafSyncer(site.hub, name)
        making = Making(hash_of, compile, rests_outside(region), start_seconds)
        self.manager = RoutingTableManager(
            site.storage, self.syncer, self.runner, making, site.clock, random.Random(name).random, pace,
            lambda: [other for other in site.instances if other != name],
        )  # fmt: skip

    def holds(self) -> dict[str, tuple[int, str]]:
        return {key.id: (known.revision, known.hash) for key, known in self.manager.table.ids.items()}

    def at_rest(self) -> bool:
        return self.runner.running.keys() == self.manager.table.live.keys()

    def live(self) -> dict[str, int]:
        """Hashes with the number of ids that use them."""
        assert self.runner.running.keys() == self.manager.table.live.keys() == {at.hash for at in self.manager.live()}
        return dict(self.manager.table.live)


class Site:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.storage, self.hub = UnsteadyStorage(self.clock), MemoryHub()
        self.instances: dict[str, Instance] = {}

    async def join(self, name: str, **more: Any) -> Instance:
        instance = self.instances[name] = Instance(self, name, **more)
        await instance.manager.start()
        return instance

    async def leave(self, name: str) -> Instance:
        instance = self.instances.pop(name)
        await instance.manager.stop()
        return instance

    async def stored(self) -> dict[str, tuple[int, str]]:
        scan = await self.storage.scan()
        return {at.key.id: (at.revision, at.hash) for at in scan.routes}

    async def agrees(self) -> None:
        """Waits until all instances have what is stored, and nothing starts or stops there any more."""
        await until(lambda: all(at.holds() == self._stored_now() and at.at_rest() for at in self.instances.values()))

    def _stored_now(self) -> dict[str, tuple[int, str]]:
        return {key.id: (config.revision, config.hash) for key, config in self.storage._routes.items()}


@asynccontextmanager
async def site_of(*names: str, **more: Any) -> AsyncIterator[Site]:
    """Ends with all instances stopped, each of which has to leave nothing running."""
    site = Site()
    for name in names:
        await site.join(name, **more)
    yield site
    for name in list(site.instances):
        left = await site.leave(name)
        assert left.runner.running == {}
        assert left.runner.balanced


def live_everywhere(site: Site) -> dict[str, int]:
    """What is live, which has to be the same on all instances."""
    lives = [at.live() for at in site.instances.values()]
    assert all(live == lives[0] for live in lives)
    return lives[0]
