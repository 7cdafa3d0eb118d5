"""What a node does while it holds its site's lease: stamps the log, serves it, and makes what arrives durable.

Everything here blocks and runs in threads. Work for the sink is done in the order it was asked for, by one thread; reading the
log has a lane of its own, so that neither waits for the other.

1. A database that is away is waited for. A lost lease (`Fenced`) ends it all, and the keeper of the lease says so to the node.
2. Any other failure is raised: the work will fail again, and the node begins anew, or leaves the lease to another.
3. After `stop` nothing is written: what runs comes to its end, what waits is dropped.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Set
from concurrent.futures import CancelledError, ThreadPoolExecutor
from random import random
from typing import TypeVar

import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.config import QueuesConfig
from trunkline.core.errors import Fenced
from trunkline.core.ids import NodeId, Position
from trunkline.db.away import AWAY, in_one_line
from trunkline.db.lease import Grant, commit_fenced, connect_fenced
from trunkline.db.pool import open_pool
from trunkline.node.sessions import Ends, Loop, Sessions
from trunkline.node.sitecore import Effect, HostWork, SiteCore
from trunkline.queues.acks import acknowledge_many, generations
from trunkline.queues.log import PostgresLog
from trunkline.queues.receive import Limits, PostgresSink
from trunkline.queues.restored import begin_anew_if_restored
from trunkline.queues.stamper import Stamper, random_mark
from trunkline.trunk import asks, carry
from trunkline.trunk.log import UNLISTED, Applied
from trunkline.trunk.wants import open_subscription, proven

T = TypeVar("T")
Answer = Callable[[SiteCore, float], list[Effect]]

CLIENTS_SECONDS = 0.5

log = structlog.get_logger()


class Leadership:
    """`name` tells its connections from those of other nodes, for people who look at the database."""

    def __init__(
        self, dsn: str, grant: Grant, identity: NodeId, config: QueuesConfig, on_head: Callable[[Position], None], loop: Loop
    ) -> None:
        self.grant = grant
        self._dsn, self._name, self._on_head = dsn, identity.node, on_head
        self._complaints: dict[str, str] = {}
        self._stop = threading.Event()
        self._lanes = {"sink": ThreadPoolExecutor(1, "sink"), "log": ThreadPoolExecutor(2, "log")}
        self._pool = open_pool(dsn, 6, f"trunk-{self._name}")
        self._stamper: Stamper | None = None
        self._clients: tuple[tuple[str, ...], float] = ((), 0.0)
        self._said: dict[str, Applied] = {}
        """What the sink last said of an origin; only the sink's lane looks at it."""
        try:
            with connect_fenced(dsn, f"trunkline-start-{self._name}") as conn:
                begin_anew_if_restored(conn, grant)
            self._log = PostgresLog(self._pool)
            self._sink = PostgresSink(self._pool, grant, Limits(config.queue_entries, config.queue_bytes))
            ends = Ends(identity.site, grant, self._pool, self._log, self._sink)
            self._sessions = Sessions(ends, config, loop, self._in_sink_lane, lambda: self._stamper)
            self.log_id, self.head = self._log.log_id, self._log.head()
            with self._pool.connection() as conn:
                self.generations = generations(conn)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Returns when what runs has come to its end; the stamper is stopped by whoever runs it."""
        self._stop.set()
        for lane in self._lanes.values():
            lane.shutdown(wait=True, cancel_futures=True)
        self._pool.close()

    async def perform(self, work: HostWork) -> Answer | None:
        """The answer for the core, or None when this leadership is over."""
        if isinstance(work, asks.Deliver):
            return self._do(work)
        lane = self._lanes["log" if isinstance(work, asks.Open | asks.Read) else "sink"]
        try:
            return await asyncio.get_running_loop().run_in_executor(lane, self._until_done, work)
        except RuntimeError:
            if self._stop.is_set():
                return None  # the lane was shut down under it
            raise

    def _until_done(self, work: HostWork) -> Answer | None:
        backoff = Backoff(0.05, 2.0, random)
        while not self._stop.is_set():
            try:
                return self._do(work)
            except AWAY as error:
                self._complain(type(work).__name__, error)
                self._stop.wait(backoff.after_failure())
            except Fenced:
                return None
        return None

    def _complain(self, work: str, error: Exception) -> None:
        """Once per reason, not once per try."""
        reason = in_one_line(error)
        if self._complaints.get(work) != reason:
            self._complaints[work] = reason
            log.warning("the database is away; trying again", work=work, reason=reason)

    def _do(self, work: HostWork) -> Answer:
        match work:
            case asks.Deliver(source, body):
                self._sessions.deliver(source, body)
                return lambda core, now: []
            case asks.Load(origin):
                return self._anew(origin)
            case asks.ResetSink(origin, log_id):
                self._sink.reset(origin, log_id)
                log.warning("the log of an origin is another one than before", origin=origin)
                return self._anew(origin)
            case asks.Lost(origin, log_id, upto, clients):
                self._sink.lost(origin, log_id, upto, clients)
                log.warning("an origin has trimmed what this site lacks", origin=origin, upto=upto.seq, clients=clients)
                return self._anew(origin)
            case asks.Append():
                if work.since is not self._said.get(work.origin):
                    return self._anew(work.origin)
                if self._sink.append(work.origin, work.log_id, work.entries, work.upto, work.clients):
                    return self._anew(work.origin)
                return lambda core, now: core.appended(work, now)
            case asks.Open():
                opened = open_subscription(self._log, work.wants)
                return lambda core, now: core.opened(work, opened, now)
            case asks.Read():
                chunk = self._log.read(work.after, carry.READ_LIMIT, work.destinations, work.size)
                clients = self._clients_with({entry.client for entry in chunk.entries})
                return lambda core, now: core.read(work, chunk, clients, now)
            case asks.Acknowledged():
                positions = proven(self._log, work.clients)
                with self._pool.connection() as conn:
                    acknowledge_many(conn, work.destination, work.generation, positions)
                    commit_fenced(conn, self.grant)
                return lambda core, now: []

    def _clients_with(self, present: Set[str]) -> tuple[str, ...]:
        """All that ever wrote, as of a moment ago; and those whose entries were just read, in any case."""
        known, until = self._clients
        now = time.monotonic()
        if now >= until or not present <= set(known):
            known = tuple(self._log.clients())
            self._clients = known, now + CLIENTS_SECONDS
        return known

    def _anew(self, origin: str) -> Answer:
        """The sessions of this origin changed: they are looked at again, and its stream begins anew."""
        self._sessions.look_again()
        has = self._sink.applied(origin)
        applied = Applied(has.log_id, has.clients, (*has.held, UNLISTED))  # a client is met by name first (H16)
        self._said[origin] = applied
        return lambda core, now: core.loaded(origin, applied, now)

    def _in_sink_lane(self, work: Callable[[], T]) -> T:
        return self._lanes["sink"].submit(work).result()

    def run_sessions(self, stop: threading.Event) -> None:
        try:
            self._sessions.run(stop)
        except Fenced:
            return
        except (CancelledError, RuntimeError):
            if not self._stop.is_set():
                raise  # else the lane was shut down under it

    def stamp(self, stop: threading.Event) -> None:
        backoff = Backoff(0.05, 2.0, random)
        while not stop.is_set():
            try:
                with connect_fenced(self._dsn, f"trunkline-stamper-{self._name}") as conn:
                    self._stamper = Stamper(conn, self.grant, random_mark)
                    self._stamper.run(stop, self._on_head)
            except AWAY as error:
                self._complain("stamper", error)
                stop.wait(backoff.after_failure())
            except Fenced:
                return
            finally:
                self._stamper = None
