"""What a node does while it holds its site's lease: stamps the log, serves it, and makes what arrives durable.

Everything here blocks and runs in threads. Work for the sink is done in the order it was asked for, by one thread; reading the
log has a lane of its own, so that neither waits for the other. A database that is away is waited for; a lost lease ends it
all (`Fenced`), and the keeper of the lease says so to the node.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import random

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from trunkline.core.backoff import Backoff
from trunkline.core.errors import Fenced
from trunkline.core.ids import Position
from trunkline.db.lease import Grant, connect_fenced
from trunkline.db.pool import open_pool
from trunkline.node.sitecore import Effect, HostWork, SiteCore
from trunkline.queues.acks import acknowledge
from trunkline.queues.log import PostgresLog
from trunkline.queues.receive import PostgresSink
from trunkline.queues.stamper import Stamper, random_mark
from trunkline.trunk import asks, carry
from trunkline.trunk.wants import open_subscription, proven

Answer = Callable[[SiteCore, float], list[Effect]]

log = structlog.get_logger()


class Leadership:
    def __init__(self, dsn: str, grant: Grant, on_head: Callable[[Position], None]) -> None:
        self.grant = grant
        self._dsn, self._on_head = dsn, on_head
        self._pool = open_pool(dsn, 4, "trunk")
        self._log = PostgresLog(self._pool)
        self._sink = PostgresSink(self._pool, grant)
        self.log_id, self.head = self._log.log_id, self._log.head()
        self._stop = threading.Event()
        self._lanes = {"sink": ThreadPoolExecutor(1, "sink"), "log": ThreadPoolExecutor(2, "log")}
        self._stamper = threading.Thread(target=self._stamp, name="stamper", daemon=True)

    def start(self) -> None:
        self._stamper.start()

    def stop(self) -> None:
        self._stop.set()
        if self._stamper.is_alive():
            self._stamper.join(10)
        for lane in self._lanes.values():
            lane.shutdown(wait=True, cancel_futures=True)
        self._pool.close()

    async def perform(self, work: HostWork) -> Answer | None:
        """The answer for the core, or None when this leadership is over."""
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
            except (psycopg.Error, PoolTimeout) as error:
                log.warning("the database refused; trying again", work=type(work).__name__, reason=str(error).strip())
                self._stop.wait(backoff.after_failure())
            except Fenced:
                return None
        return None

    def _do(self, work: HostWork) -> Answer:
        match work:
            case asks.Load(origin):
                applied = self._sink.applied(origin)
                return lambda core, now: core.loaded(origin, applied)
            case asks.ResetSink(origin, log_id):
                self._sink.reset(origin, log_id)
                forgotten = self._sink.applied(origin)
                return lambda core, now: core.loaded(origin, forgotten)
            case asks.Append():
                self._sink.append(work.origin, work.log_id, work.entries, work.upto, work.clients)
                return lambda core, now: core.appended(work, now)
            case asks.Open():
                opened = open_subscription(self._log, work.wants)
                return lambda core, now: core.opened(work, opened, now)
            case asks.Read():
                chunk = self._log.read(work.after, carry.READ_LIMIT, work.destinations)
                clients = tuple(self._log.clients())
                return lambda core, now: core.read(work, chunk, clients, now)
            case asks.Acknowledged():
                positions = proven(self._log, work.clients)
                with self._pool.connection() as conn:
                    for client, position in positions.items():
                        acknowledge(conn, work.destination, client, work.generation, position)
                return lambda core, now: []

    def _stamp(self) -> None:
        backoff = Backoff(0.05, 2.0, random)
        while not self._stop.is_set():
            try:
                with connect_fenced(self._dsn) as conn:
                    Stamper(conn, self.grant, random_mark).run(self._stop, self._on_head)
            except psycopg.Error as error:
                log.warning("stamper lost its database; trying again", reason=str(error).strip())
                self._stop.wait(backoff.after_failure())
            except Fenced:
                return
