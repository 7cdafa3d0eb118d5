"""The sessions of a leader, and the upkeep of its queues, in one thread of their own.

Both halves of every session (`trunkline.queues.sessions_sink`, `sessions_source`) live here: messages, tables and time go in,
and what they ask for is done at once, one thing after the other. Nothing here is truth: all of it is learnt again from the
tables and from the other ends.

1. Work on the sink goes through the sink's own lane, so that it never meets an append half way.
2. A database that is away is waited for in the midst of a step: to the halves it only looks slow.
3. What the event loop must do (say something, begin a stream anew) is handed to it; what it knows is asked for and comes later.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import random
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import structlog
from psycopg_pool import ConnectionPool

from trunkline.core.backoff import Backoff
from trunkline.core.config import QueuesConfig
from trunkline.core.errors import RemoteProtocolError
from trunkline.db.away import AWAY, in_one_line
from trunkline.db.lease import Grant, commit_fenced
from trunkline.queues import requests, sessionasks
from trunkline.queues.acks import acknowledge_base, acknowledged
from trunkline.queues.consumers import detach_idle, move_tails
from trunkline.queues.export import Exported
from trunkline.queues.log import PostgresLog
from trunkline.queues.messages import CODEC, Negotiate, is_bulk
from trunkline.queues.negotiation import Facts
from trunkline.queues.receive import PostgresSink
from trunkline.queues.receivering import ReceiveRing
from trunkline.queues.retention import Keep, Retention, Trimmed
from trunkline.queues.sessionasks import SinkEffect, SourceEffect
from trunkline.queues.sessions_sink import SinkSessions
from trunkline.queues.sessions_source import SourceSessions
from trunkline.queues.snapshots import EXPORTED, State
from trunkline.queues.stamper import Stamper
from trunkline.queues.statuses import write_statuses

TICK_SECONDS = 0.1
# Messages that wait to be looked at: those beyond it are lost, and asked for again.
MOST_WAITING = 1_000
EVERY = {"requests": 0.2, "tails": 0.2, "room": 0.5, "ways": 1.0, "upkeep": 1.0, "status": 1.0, "idle": 60.0}

T = TypeVar("T")
Connection = psycopg.Connection[Any]
log = structlog.get_logger()


@dataclass(frozen=True)
class Ways:
    """What the event loop knows of a site: whether a message gets there, and how far the own log was sent towards it."""

    reached: bool
    sent: int | None


@dataclass(frozen=True)
class Loop:
    """What this asks of the event loop; each returns at once, from any thread."""

    say: Callable[[str, bytes, bool], None]
    """to, body, whether it is bulk"""
    reload: Callable[[str], None]
    """Begin this origin's stream anew from what the sink says."""
    ask_ways: Callable[[Collection[str], Callable[[Mapping[str, Ways]], None]], None]


@dataclass(frozen=True)
class Ends:
    site: str
    grant: Grant
    pool: ConnectionPool[Connection]
    log: PostgresLog
    sink: PostgresSink


