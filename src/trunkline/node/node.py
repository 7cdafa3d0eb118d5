"""The node: the protocols of `SiteCore` over real links and the site's Postgres, in one event loop.

The loop owns the core; threads only ever hand it answers. Views for people are computed on the loop, too. A node serves
its API and the store whether or not it leads; only the leader's links carry records, so links are made anew when that changes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import random
from typing import Any, TypeVar

import psycopg
import structlog
from psycopg_pool import ConnectionPool, PoolTimeout

from trunkline.core.backoff import Backoff
from trunkline.core.clock import SystemClock
from trunkline.core.config import ProcessConfig
from trunkline.core.errors import Invalid, Retryable
from trunkline.core.ids import NodeId, Position
from trunkline.db.lease import LEADER_TERMS, Grant, LeaseKeeper
from trunkline.db.migrate import migrate
from trunkline.db.pool import open_pool
from trunkline.net.channels import Channel
from trunkline.net.endpoint import Endpoint, Target
from trunkline.net.hello import OLDEST_WIRE, WIRE_VERSION, Hello
from trunkline.net.link import Link
from trunkline.node.leadership import Leadership
from trunkline.node.sitecore import Effect, Frame, HostWork, SiteCore
from trunkline.queues.client import QueueClient
from trunkline.queues.registry import remember_site
from trunkline.routes.event import Event
from trunkline.routes.index import RouteTable
from trunkline.routes.model import load_routes
from trunkline.trunk import asks

TICK_SECONDS = 0.05
CARRIES = "trunk"
LEASE = "leader"
_T = TypeVar("_T")

log = structlog.get_logger()


class Node:
    def __init__(self, config: ProcessConfig) -> None:
        if config.tls is None:
            raise Invalid(f"node {config.site}/{config.node}", "no tls section in its configuration", "give it certificates")
        self.config = config
        self.identity = NodeId(config.site, config.node)
        self.address = ""
        self._clock = SystemClock()
        self._table = RouteTable(load_routes(config.routes) if config.routes else (), {"site": config.site})
        self._core = SiteCore(self.identity, ())
        self._endpoint = Endpoint(
            self.identity, config.tls, self._hello, self, config.link.heartbeat_seconds, self._clock, random
        )
        self._keeper = LeaseKeeper(
            config.database.reveal(), LEASE, LEADER_TERMS, self._clock, self._soon_role, lambda: self._soon_role(None)
        )
        self._leadership: Leadership | None = None
        self._roles: asyncio.Queue[Grant | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delivered: Counter[str] = Counter()
        self._remembered: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: ConnectionPool[psycopg.Connection[Any]] | None = None

    # -- life

    async def run(self, stop: asyncio.Event, on_started: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        if not await self._migrated(stop):
            return
        self._pool = open_pool(self.config.database.reveal(), 4, "ingest")
        try:
            self.address = await self._endpoint.start(self.config.link.listen)
            self._core.addresses = (self.address,)
            self._do(self._core.begin(self._now()))
            self._aim()
            self._keeper.start()
            on_started()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._tick_for_ever()), group.create_task(self._follow_roles())]
                await stop.wait()
                for task in tasks:
                    task.cancel()
        finally:
            await asyncio.to_thread(self._keeper.stop)
            await self._step_down()
            await self._endpoint.stop()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._pool.close()

    async def _migrated(self, stop: asyncio.Event) -> bool:
        """False if told to stop before the database was there."""
        backoff = Backoff(0.2, 5.0, random)
        while not stop.is_set():
            try:
                await asyncio.to_thread(migrate, self.config.database.reveal(), "queues")
                return True
            except psycopg.OperationalError as error:
                log.warning("the database does not answer; trying again", reason=str(error).strip())
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), backoff.after_failure())
        return False

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._do(self._core.tick(self._now()))
            self._meet_newcomers()

    # -- roles

    def _soon_role(self, grant: Grant | None) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._roles.put_nowait, grant)

    async def _follow_roles(self) -> None:
        while True:
            grant = await self._roles.get()
            await self._step_down()
            if grant is not None and grant == self._keeper.grant:
                await self._lead(grant)

    async def _lead(self, grant: Grant) -> None:
        def on_head(head: Position) -> None:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(lambda: self._do(self._core.set_head(head, self._now())))

        leadership = None
        while leadership is None and self._roles.empty():
            try:
                leadership = await asyncio.to_thread(Leadership, self.config.database.reveal(), grant, on_head)
            except (psycopg.Error, PoolTimeout) as error:
                log.warning("cannot lead yet: the database does not answer", reason=str(error).strip())
                await asyncio.sleep(0.5)
        if leadership is None:
            return
        self._leadership = leadership
        self._do(self._core.lead(grant.epoch, leadership.log_id, leadership.head, self._now()))
        leadership.start()
        self._renew_links("this node leads its site now")
        log.info("leading", site=self.config.site, incarnation=grant.epoch)

    async def _step_down(self) -> None:
        leadership, self._leadership = self._leadership, None
        if leadership is not None:
            self._core.step_down()
            self._renew_links("this node no longer leads its site")
            await asyncio.to_thread(leadership.stop)
            log.info("not leading", site=self.config.site)

    def _renew_links(self, reason: str) -> None:
        for link in list(self._endpoint.links().values()):
            link.close(reason)

    # -- links

    def _hello(self, peer: NodeId) -> Hello:
        carrier, leadership = self._core.carrier, self._leadership
        known = self._core.link_row(peer.site)
        return Hello(
            wire=WIRE_VERSION,
            oldest=OLDEST_WIRE,
            capabilities=("store", CARRIES) if carrier is not None else ("store",),
            site=self.identity.site,
            node=self.identity.node,
            incarnation=self._core.incarnation,
            known_incarnation=known.incarnation if known is not None else 0,
            log_id=leadership.log_id if leadership is not None else "",
            neighbours=self._core.neighbours(),
            heads={self.identity.site: carrier.head.seq} if carrier is not None else {},
            applied={},
            carries=carrier is not None and peer.site in self.config.link.links,
            addresses=self._core.addresses,
        )

    def link_up(self, link: Link) -> None:
        if (CARRIES in link.mine.capabilities) != (self._core.carrier is not None):
            link.close("this node's role changed during the handshake")
        both_lead = CARRIES in link.mine.capabilities and CARRIES in link.hello.capabilities
        self._do(self._core.link_up(link.peer, link.carries and both_lead, self._now()))

    def link_down(self, link: Link, reason: str) -> None:
        log.info("link down", peer=str(link.peer), reason=reason)
        self._do(self._core.link_down(link.peer, self._now()))

    def message(self, link: Link, channel: Channel, body: bytes) -> None:
        self._do(self._core.message(link.peer, channel, body, self._now()))

    def _aim(self) -> None:
        """Dial the seeds, and of the configured sites every node the store knows an address of."""
        targets = {f"seed:{address}": Target((address,)) for address in self.config.link.seeds if address != self.address}
        for node, record in self._core.nodes().items():
            if node.site in self.config.link.links and record.addresses:
                targets[f"node:{node}"] = Target(record.addresses)
        self._endpoint.set_targets(targets)

    def _meet_newcomers(self) -> None:
        if not self._core.nodes_changed:
            return
        self._core.nodes_changed = False
        self._aim()
        sites = {node.site for node in self._core.nodes()} | {self.identity.site, *self.config.link.links}
        if new := sites - self._remembered:
            self._remembered |= new
            self._spawn(self._remember(new))

    async def _remember(self, sites: Iterable[str]) -> None:
        try:
            await asyncio.to_thread(self._write_sites, sorted(sites))
        except psycopg.Error as error:
            log.warning("site registry not written; trying again", reason=str(error).strip())
            self._remembered -= set(sites)
            self._core.nodes_changed = True

    def _write_sites(self, sites: Iterable[str]) -> None:
        with self._ingest().connection() as conn:
            for site in sites:
                remember_site(conn, site)

    # -- effects

    def _now(self) -> float:
        return self._clock.monotonic()

    def _do(self, effects: Iterable[Effect]) -> None:
        links = self._endpoint.links()
        for effect in effects:
            if not isinstance(effect, Frame):
                self._spawn(self._perform(effect))
            elif (link := links.get(effect.peer)) is not None and not link.send(effect.channel, effect.body):
                link.close("the peer reads too slowly: its send queue is full")

    async def _perform(self, work: HostWork) -> None:
        leadership = self._leadership
        if leadership is None:
            return
        answer = await leadership.perform(work)
        if answer is not None and leadership is self._leadership:
            if isinstance(work, asks.Append):
                self._delivered[work.origin] += len(work.entries)
            self._do(answer(self._core, self._now()))

    def _spawn(self, job: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(job)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        """Work that failed leaves a stream waiting for its answer: the leader begins anew, from what is durable."""
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("work failed; leading anew", reason=repr(error))
        if self._leadership is not None and self._loop is not None:
            self._loop.call_later(1.0, self._roles.put_nowait, self._leadership.grant)

    # -- what the API asks (from other threads)

    def inject(self, payload: Any, metadata: dict[str, str]) -> list[str]:
        """Routes one event; what it sends is durable in the send queue when this returns."""
        outgoing = self._table.route([Event(payload=payload, metadata=metadata)])
        if not outgoing:
            return []
        try:
            with self._ingest().connection() as conn:
                for message in outgoing:
                    QueueClient(message.client).transmit(conn, message.payload, message.destinations, message.headers)
        except psycopg.OperationalError as error:
            raise Retryable("event", f"the site's database does not answer: {error}", "send it again") from error
        return [message.route_id for message in outgoing]

    def status(self) -> dict[str, Any]:
        return self._on_loop(self._status)

    def topology(self) -> dict[str, Any]:
        return self._on_loop(self._topology)

    def trunk(self) -> dict[str, Any]:
        return self._on_loop(self._trunk)

    def store(self, area: str, prefix: str) -> dict[str, Any]:
        return self._on_loop(lambda: self._store(area, prefix))

    def ready(self) -> tuple[bool, str]:
        return self._on_loop(lambda: (self._leadership is not None, "leading" if self._leadership else "not leading"))

    def _on_loop(self, view: Callable[[], _T]) -> _T:
        if self._loop is None:
            raise Retryable("node", "it has not started yet", "ask again")
        asked: concurrent.futures.Future[_T] = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(lambda: asked.set_result(view()))
        return asked.result(5)

    def _ingest(self) -> ConnectionPool[psycopg.Connection[Any]]:
        if self._pool is None:
            raise Retryable("node", "it has not started yet", "ask again")
        return self._pool

    def _status(self) -> dict[str, Any]:
        carrier = self._core.carrier
        relayed = sum(n for (_, what), n in carrier.counters.items() if what == "relayed") if carrier else 0
        return {
            "site": self.identity.site,
            "node": self.identity.node,
            "leads": carrier is not None,
            "incarnation": self._core.incarnation,
            "head": carrier.head.seq if carrier else 0,
            "relayed": relayed,
            "delivered": dict(self._delivered),
            "nodes": len(self._core.nodes()),
            "links": sorted(str(peer) for peer in self._endpoint.links()),
        }

    def _topology(self) -> dict[str, Any]:
        rows = self._core.topology.rows.values()
        return {
            "site": self.identity.site,
            "neighbours": list(self._core.neighbours()),
            "rows": [{"source": r.source, "via": r.via, "depth": r.depth, "path": list(r.path)} for r in rows],
        }

    def _trunk(self) -> dict[str, Any]:
        carrier = self._core.carrier
        links: dict[str, dict[str, int]] = {site: {} for site in self._core.neighbours()}
        for (site, what), count in carrier.counters.items() if carrier else ():
            links.setdefault(site, {})[what] = count
        for peer, link in self._endpoint.links().items():
            if peer.site in links:
                links[peer.site] |= {"sent_bytes": link.sent_bytes, "received_bytes": link.received_bytes}
        return {"site": self.identity.site, "links": links}

    def _store(self, area: str, prefix: str) -> dict[str, Any]:
        if area != self._core.store.area:
            raise Invalid(f"area {area!r}", "this node is not in it", f"ask for area {self._core.store.area}")
        values = self._core.store.values
        return {
            key: {"version": v.version, "originator": v.originator, "bytes": len(v.data or b""), "ttl_ms": v.ttl_ms}
            for key, v in sorted(values.items())
            if key.startswith(prefix)
        }
