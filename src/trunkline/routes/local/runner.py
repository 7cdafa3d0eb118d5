"""The local runner: live routes in one event loop, without Spark.

    runner = LocalRunner(Here(...), registry(), secrets, quotas, Outbox(pool), lambda: [me, *presence.others])
    await runner.open()          # it knows what waits in the outboxes
    await manager.start()        # of RoutingTableManager(..., runner, ...): all routes are attached
    runner.receive(stored)       # only now receivers read, so that no route misses what another one takes
    ...
    await runner.rest()          # and they stop before the routes do, for the same reason
    await manager.stop()
    await runner.close()

R1  A route is attached to its receiver before that starts, and its sender is open by then.
R2  Who takes over from another does so between two events: what the old one has goes on to its sender, in front of all that
    the new one gets. Receivers and senders that both use are not touched, unless the route is built anew (the same hash),
    when they are opened anew behind the same line and lane. Filters that both have at the same place go on remembering.
R3  A route that stops takes no more events. If it is the last one of its receiver, that stops first; then it finishes what it
    has, then its sender is closed.
R4  What blocks blocks in threads: opening plugins and filters that may wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set
from concurrent.futures import ThreadPoolExecutor

from trunkline.core.errors import Retryable
from trunkline.net.tasks import Tasks
from trunkline.routes.ends import Receiving, Sending, Watch
from trunkline.routes.event import Event
from trunkline.routes.groups import Group
from trunkline.routes.leaves import Leaves
from trunkline.routes.live import LiveRoute
from trunkline.routes.local.burying import Undertaker
from trunkline.routes.local.counts import ReceiverStatus, RouteCounts, SenderStatus
from trunkline.routes.local.draining import LOOK_SECONDS, Drainer, Stored
from trunkline.routes.local.here import Here
from trunkline.routes.local.hooks import Hooks
from trunkline.routes.local.hushed import HushedReceiving, HushedSending
from trunkline.routes.local.ingest import Ingest
from trunkline.routes.local.line import Line
from trunkline.routes.local.opened import Opened
from trunkline.routes.local.opening import Opening, key_of, name_of
from trunkline.routes.local.outbox import Outbox
from trunkline.routes.local.placing import Alive, Placing
from trunkline.routes.local.reading import Reading
from trunkline.routes.local.sending import Sender
from trunkline.routes.local.track import Shop, Track
from trunkline.routes.outcome import Done
from trunkline.routes.placement import is_placed
from trunkline.routes.plugin import StatefulFilter
from trunkline.routes.quotas import Quotas
from trunkline.routes.registry import Registry
from trunkline.routes.route import PluginUse, Route
from trunkline.routes.secrets import Sections
from trunkline.routes.shared import End, PluginKey

FINISH_SECONDS = 10.0
CHAINS_AT_ONCE = 8  # chains that may block, each in a thread: js runs in processes of its own, and waits there mostly


class LocalRunner:
    """A `Runner` (`trunkline.routes.live`). `outbox`: none where nothing is kept: what cannot be sent goes back to its source.
    `alive`: none for an instance that is alone at its site. With both, events may be left to a pipeline (`Ingest`)."""

    def __init__(
        self, here: Here, plugins: Registry, secrets: Sections, quotas: Quotas, outbox: Outbox | None = None,
        alive: Alive | None = None,
    ) -> None:  # fmt: skip
        self.hooks = Hooks()
        self._here, self._plugins, self._quotas = here, plugins, quotas
        self._tasks = Tasks()
        self._opening = Opening(here, plugins, secrets, self.hooks)
        self._lines: Opened[Line] = Opened(self._open_line, _close_line, self._tasks)
        self._senders: Opened[Sender] = Opened(self._open_sender, _close_sender, self._tasks)
        threads = ThreadPoolExecutor(CHAINS_AT_ONCE, thread_name_prefix="filters")
        leaves = Leaves(here.clock, here.random)
        self._shop = Shop(here.clock, here.random, threads, outbox, Undertaker(outbox, here.random), leaves)
        self._placing = Placing(here, alive, self._prepare)
        self._ingest = Ingest(here, alive, self._placing, quotas) if outbox is not None and alive is not None else None
        self._outbox = outbox
        self._drainer: Drainer | None = None
        self._waiting: set[str] = set()
        self._tracks: dict[str, Track] = {}

    @property
    def held(self) -> Set[Group]:
        """The receiver groups that run here."""
        return self._placing.held

    async def open(self) -> None:
        """Raises `Retryable` while the database is away."""
        if self._outbox is not None:
            self._waiting = {lane.name.hash for lane in await self._outbox.lanes(self._here.instance)}

    def receive(self, stored: Stored | None = None, look_seconds: float = LOOK_SECONDS) -> None:
        """From now on receivers read, and outboxes are drained. `stored`: what the storage says of a route; without it the
        outboxes of routes that are gone stay as they are."""
        if self._outbox is not None:
            self._drainer = Drainer(self._outbox, self._here, lambda: self._tracks, stored, look_seconds)
            self._drainer.start()
        self._placing.receive()
        if self._ingest is not None:
            self._ingest.receive()

    async def rest(self) -> None:
        """No receiver reads any more; routes still take injected events."""
        if self._ingest is not None:
            await self._ingest.rest()
        await self._placing.rest()
        if self._drainer is not None:
            await self._drainer.rest()
            self._drainer = None

    async def _prepare(self) -> None:
        """Before this instance takes over from another: what that one left in outboxes comes first."""
        if self._drainer is not None:
            await self._drainer.look()

    async def close(self) -> None:
        """All routes have stopped."""
        await self._tasks.join()
        if self._ingest is not None:
            await self._ingest.close()
        await self._shop.undertaker.close()
        await self._opening.close()
        await asyncio.to_thread(self._shop.threads.shutdown)

    async def start(self, route: LiveRoute) -> None:
        track = await self._built(route)
        self._tracks[route.hash] = track
        track.line.attach(track)
        self._placing.joined(track.line)

    async def replace(self, old: LiveRoute, new: LiveRoute) -> None:
        before, after = self._tracks[old.hash], await self._built(new)
        if old.hash == new.hash:
            try:
                await self._renew(before)
            except BaseException:
                self._leave(after)
                raise
        del self._tracks[old.hash]
        self._tracks[new.hash] = after
        after.gate()
        after.lane.follow(before.lane)
        after.line.attach(after)
        if after.line is before.line:
            before.line.detach(before)
        self._placing.joined(after.line)
        if before.line is after.line and before.at_once:
            self._hand_over(before, after)
            after.open()
        self._tasks.spawn(self._wind_down(before, after), f"ends {old.config.key}")

    async def stop(self, route: LiveRoute) -> None:
        await self._end(self._tracks.pop(route.hash))

    async def inject(self, route: LiveRoute, event: Event, seconds: float, watch: Watch | None = None) -> Done:
        """For this route alone, whatever its receiver is."""
        track = self._tracks.get(route.hash)
        if track is None:
            raise Retryable(f"route {route.config.key}", "it does not run here", "try again, or ask another instance")
        return (await (await track.line.enter([event], seconds, watch, track)))[0]

    # -- to look at

    def counts(self, route: LiveRoute) -> RouteCounts | None:
        track = self._tracks.get(route.hash)
        return track.counts if track is not None else None

    def receivers(self) -> list[ReceiverStatus]:
        users = self._lines.counts.users
        return [line.status(users[key]) for key, line in self._lines.all().items()]

    def senders(self) -> list[SenderStatus]:
        users = self._senders.counts.users
        return [SenderStatus(key, users[key], sender.counts) for key, sender in self._senders.all().items()]

    def receiver(self, route: LiveRoute) -> Receiving | None:
        """The open receiver itself: for what only it knows, such as a debug receiver's history."""
        track = self._tracks.get(route.hash)
        receiving = track.line.reading.receiving if track is not None and track.line.reading is not None else None
        return receiving.inner if isinstance(receiving, HushedReceiving) else receiving

    def sender(self, route: LiveRoute) -> Sending | None:
        track = self._tracks.get(route.hash)
        sending = track.lane.sender.sending if track is not None else None
        return sending.inner if isinstance(sending, HushedSending) else sending

    # -- plugins

    async def _built(self, route: LiveRoute) -> Track:
        """Opens what it needs; if that fails nothing is left."""
        config: Route = route.compiled.config
        tenant = route.config.key.tenant
        at = key_of(End.SENDER, tenant, config.sender)
        sender = await self._senders.join(at, config.sender)
        try:
            line = await self._lines.join(key_of(End.RECEIVER, tenant, config.receiver), config.receiver)
        except BaseException:
            self._senders.leave(at)
            raise
        uses = [self._plugins.filter(use.plugin) for use in config.filter_chain]
        blocking = any(plugin.blocking for plugin in uses if plugin is not None)
        plugin = self._plugins.sender(config.sender.plugin)
        assert plugin is not None, "it is open"
        track = Track(route, line, sender, plugin, self._shop, blocking)
        waiting = self._drainer.waiting if self._drainer is not None else self._waiting
        track.lane.only_appends = track.lane.keeps and route.hash in waiting
        return track

    def _leave(self, track: Track) -> None:
        self._lines.leave(track.line.key)
        self._senders.leave(track.lane.sender.key)

    async def _open_sender(self, key: PluginKey, use: PluginUse) -> Sender:
        return Sender(key, await self._opening.sender(key, use), self._here.clock)

    async def _open_line(self, key: PluginKey, use: PluginUse) -> Line:
        line, receiving = Line(key, self._quotas, self._here.clock), await self._opening.receiver(key, use)
        plugin = self._plugins.receiver(use.plugin)
        if receiving is not None and plugin is not None:
            line.reading = Reading(name_of(key), receiving, line.give, self._here.clock, self._here.random)
            line.group = None if plugin.everywhere else Group(plugin.name, plugin.cluster(use.config))
            line.door = self._ingest.door(line, use.config) if self._ingest is not None and is_placed(use.config) else None
        return line

    async def _renew(self, track: Track) -> None:
        """The plugins of a route that is built anew; who shares them gets the new ones, too."""
        line, sender, config = track.line, track.lane.sender, track.config
        sending = await self._opening.sender(sender.key, config.sender)
        try:
            receiving = await self._opening.receiver(line.key, config.receiver)
        except BaseException:
            self._tasks.spawn(sending.close(), f"closes {sender.key.plugin}")
            raise
        self._tasks.spawn(sender.exchange(sending), f"exchanges {sender.key.plugin}")
        if line.reading is not None and receiving is not None:
            self._tasks.spawn(line.reading.exchange(receiving, self._placing.grant(line)), f"exchanges {line.key.plugin}")

    # -- ends

    def _hand_over(self, before: Track, after: Track) -> None:
        """Filters that are the same go on, what others held is flushed to the old lane."""
        if before.line is after.line:
            after.chained.take_over(before.chained, _same(before, after))
        before.hurry()

    async def _wind_down(self, before: Track, after: Track) -> None:
        if after.gated:
            await before.worked()
            self._hand_over(before, after)
            await before.worked()
            after.open()
        await self._end(before)

    async def _end(self, track: Track) -> None:
        line = track.line
        track.hurry()
        if self._lines.counts.users[line.key] == 1:
            self._placing.left(line)
            if line.reading is not None:
                await line.reading.stop()
        line.detach(track)
        await track.finish(FINISH_SECONDS)
        closings = [self._lines.leave(line.key), self._senders.leave(track.lane.sender.key)]
        await asyncio.gather(*[closing for closing in closings if closing is not None])


def _same(before: Track, after: Track) -> set[int]:
    """Places at which both have the same filter, and it remembers."""
    old, new = before.config.filter_chain, after.config.filter_chain
    steps = before.chained.chain.steps
    return {n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a == b and isinstance(steps[n].filter, StatefulFilter)}


async def _close_line(line: Line) -> None:
    await line.close()
    if line.door is not None:
        line.door.close()


async def _close_sender(sender: Sender) -> None:
    await sender.close()
