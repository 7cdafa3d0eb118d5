"""Events on their way into the site's ingest: those of all receivers of this instance together, many in a transaction.

A1  One transaction at a time takes what waits, in the order in which it came. So a receiver's events keep their order, and
    rows that all instances lock are locked once for many events.
A2  Events that a receiver gave together are appended together, or not at all.
A3  While the database is away events wait, for as long as their sources do. A commit whose answer was lost is tried again:
    such events come twice, with the same ids.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.errors import Retryable, Terminal
from trunkline.net.tasks import Tasks
from trunkline.routes.ends import Pool
from trunkline.routes.event import Event
from trunkline.routes.ingest import APPEND, MOST_WAITING
from trunkline.routes.keys import Tenant
from trunkline.routes.local.asking import Asking
from trunkline.routes.outcome import Done, Outcome

AT_ONCE = 1_000  # events of a transaction, or
AT_ONCE_BYTES = 4 << 20
MAX_UNDER_WAY = 10_000  # events: as many as a receiver may have under way in routes

log = structlog.get_logger(__name__)


class Taker(msgspec.Struct, frozen=True):
    """A receiver, as the ingest knows it."""

    receiver: str
    tenant: Tenant
    source: str


@dataclass(eq=False)
class Batch:
    """What a receiver gave together. `rows`: JSON of the events."""

    of: Taker
    events: Sequence[Event]
    rows: list[str]
    done: asyncio.Future[list[Done]]
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(map(len, self.rows))

    def finish(self, outcome: Outcome, reason: str = "") -> None:
        if not self.done.done():
            self.done.set_result([Done(event.source.id, outcome, reason) for event in self.events])


class Appender:
    """`most`: events of a receiver that may wait for their routes."""

    def __init__(self, pool: Pool, random: Callable[[], float], most: int = MOST_WAITING) -> None:
        self._ask, self._most = Asking(pool, "ingest"), most
        self._backoff = Backoff(0.05, 1.0, random)
        self._waiting: deque[Batch] = deque()
        self._events = 0
        self._freed = asyncio.Event()
        self._working = False
        self._tasks = Tasks()

    async def put(self, of: Taker, events: Sequence[Event], seconds: float) -> asyncio.Future[list[Done]]:
        """Waits for room; finished when they are committed, refused, or late."""
        done: asyncio.Future[list[Done]] = asyncio.get_running_loop().create_future()
        try:
            batch = Batch(of, events, [msgspec.json.encode(event).decode() for event in events], done)
        except Exception as error:
            Batch(of, events, [], done).finish(Outcome.NACKED, f"it cannot be kept: {error}")
            return done
        late = asyncio.get_running_loop().call_later(seconds, batch.finish, Outcome.TIMED_OUT)
        done.add_done_callback(lambda _: late.cancel())
        done.add_done_callback(lambda _: self._freed.set())
        while self._events and self._events + len(events) > MAX_UNDER_WAY and not done.done():
            self._freed.clear()
            await self._freed.wait()
        if not events:
            batch.finish(Outcome.ACKED)
        elif not done.done():
            self._enter(batch)
        return done

    async def close(self) -> None:
        """What is not appended by now goes back to its source."""
        await self._tasks.cancel()
        for batch in self._waiting:
            batch.finish(Outcome.NACKED, "the instance stops")
        self._waiting.clear()

    def _enter(self, batch: Batch) -> None:
        self._waiting.append(batch)
        self._events += len(batch.events)
        if not self._working:
            self._working = True
            self._tasks.spawn(self._work(), "ingest")

    async def _work(self) -> None:
        try:
            most = AT_ONCE
            while batches := self._next(most):
                most = await self._append(batches)
        finally:
            self._working = False

    def _next(self, most: int) -> list[Batch]:
        """Those that are late already are left out."""
        taken: list[Batch] = []
        events = size = 0
        for batch in list(self._waiting):
            if batch.done.done():
                self._leave([batch])
            elif taken and (events + len(batch.events) > most or size + batch.size > AT_ONCE_BYTES):
                break
            else:
                taken.append(batch)
                events, size = events + len(batch.events), size + batch.size
        return taken

    async def _append(self, batches: list[Batch]) -> int:
        """Gives how many events to append next: one batch alone when something is wrong with one of them."""
        try:
            kept = {receiver for (receiver,) in await self._ask.rows(APPEND, _values(batches, self._most))}
        except Retryable as error:
            if not self._backoff.failures:
                log.warning("events cannot be appended; trying again", reason=error.why)
            await asyncio.sleep(self._backoff.after_failure())
            return AT_ONCE
        except Terminal as error:
            if len(batches) > 1:
                return 1
            batches[0].finish(Outcome.NACKED, error.why)
            return AT_ONCE
        self._backoff.success()
        self._leave(batches)
        for batch in batches:
            if batch.of.receiver in kept:
                batch.finish(Outcome.ACKED)
            else:
                batch.finish(Outcome.NACKED, f"{self._most} events of this receiver wait for their routes")
        return AT_ONCE

    def _leave(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self._waiting.remove(batch)
            self._events -= len(batch.events)
        self._freed.set()


def _values(batches: Sequence[Batch], most: int) -> dict[str, Any]:
    of = {batch.of.receiver: batch.of for batch in batches}
    rows: dict[str, list[str]] = {}
    for batch in batches:
        rows.setdefault(batch.of.receiver, []).extend(batch.rows)
    placed = [(receiver, *row) for receiver, events in rows.items() for row in _placed(events)]
    names, nths, uptos, events = ([*column] for column in zip(*placed, strict=True))
    return {
        "receivers": list(of),
        "orgs": [one.tenant.org for one in of.values()],
        "apps": [one.tenant.app for one in of.values()],
        "sources": [one.source for one in of.values()],
        "counts": [len(rows[receiver]) for receiver in of],
        "bytes": [sum(map(len, rows[receiver])) for receiver in of],
        "of": names, "nths": nths, "uptos": uptos, "events": events, "most": most,
    }  # fmt: skip


def _placed(events: Sequence[str]) -> list[tuple[int, int, str]]:
    """Each with its number, and the size of all up to it."""
    upto, placed = 0, []
    for nth, event in enumerate(events, 1):
        upto += len(event)
        placed.append((nth, upto, event))
    return placed
