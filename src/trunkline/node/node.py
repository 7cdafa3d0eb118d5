"""The node: the protocols of `SiteCore` over real links and the site's Postgres, in one event loop.

The loop owns the core; threads only ever hand it answers. A node serves its API and the store whether or not it leads; only
the leader's links carry records.

It starts in this order, each step only after the one before, and says so in its log and in the check `start`:

    database   it answers (waited for)          store   this node is in it, and dials others
    schema     it is up to date                 lease   it leads or follows from now on
    pool       its views have connections       routes  the routing table runs, and takes events
    links      they listen

A step that can come right by itself is waited for, with the reason shown; any other failure ends the node. It stops the
other way round: no more events; routes stop and, beside them, the work of the leader comes to rest and the lease is let go;
the links say goodbye.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from random import random
from typing import Any

import psycopg
import structlog

from trunkline.bridge.operating import BridgeOperating, types_of
from trunkline.core.backoff import Backoff
from trunkline.core.clock import SystemClock
from trunkline.core.config import ProcessConfig
from trunkline.core.errors import Invalid, Retryable, Terminal
from trunkline.core.health import Check
from trunkline.core.ids import NodeId
from trunkline.db.away import AWAY, in_one_line
from trunkline.db.lease import LEADER_TERMS, Terms
from trunkline.db.migrate import migrate
from trunkline.node import checks, paths, routingshown, views
from trunkline.node.connections import Connections
from trunkline.node.outflow import Outflow
from trunkline.node.peers import Peers
from trunkline.node.probe import DatabaseProbe
from trunkline.node.roles import Roles
from trunkline.node.routing import Routing
from trunkline.node.settings import store_settings, topology_settings
from trunkline.node.sitecore import Effect, Frame, HostWork, SiteCore
from trunkline.node.stopping import Stopping
from trunkline.node.storeview import NodeStoreView
from trunkline.node.supervise import Supervisor, in_thread
from trunkline.queues.operating import Operating
from trunkline.routes.asked import RoutesAsked
from trunkline.trunk import asks
from trunkline.trunk.handover import Handover
from trunkline.trunk.log import messages_in

TICK_SECONDS = 0.05
EVENT_SECONDS = 3_600.0
"""Longer than any receiver waits for its events, and than the API for its requests."""
NUMBERS_SECONDS = 60.0
"""Longer than all questions to the database that are part of it."""

Wait = Callable[[str], AbstractContextManager[None]]

log = structlog.get_logger(__name__)


class Node:
    def __init__(self, config: ProcessConfig, terms: Terms = LEADER_TERMS) -> None:
        if config.tls is None:
            raise Invalid(f"node {config.site}/{config.node}", "no tls section in its configuration", "give it certificates")
        self.config = config
        self.identity = NodeId(config.site, config.node)
        self._dsn = config.database.reveal()
        self._clock = SystemClock()
        self._core = SiteCore(
            self.identity, (), random, store_settings(config), config.store.areas, topology_settings(config),
            Handover(config.trunk.handover),
        )  # fmt: skip
        self._connections = Connections(self._dsn)
        self._supervisor = Supervisor(self._clock, random)
        self._routing = Routing(config, self._supervisor, self._clock, random)
        self._roles = Roles(
            self.identity, self._dsn, config.queues, terms, self._clock, self._core, self._supervisor, self._do,
            lambda reason: self._peers.renew(reason),
        )  # fmt: skip
        self._peers = Peers(config, config.tls, self.identity, self._core, self._roles, self._clock, self._do)
        self._probe = DatabaseProbe(self._dsn, self._clock)
        self._outflow = Outflow(self._core, self._supervisor, self._clock, self._peers.endpoint.links, self._do)
        self._on_loop = views.OnLoop()
        self.store = NodeStoreView(self._core, self._peers, self._on_loop, self._now, self._do)
        self.queues = Operating(self._connections.connection, config.queues)
        self.routes = RoutesAsked()
        self.bridge = BridgeOperating(self._connections.connection, types_of(config.bridge))
        self._delivered: Counter[str] = Counter()
        self._newcomers: asyncio.Queue[set[str]] = asyncio.Queue()
        self._remembered: set[str] = set()
        self._step, self._step_since, self._trouble = "not begun", self._now(), ""
        self._joined = self._started = False

    @property
    def address(self) -> str:
        """Where other nodes reach this one; empty before its links listen."""
        return self._peers.address

    def api_listens(self, address: str) -> None:
        """Others find it in the store from now on."""
        self._core.api = address
        if self._joined:
            self._do(self._core.begin(self._now()))

    # -- life

    async def run(self, stop: asyncio.Event, on_links: Callable[[], None], stopping: Stopping | None = None) -> None:
        """Until `stop`; `on_links` is called once the links listen. `stopping` hears what this waits for at the end."""
        self._on_loop.begin()
        wait: Wait = stopping.waits_for if stopping is not None else lambda what: nullcontext()
        async with self._supervisor:
            try:
                if await self._start(stop, on_links):
                    await stop.wait()
            finally:
                self._connections.refuse()
                self.routes.end()
                await asyncio.gather(self._stop_routes(wait), self._stop_leading(wait))
                with wait("links"):
                    await self._peers.endpoint.stop()
        with wait("database connections"):
            await asyncio.to_thread(self._connections.close)
        log.info("node stopped", node=str(self.identity))

    async def _stop_routes(self, wait: Wait) -> None:
        with wait("routes"):
            await self._routing.stop()

    async def _stop_leading(self, wait: Wait) -> None:
        with wait("the leader's work and its lease"):
            await self._roles.stop()

    async def _start(self, stop: asyncio.Event, on_links: Callable[[], None]) -> bool:
        """False if told to stop before it was done."""
        steps: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
            ("database", self._ask_database),
            ("schema", self._migrate),
            ("pool", self._open_pool),
            ("links", self._listen),
            ("store", self._join),
            ("lease", self._compete),
            ("routes", self._route),
        )
        began = self._now()
        for name, work in steps:
            self._step, self._step_since = name, self._now()
            if not await self._done(name, work, stop):
                return False
            log.info("started", step=name, seconds=round(self._now() - self._step_since, 3))
            if name == "links":
                on_links()
        self._started = True
        log.info("node runs", node=str(self.identity), link=self.address, seconds=round(self._now() - began, 3))
        return True

    async def _done(self, name: str, work: Callable[[], Awaitable[None]], stop: asyncio.Event) -> bool:
        backoff = Backoff(0.2, 5.0, random)
        while not stop.is_set():
            try:
                await work()
                self._trouble = ""
                return True
            except (*AWAY, Retryable) as error:
                self._complain(name, error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(backoff.after_failure()):
                        await stop.wait()
            except psycopg.Error as error:
                raise Terminal(f"database, step {name}", in_one_line(error), "mend it and start the node again") from error
        return False

    def _complain(self, step: str, error: Exception) -> None:
        """Once per reason, not once per try."""
        away, trouble = "the database", in_one_line(error)
        if isinstance(error, Retryable):
            away, trouble = error.what, f"{error.what}: {error.why}"
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning(f"{away} does not answer; waiting for it", step=step, reason=trouble)

    # -- the steps

    async def _ask_database(self) -> None:
        def ask() -> None:
            psycopg.connect(self._dsn, connect_timeout=3).close()

        await asyncio.to_thread(ask)

    async def _migrate(self) -> None:
        applied = await asyncio.to_thread(migrate, self._dsn, "queues", "routes")
        if applied:
            log.info("schema brought up to date", files=applied)

    async def _open_pool(self) -> None:
        self._connections.open()
        self._supervisor.keep("probe", partial(in_thread, "probe", self._probe.run))

    async def _listen(self) -> None:
        await self._peers.start()

    async def _join(self) -> None:
        self._joined = True
        self._do(self._core.begin(self._now()))
        self._peers.aim()
        self._supervisor.keep("registry", self._remember_newcomers)
        self._supervisor.keep("tick", self._tick_for_ever)

    async def _compete(self) -> None:
        self._roles.start()

    async def _route(self) -> None:
        await self._routing.start()
        self.routes.begin(self._routing.operating)

    # -- tasks

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._roles.outdone()
            self._do(self._core.tick(self._now()))
            self._meet_newcomers()
            self._peers.shed()

    def _meet_newcomers(self) -> None:
        if not self._core.nodes_changed:
            return
        self._core.nodes_changed = False
        self._peers.aim()
        link = self.config.link
        sites = {node.site for node in self._core.nodes()} | {self.identity.site, *link.links, *link.follows}
        if new := sites - self._remembered:
            self._remembered |= new
            self._newcomers.put_nowait(new)

    async def _remember_newcomers(self) -> None:
        """Every site that was ever seen may be named as a destination: it is written down before it is forgotten here."""
        backoff = Backoff(0.2, 5.0, random)
        waiting: set[str] = set()
        while True:
            waiting |= await self._newcomers.get() if not waiting else set()
            try:
                await asyncio.to_thread(self._connections.remember, sorted(waiting))
                waiting = set()
                backoff.success()
            except AWAY as error:
                log.warning("site registry not written; trying again", reason=in_one_line(error))
                await asyncio.sleep(backoff.after_failure())
            except Exception:
                self._newcomers.put_nowait(waiting)
                raise

    # -- effects

    def _now(self) -> float:
        return self._clock.monotonic()

    def _do(self, effects: Iterable[Effect]) -> None:
        links = self._peers.endpoint.links()
        for effect in effects:
            if not isinstance(effect, Frame):
                self._supervisor.once("work", partial(self._perform, effect), self._roles.stumbled)
            elif (link := links.get(effect.peer)) is not None:
                self._outflow.send(link, effect)

    async def _perform(self, work: HostWork) -> None:
        if await self._roles.perform(work) and isinstance(work, asks.Append):
            self._delivered[work.origin] += messages_in(work.entries)

    # -- what the API asks (from other threads)

    def inject(self, payload: Any, metadata: dict[str, str]) -> list[str]:
        return routingshown.took(self._on_loop.wait(lambda: self._routing.post(payload, metadata), EVENT_SECONDS))

    def routing(self) -> dict[str, Any]:
        return self._on_loop.wait(self._routing.all_numbers, NUMBERS_SECONDS)

    def status(self) -> dict[str, Any]:
        return self._on_loop(lambda: views.status(self._core, self._peers, self._delivered, self._supervisor.failures()))

    def topology(self) -> dict[str, Any]:
        return self._on_loop(lambda: paths.topology(self._core, self._now()))

    def topology_table(self) -> dict[str, Any]:
        return self._on_loop(lambda: paths.table(self._core, self._now()))

    def topology_why(self, site: str) -> dict[str, Any] | None:
        return self._on_loop(lambda: paths.why(self._core, site, self._now()))

    def trunk(self) -> dict[str, Any]:
        return self._on_loop(lambda: paths.trunk(self._core, self._peers))

    def checks(self) -> Sequence[Check]:
        return self._on_loop(self._checks)

    def _checks(self) -> list[Check]:
        now, answer, roles, keeper = self._now(), self._probe.answer, self._roles, self._roles.keeper
        led_since = roles.led_since
        if not self._started:
            return [checks.start_check(self._step, self._step_since, self._trouble, now), *self._supervisor.checks()]
        lease = checks.LeaseState(
            keeper.grant, led_since, keeper.seen, now - keeper.seen_at, keeper.trouble, keeper.rests, roles.why_resting
        )
        return [
            checks.database_check(answer, self._probe.trouble, now),
            checks.lease_check(lease),
            checks.trunk_check(answer, led_since, now),
            *self._peers.checks(),
            checks.store_check(*views.store_state(self._core)),
            self._routing.check(),
            *self._supervisor.checks(),
        ]