class Sessions:
    """`in_lane` runs work on the sink where its other work runs; `stamper` is the one that runs now, if any does."""

    def __init__(
        self, ends: Ends, config: QueuesConfig, loop: Loop, in_lane: Callable[[Callable[[], Any]], Any],
        stamper: Callable[[], Stamper | None],
    ) -> None:  # fmt: skip
        self._ends, self._config, self._loop, self._in_lane, self._stamper = ends, config, loop, in_lane, stamper
        epoch = time.time() - time.monotonic()
        self._sink_half = SinkSessions(ends.site, ends.grant.epoch, epoch)
        self._source_half = SourceSessions(ends.site, ends.grant.epoch, ends.log.log_id, epoch)
        self._retention = Retention(Keep(config.keep_hours, config.keep_bytes, config.unacknowledged_entries), ends.site)
        self._ring = ReceiveRing()
        self._inbox: queue.Queue[tuple[str, bytes] | None] = queue.Queue(MOST_WAITING)
        self._stale = threading.Event()
        self._ways: Mapping[str, Ways] = {}
        self._exported: list[Exported] = []
        self._origins: set[str] = set()
        self._due: dict[str, float] = dict.fromkeys(EVERY, 0.0)
        self._stop = threading.Event()

    # -- from other threads

    def deliver(self, source: str, body: bytes) -> None:
        with suppress(queue.Full):
            self._inbox.put_nowait((source, body))

    def look_again(self) -> None:
        """The sink's table of sessions changed."""
        self._stale.set()
        with suppress(queue.Full):
            self._inbox.put_nowait(None)

    # -- the thread

    def run(self, stop: threading.Event) -> None:
        self._stop = stop
        self._stale.set()
        try:
            while not stop.is_set():
                self._take_messages()
                self._upkeep(time.monotonic())
                now = time.monotonic()
                self._perform([*self._sink_half.tick(now), *self._source_half.tick(now)])
            self._say_stopped()
        finally:
            for exported in self._exported:
                exported.close()

    def _take_messages(self) -> None:
        waiting = True
        with suppress(queue.Empty):
            while not self._stop.is_set():
                said = self._inbox.get(waiting, TICK_SECONDS)
                waiting = False
                if said is not None:
                    self._hear(*said)
        if self._stale.is_set():
            self._stale.clear()
            self._read_sessions()

    def _hear(self, source: str, body: bytes) -> None:
        try:
            message = CODEC.decode(body)
        except RemoteProtocolError as error:
            log.warning("a message of a session cannot be read", source=source, reason=str(error))
            return
        if isinstance(message, Negotiate):
            self._follow_requests(time.monotonic())  # a provider that came before the client's first entry is not overlooked
        now = time.monotonic()
        self._perform([*self._sink_half.receive(source, message, now), *self._source_half.receive(source, message, now)])

    def _perform(self, effects: Collection[SinkEffect | SourceEffect]) -> None:
        waiting = deque(effects)
        while waiting and not self._stop.is_set():
            waiting.extend(self._do(waiting.popleft()))

    def _do(self, effect: SinkEffect | SourceEffect) -> Collection[SinkEffect | SourceEffect]:
        sink, source, now = self._sink_half, self._source_half, time.monotonic
        match effect:
            case sessionasks.Say(to, message):
                self._loop.say(to, CODEC.encode(message), is_bulk(message))
                return ()
            case sessionasks.Reload(origin):
                self._loop.reload(origin)
                self._stale.set()
                return ()
            case sessionasks.UseLog():
                used = self._on_sink(lambda to: to.use_log(**vars(effect)))
                return sink.using_log(effect, used, now())
            case sessionasks.BeginSnapshot():
                begun = self._on_sink(lambda to: to.begin_snapshot(**vars(effect)))
                return sink.begun(effect, begun, now())
            case sessionasks.StoreChunk():
                stored = self._on_sink(lambda to: to.store_chunk(**vars(effect)))
                return sink.stored(effect, stored, now())
            case sessionasks.FinishSnapshot():
                finished = self._on_sink(lambda to: to.finish_snapshot(**vars(effect)))
                return sink.finished(effect, finished, now())
            case sessionasks.AskSnapshot(client, destination, reason, forced):
                request = self._in_table(lambda conn: requests.ask(conn, client, [destination], reason, forced))
                return source.asked(effect, str(request), now())
            case sessionasks.ReadChunk():
                stored_chunk = self._in_table(lambda conn: requests.read_chunk(conn, UUID(effect.request), effect.chunk))
                return source.chunk(effect, stored_chunk.body, now())
            case sessionasks.Delivered():
                self._in_table(lambda conn: self._delivered(conn, effect))
                return ()
            case sessionasks.Supersede(superseded):
                why = "a newer one takes its place"
                self._in_table(lambda conn: requests.cancel(conn, UUID(superseded), why, State.SUPERSEDED))
                return ()

    @staticmethod
    def _delivered(conn: Connection, effect: sessionasks.Delivered) -> None:
        request = UUID(effect.request)
        row = next((r for r in requests.open_requests(conn) if r.id == effect.request), None)
        if row is not None:
            acknowledge_base(conn, effect.destination, row.client, row.base)
        requests.delivered(conn, request, effect.destination)

    # -- now and then

    def _upkeep(self, now: float) -> None:
        works: dict[str, Callable[[float], None]] = {
            "requests": self._follow_requests, "tails": self._move_tails, "room": self._look_for_room,
            "ways": self._ask_ways, "upkeep": self._trim, "status": self._show, "idle": self._detach_idle,
        }  # fmt: skip
        for name, work in works.items():
            if now >= self._due[name] and not self._stop.is_set():
                self._due[name] = now + EVERY[name]
                work(now)

    def _read_sessions(self) -> None:
        rows = self._on_sink(lambda sink: sink.sessions())
        self._origins = {row.origin for row in rows}
        self._perform(self._sink_half.sessions(rows, time.monotonic()))

    def _follow_requests(self, now: float) -> None:
        reached = [site for site, ways in self._ways.items() if ways.reached]

        def read(conn: Connection) -> tuple[Any, Any, Any]:
            return requests.open_requests(conn), requests.providers(conn), requests.wanted_for_export(conn, reached)

        rows, provided, wanted = self._reading(read)
        self._perform(self._source_half.requests(rows, provided, now))
        stamper = self._stamper()
        if wanted and stamper is not None:
            with suppress(*AWAY):  # they are still wanted the next time
                self._exported.append(stamper.export(wanted))
        needed = {row.id for row in rows if row.state in EXPORTED} | set(map(str, wanted))
        for exported in [e for e in self._exported if not needed.intersection(map(str, e.requests))]:
            self._exported.remove(exported)
            exported.close()

    def _move_tails(self, now: float) -> None:
        # In the sink's lane: both change the queues' rows, and neither should wait for the other inside a transaction.
        self._until_done(lambda: self._in_lane(lambda: self._fenced(move_tails)))

    def _look_for_room(self, now: float) -> None:
        for origin in self._on_sink(lambda sink: sink.room()):
            self._loop.reload(origin)
            self._stale.set()
        full: dict[str, set[str]] = {}
        for origin, client in self._ends.sink.full():
            full.setdefault(origin, set()).add(client)
        for origin in self._origins:
            self._perform(self._sink_half.full(origin, full.get(origin, ()), now))

    def _ask_ways(self, now: float) -> None:
        for site, ways in self._ways.items():
            self._perform(self._sink_half.reachable(site, ways.reached, now))
            self._perform(self._source_half.reachable(site, ways.reached, now))
        sites = self._reading(lambda conn: [name for (name,) in conn.execute("SELECT name FROM queues.site")])
        self._loop.ask_ways([s for s in sites if s != self._ends.site], self._learn_ways)

    def _learn_ways(self, ways: Mapping[str, Ways]) -> None:
        self._ways = ways

    def _trim(self, now: float) -> None:
        ends = self._ends

        def trim() -> Trimmed:
            with ends.log.backlog() as backlog, ends.pool.connection() as conn:
                return self._retention.step(conn, ends.grant, backlog)

        trimmed = self._until_done(trim)
        for destination, client in trimmed.marked:
            log.warning("a destination is no longer waited for; it gets a snapshot", destination=destination, client=client)

        def step(conn: Connection) -> None:
            self._ring.step(conn, ends.grant)
            for request in requests.expire(conn, ends.grant.epoch):
                log.warning("a snapshot request was given up", request=str(request))

        self._in_table(step)

    def _detach_idle(self, now: float) -> None:
        idle = self._in_table(lambda conn: detach_idle(conn, self._config.consumer_idle_hours * 3600))
        for client, consumer in idle:
            log.warning("a consumer read nothing for long; nothing is kept for it any more", client=client, consumer=consumer)

    def _show(self, now: float) -> None:
        self._source_half.facts(self._reading(self._facts), now)
        self._write_statuses(now)

    def _say_stopped(self) -> None:
        """The last word of this leadership; nobody waits for a database that does not take it."""
        self._source_half.stop()
        with suppress(*AWAY):
            self._write_statuses(time.monotonic())

    def _write_statuses(self, now: float) -> None:
        statuses = [*self._source_half.status(now), *self._sink_half.status(now)]
        self._in_table(lambda conn: write_statuses(conn, statuses))

    def _facts(self, conn: Connection) -> Facts:
        ends, has = self._ends, acknowledged(conn)
        sites = [name for (name,) in conn.execute("SELECT name FROM queues.site") if name != ends.site]
        with ends.log.backlog() as backlog:
            last = {(site, client): seq for site in sites for client, seq in backlog.last_for(site).items()}
            trimmed = {(site, client): seq for site in sites for client, seq in backlog.trimmed_for(site).items()}
            behind = {pair: backlog.behind(*pair, has[pair].seq if pair in has else 0).entries for pair in last}
        marked = conn.execute("SELECT destination, client FROM queues.needs_snapshot").fetchall()
        missed = {pair for pair in marked if (has[pair].seq if pair in has else 0) < trimmed.get(pair, 0)}
        sent = {pair: self._ways[pair[0]].sent or 0 for pair in last if pair[0] in self._ways}
        return Facts(ends.log.head(), ends.log.lowest(), trimmed, last, missed, has, sent, behind)

    # -- the database

    def _on_sink(self, work: Callable[[PostgresSink], T]) -> T:
        def done() -> T:
            result: T = self._in_lane(lambda: work(self._ends.sink))
            return result

        return self._until_done(done)

    def _in_table(self, work: Callable[[Connection], T]) -> T:
        """One transaction that ends with the fence."""

        return self._until_done(lambda: self._fenced(work))

    def _fenced(self, work: Callable[[Connection], T]) -> T:
        with self._ends.pool.connection() as conn:
            result = work(conn)
            commit_fenced(conn, self._ends.grant)
            return result

    def _reading(self, work: Callable[[Connection], T]) -> T:
        def done() -> T:
            with self._ends.pool.connection() as conn:
                return work(conn)

        return self._until_done(done)

    def _until_done(self, work: Callable[[], T]) -> T:
        backoff = Backoff(0.05, 2.0, random)
        while True:
            try:
                return work()
            except AWAY as error:
                if self._stop.is_set():
                    raise
                log.warning("the database is away; the sessions wait", reason=in_one_line(error))
                self._stop.wait(backoff.after_failure())
