"""What is left in the site's ingest when no pipeline routes it: through the routes of the instance that has the lease.

1.  Receivers do not wait for each other. Of each, one batch is under way at a time, in order.
2.  What failed is given again, with growing pauses, and what came after it waits.
3.  A batch is passed in a transaction that is fenced with the grant of the group (H01).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from trunkline.core.backoff import Backoff
from trunkline.core.errors import Retryable, Terminal
from trunkline.db.away import AWAY, in_one_line
from trunkline.db.lease import Grant, commit_fenced, connect_fenced
from trunkline.routes import ingest
from trunkline.routes.ends import Give
from trunkline.routes.event import Event
from trunkline.routes.ingest import Ingested
from trunkline.routes.local.line import Line
from trunkline.routes.outcome import Outcome

AT_ONCE = 500
GIVE_SECONDS = 60.0
_LOOK = 0.2
_FIRST_RETRY, _LAST_RETRY = 0.1, 5.0

T = TypeVar("T")


class _Rows:
    """Over one connection, in one thread."""

    def __init__(self, dsn: str, grant: Grant) -> None:
        self._conn, self._grant = connect_fenced(dsn, "trunkline-ingest"), grant

    def waiting(self) -> list[Ingested]:
        found = ingest.waiting(self._conn)
        self._conn.commit()
        return found

    def read(self, receiver: str, after: int, upto: int) -> list[Event]:
        found = [event for page in ingest.read(self._conn, receiver, after, upto) for event in page]
        self._conn.commit()
        return found

    def move(self, receiver: str, position: int, after: int) -> None:
        ingest.move(self._conn, receiver, position, after)
        commit_fenced(self._conn, self._grant)

    def close(self) -> None:
        self._conn.close()


class IngestReceiving:
    """`line_for`: whose routes get what waits; none: nobody's here."""

    def __init__(self, dsn: str, random: Callable[[], float], line_for: Callable[[Ingested], Line | None]) -> None:
        self._dsn, self._random, self._line_for = dsn, random, line_for
        self._thread = ThreadPoolExecutor(1, "route-ingest")

    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        if grant is None:
            raise Terminal("ingest", "it is drained under a lease only", "report this defect")
        try:
            rows = await self._aside(lambda: _Rows(self._dsn, grant))
            try:
                await self._serve(rows, stop)
            finally:
                await self._aside(rows.close)
        except AWAY as error:
            raise Retryable("ingest", in_one_line(error), "see that the database runs") from None

    async def close(self) -> None:
        self._thread.shutdown()

    async def _aside(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _serve(self, rows: _Rows, stop: asyncio.Event) -> None:
        busy: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                while not stop.is_set():
                    for row in await self._aside(rows.waiting):
                        line = self._line_for(row)
                        if line is not None and (row.receiver not in busy or busy[row.receiver].done()):
                            busy[row.receiver] = group.create_task(self._drain(rows, row, line, stop))
                    await _pause(stop, _LOOK)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _drain(self, rows: _Rows, row: Ingested, line: Line, stop: asyncio.Event) -> None:
        after = row.position
        while after < row.head and not stop.is_set():
            upto = min(row.head, after + AT_ONCE)
            events = await self._aside(lambda after=after, upto=upto: rows.read(row.receiver, after, upto))  # type: ignore[misc]
            if not await self._route(line, events, stop):
                return
            await self._aside(lambda after=after, upto=upto: rows.move(row.receiver, upto, after))  # type: ignore[misc]
            after = upto

    async def _route(self, line: Line, events: list[Event], stop: asyncio.Event) -> bool:
        """Whether all of them are done."""
        backoff = Backoff(_FIRST_RETRY, _LAST_RETRY, self._random)
        while events:
            done = await (await line.enter(events, GIVE_SECONDS, None, None, counted=True))
            events = [event for event, one in zip(events, done, strict=True) if one.outcome is not Outcome.ACKED]
            if events:
                await _pause(stop, backoff.after_failure())
                if stop.is_set():
                    return False
        return True


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
