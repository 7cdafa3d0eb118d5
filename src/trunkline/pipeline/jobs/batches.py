"""The driver's half of a batch: what tasks left to do, and then one transaction with everything that has to be kept.

B1  In this order: tasks have sent what they may; the driver runs the filters that remember, in the order of the events, and
    sends what only it can; then one transaction keeps messages for another try, dead letters, what filters remember, and
    moves the group on. The fence is last (H01). So an event that was passed is sent, kept, a dead letter or dropped (G7),
    and one that was not comes again, with the same ids.
B2  A batch with an event that was given back is not done: it is tried again, with growing pauses. After MOST_TRIES such an
    event is a dead letter, so that it does not stop its group for ever.
B3  What filters hold back and is due is flushed by the driver's clock, in a transaction of the same kind (H32). Batches and
    flushes take turns. So do dead letters that are tried again.
B4  What a route that is live no longer holds is flushed when no plan can name it any more.
B5  What filters join and send once is written down before it is sent (M5 of `memory`): in a transaction of its own, before the
    one that ends the batch. No clock flushes such a route while the batch that it is in the middle of is open.
B6  A batch of a few events (`JobSettings.few_events`) is routed here. Spark plans it all the same, and runs no task for it:
    that would take longer than all the rest.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import msgspec
import psycopg
import structlog
from msgspec.structs import replace
from pyspark.sql import DataFrame

from trunkline.core.errors import Retryable
from trunkline.db.lease import PATIENCE, commit_fenced, connect_fenced
from trunkline.pipeline.jobs.deliver import Delivery, Senders
from trunkline.pipeline.jobs.feed import Feed
from trunkline.pipeline.jobs.keeping import keep
from trunkline.pipeline.jobs.loaded import Loaded, LoadedRoute
from trunkline.pipeline.jobs.memory import Memory, Remembered, sources_of, taken_over
from trunkline.pipeline.jobs.outcomes import Outcome, RouteCount, TaskCounts, Told, read
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.pipeline.jobs.stage import Item, Nowhere, Stage, everything, nothing
from trunkline.pipeline.jobs.stored import JobPlan, Member, after, before, close_plan, member, open_plan, take_row, waits
from trunkline.pipeline.query import require_empty
from trunkline.routes.canonical import json_hash
from trunkline.routes.chain import ErrorPolicy, Ran
from trunkline.routes.ends import Sendable
from trunkline.routes.event import Event
from trunkline.routes.local.keeping import MESSAGE
from trunkline.routes.local.outbox import Row

MOST_TRIES = 5
CLOSE_SECONDS = 1.0

Connection = psycopg.Connection[Any]
Tell = Callable[[TaskCounts, dict[str, LoadedRoute]], None]
"""Hears what a batch came to, when it is done."""

log = structlog.get_logger(__name__)


class Tally:
    """All that was told of a batch, sorted."""

    def __init__(self, outcomes: Iterable[Outcome] = ()) -> None:
        self.counts = TaskCounts(0, {}, {}, [])
        self.events: dict[str, list[Outcome]] = {}
        self.messages: dict[str, list[Outcome]] = {}
        self.kept: list[Outcome] = []
        self.failed: list[Outcome] = []
        self.add(outcomes)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        for one in outcomes:
            if one.told is Told.COUNTS:
                self._count(msgspec.json.decode(one.content, type=TaskCounts))
            elif one.told is Told.EVENT:
                self.events.setdefault(one.hash, []).append(one)
            elif one.told is Told.MESSAGE:
                self.messages.setdefault(one.hash, []).append(one)
            else:
                (self.failed if one.told is Told.FAILED else self.kept).append(one)

    def _count(self, told: TaskCounts) -> None:
        self.counts.events += told.events
        for hash, count in told.routes.items():
            self.counts.routes.setdefault(hash, RouteCount()).add(count)
        for name, number in told.custom.items():
            self.counts.custom[name] = self.counts.custom.get(name, 0) + number
        self.counts.lines += told.lines


class Batches:
    """Of one group, while its lease is held; `take` and `flush` may be called by different threads."""

    def __init__(self, settings: JobSettings, feed: Feed, senders: Senders, tell: Tell) -> None:
        self._settings, self._feed, self._senders, self._tell = settings, feed, senders, tell
        self._loaded = Loaded(settings)
        self._memory = Memory(settings.group)
        self._turn = threading.Lock()
        self._conn: Connection | None = None
        self._failures = (-1, 0)
        self._closed = False

    def take(self, batch: DataFrame) -> None:
        plan = self._planned()
        few = plan is not None and self._feed.rows(plan.body) <= self._settings.few_events
        outcomes = [] if few else list(read(batch.toArrow()))
        with self._in_turn():
            if plan is not None:
                self.finish(plan, self._by_hand(plan) if few else outcomes)
            elif outcomes:
                require_empty(batch, self._settings.group)

    def _planned(self) -> JobPlan | None:
        with self._in_turn() as conn:
            plan = open_plan(conn, self._settings.group)
            conn.rollback()
            return plan

    def _by_hand(self, plan: JobPlan) -> Iterator[Outcome]:
        """B6: what tasks would do."""
        self._loaded.move(self._connection(), plan.revision)
        stage = Stage(self._loaded, Delivery(self._senders), plan.waiting)
        for piece in self._feed.pieces(plan.body, 1):
            for receiver, events in self._feed.read(piece, self._loaded.receivers):
                stage.take(receiver, events)
        return stage.finish()

    def finish(self, plan: JobPlan, outcomes: Iterable[Outcome]) -> None:
        conn, group = self._connection(), self._settings.group
        tally = Tally(outcomes)
        self._loaded.move(conn, plan.revision)
        waiting = plan.waiting | {hash for hash in tally.events if waits(conn, self._loaded.routes[hash].member)}
        stage, name = Stage(self._loaded, Delivery(self._senders), waiting, everything), _name(plan)
        remembered = {hash: self._remember(conn, stage, tally, hash, name) for hash in tally.events}
        for hash, messages in tally.messages.items():
            _hand_over(stage, self._loaded.routes[hash], messages)
        tally.add(stage.finish())
        given_back = self._given_back(plan, tally.failed)
        self._feed.check(plan.body, self._loaded.receivers)
        keep(conn, self._loaded.routes, [*tally.kept, *given_back], tally.counts.routes)
        for hash, was in remembered.items():
            self._memory.write(conn, self._loaded.routes[hash], was.done())
        self._feed.move(conn, plan.body)
        close_plan(conn, group, plan, tally.counts.events)
        commit_fenced(conn, self._settings.grant)
        tally.counts.group, tally.counts.took = group, max(0.0, time.time() - plan.planned)
        self._failures = (-1, 0)
        self._tell(tally.counts, self._loaded.routes)

    def flush(self, all_of_them: bool = True) -> bool:
        """What is due and, of `all_of_them`, what filters of routes hold that are live no longer. Gives whether filters of this
        group remember nothing any more; unknown if only what is due was asked for."""
        with self._in_turn() as conn:
            due = self._memory.due(conn, all_of_them)
            conn.rollback()
            for hash, gone in due:
                self._flush(conn, hash, gone)
            empty = all_of_them and self._memory.is_empty(conn)
            conn.rollback()
            return empty

    def again(self, hash: str, row: Row, event: Event, holder: str) -> None:
        """A row of the route's outbox that is an event: through the filters, from the one that could not process it on. What
        comes out goes behind what waits there; the row is gone in the same transaction. What fails is a dead letter again, so
        that it holds nothing up."""
        with self._in_turn() as conn:
            route = self._route(conn, hash)
            was = self._recalled(conn, route) if route.cut is not None else None
            conn.rollback()
            names = [*(step.name for step in route.chain.steps), MESSAGE]
            first = names.index(row.step) if row.step in names else 0
            came = [*route.chain.held(), event]
            ran = route.chain.run([event if row.step in names else event.origin], first)
            stage = Stage(self._loaded, Delivery(self._senders), {hash}, everything)
            numbers = was.numbers if was is not None else {}
            stage.count(route).dropped += _dropped(route, came, ran)
            stage.faults(route, ran.faults, numbers, row.id)
            stage.messages(route, ran.out, numbers, row.id)
            counts = self._keep(conn, route, stage, Tally())
            if was is not None and not ran.upset:
                self._memory.write(conn, route, was)
            take_row(conn, hash, row, holder)
            commit_fenced(conn, self._settings.grant)
            self._tell(counts, {hash: route})

    @property
    def connection(self) -> Connection | None:
        """What a batch may be waiting for."""
        return self._conn

    @property
    def given_back(self) -> bool:
        """Whether the batch under way failed because of its events: another instance would fare no better."""
        return self._failures[1] > 0

    def close(self) -> None:
        """Whoever is at work for long ends by itself, at the fence, and closes behind itself."""
        self._closed = True
        if self._turn.acquire(timeout=CLOSE_SECONDS):
            self._disconnect()
            self._turn.release()

    # -- filters that remember

    def _remember(self, conn: Connection, stage: Stage, tally: Tally, hash: str, batch: str) -> Remembered:
        route = self._loaded.routes[hash]
        was = self._recalled(conn, route)
        if was.batch != batch:
            told = sorted(tally.events[hash], key=lambda one: self._feed.partition(one.source))
            events = [msgspec.json.decode(one.content, type=Event) for one in told]
            was = self._ran(conn, stage, route, events, lambda: route.chain.run(events, route.cut or 0), was, batch)
        tally.add(was.ahead)
        return was

    def _ran(
        self, conn: Connection, stage: Stage, route: LoadedRoute, events: Sequence[Event], run: Callable[[], Ran],
        was: Remembered, batch: str = "",
    ) -> Remembered:  # fmt: skip
        """What came of a run, handed over or, in the order of all, written `ahead` (B5)."""
        came = [*route.chain.held(), *events]
        ran = run()
        if ran.upset:
            raise Retryable(f"route {route.label}", ran.upset, "it is tried again")
        telling = Stage(self._loaded, Nowhere(), sends=nothing) if route.written_ahead else stage
        telling.count(route).dropped += _dropped(route, came, ran)
        telling.faults(route, ran.faults, was.numbers)
        telling.messages(route, ran.out, was.numbers)
        if telling is stage:
            return was
        was = replace(was, ahead=[*was.ahead, *telling.finish()], batch=batch)
        if any(one.told is Told.MESSAGE for one in was.ahead):
            self._memory.write(conn, route, was)
            commit_fenced(conn, self._settings.grant)
            was = replace(was, version=was.version + 1)
        return was

    def _recalled(self, conn: Connection, route: LoadedRoute) -> Remembered:
        """The route's filters remember after it what they did when the last batch was done. No transaction is left open, for
        filters and senders take their time."""
        fresh = self._memory.fresh(route)
        found = self._taken_over(conn, route, self._memory.read(conn, route.hash) or fresh)
        route.chain.restore({**fresh.chain, **found.chain})
        conn.rollback()
        return found

    def _taken_over(self, conn: Connection, route: LoadedRoute, own: Remembered) -> Remembered:
        """M3: what stays with the old route is flushed with it."""
        group, grant = self._settings.group, self._settings.grant
        old_hash = before(conn, group, route.hash)
        old = member(conn, group, old_hash) if old_hash is not None else None
        row = self._memory.read(conn, old.hash) if old is not None else None
        same = taken_over(self._loaded.made(old), route) & row.chain.keys() if old is not None and row is not None else set()
        if old is None or row is None or not same:
            return own
        chain, numbers = {**own.chain, **{n: row.chain[n] for n in same}}, {**own.numbers, **row.numbers}
        found = replace(own, chain=chain, numbers=numbers)
        self._memory.leave(conn, old.hash, same, row)
        route.chain.restore(found.chain)
        self._memory.write(conn, route, found)
        commit_fenced(conn, grant)
        return replace(found, version=own.version + 1)

    def _flush(self, conn: Connection, hash: str, gone: bool) -> None:
        route = self._route(conn, hash)
        heir = after(conn, self._settings.group, hash) if gone else None
        if heir is not None:
            self._recalled(conn, self._route(conn, heir))
        was, behind = self._memory.read(conn, hash), waits(conn, route.member)
        plan = open_plan(conn, self._settings.group)
        conn.rollback()
        if was is None or (plan is not None and was.batch == _name(plan)):
            return
        route.chain.restore({**self._memory.fresh(route).chain, **was.chain})
        stage = Stage(self._loaded, Delivery(self._senders), {hash} if behind else frozenset(), everything)
        now = math.inf if gone else time.time()
        was = self._ran(conn, stage, route, (), lambda: route.chain.flush(now), was)
        tally = Tally(was.ahead)
        _hand_over(stage, route, tally.messages.get(hash, ()))
        counts = self._keep(conn, route, stage, tally)
        self._memory.drop(conn, hash, was.version) if gone else self._memory.write(conn, route, was.done())
        commit_fenced(conn, self._settings.grant)
        self._tell(counts, {hash: route})

    def _route(self, conn: Connection, hash: str) -> LoadedRoute:
        """Also one that is live no longer."""
        route = self._loaded.routes.get(hash)
        found = member(conn, self._settings.group, hash) if route is None else None
        if route is None and found is None:
            raise Retryable(f"route {hash} of {self._settings.group}", "the group has no such route yet", "it is tried again")
        return route if route is not None else self._loaded.made(cast(Member, found))

    def _keep(self, conn: Connection, route: LoadedRoute, stage: Stage, tally: Tally) -> TaskCounts:
        """What came of a run beside the batches: nobody could give it back."""
        tally.add(stage.finish())
        dead = [replace(one, told=Told.DEAD) for one in tally.failed]
        keep(conn, {route.hash: route}, [*tally.kept, *dead], tally.counts.routes)
        tally.counts.group = self._settings.group
        return tally.counts

    # -- events that were given back

    def _given_back(self, plan: JobPlan, failed: Sequence[Outcome]) -> list[Outcome]:
        """B2. Dead letters, if it was tried often enough."""
        if not failed:
            return []
        moves, tries = self._failures
        tries = tries + 1 if moves == plan.moves else 1
        self._failures = (plan.moves, tries)
        if tries < MOST_TRIES:
            why = f"{len(failed)} events were given back: {failed[0].step}: {failed[0].reason}"
            raise Retryable(f"batch of {self._settings.group}", why, "it is tried again")
        reason = f"it was given back {tries} times"
        return [replace(one, told=Told.DEAD, reason=f"{reason}: {one.reason}") for one in failed]

    @contextmanager
    def _in_turn(self) -> Iterator[Connection]:
        with self._turn:
            if self._closed:
                raise Retryable(f"batches of {self._settings.group}", "the job has ended", "the next holder goes on")
            try:
                yield self._connection()
            finally:
                if self._closed:
                    self._disconnect()

    def _disconnect(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()

    def _connection(self) -> Connection:
        if self._conn is None or self._conn.closed:
            self._conn = connect_fenced(self._settings.dsn, "trunkline-job", **PATIENCE)
        elif self._conn.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
            self._conn.rollback()
        return self._conn


def _name(plan: JobPlan) -> str:
    """The same as long as what it reads, and by which routes, is the same."""
    return json_hash([plan.moves, plan.revision, plan.body])


def _dropped(route: LoadedRoute, came: Iterable[Event], ran: Ran) -> int:
    """How many events were in the filters, and are neither held nor came to anything but faults to be dropped."""
    told = ran.out + [fault.event for fault in ran.faults if fault.policy is not ErrorPolicy.DROP]
    return len(sources_of(came) - sources_of(told) - sources_of(route.chain.held()))


def _hand_over(stage: Stage, route: LoadedRoute, messages: Sequence[Outcome]) -> None:
    stage.hand_over(route, [_item(route, one) for one in messages])


def _item(route: LoadedRoute, one: Outcome) -> Item:
    message: Any = msgspec.json.decode(one.content, type=route.plugin.sends)
    return Item(route, Sendable(one.id, message, route.once), one.source, one.came)
