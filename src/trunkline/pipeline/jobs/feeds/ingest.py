"""The site's ingest as a feed: events that nodes took for http and redis receivers (`trunkline.routes.ingest`).

I1  A receiver's events are read by one task, in the order in which nodes appended them.
I2  What waits for a receiver that is gone comes before the events of the one that takes over from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
import psycopg
import structlog

from trunkline.db.away import attentive
from trunkline.pipeline.jobs.feed import Connection, Read
from trunkline.pipeline.jobs.feeds.spans import AT_ONCE, Span, by_bytes, by_rows, packed, rows_of, still_there
from trunkline.pipeline.jobs.receivers import Receivers
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.routes import ingest
from trunkline.routes.event import Event
from trunkline.routes.ingest import Ingested, receiver_for
from trunkline.routes.placement import source_of

log = structlog.get_logger(__name__)


class IngestFeed:
    """A span's `remote` is the receiver that the events were taken for, its `receiver` the one whose routes get them."""

    stuck = ""

    def __init__(self, settings: JobSettings) -> None:
        self._settings = settings
        self._told: set[str] = set()

    def next(self, conn: Connection, receivers: Receivers, open_body: Any | None) -> tuple[Any | None, int]:
        waiting = self._waiting(ingest.waiting(conn), receivers)
        if open_body is not None:
            planned = msgspec.convert(open_body, list[Span])
            if still_there(planned, waiting):
                return open_body, rows_of(waiting) - rows_of(planned)
        spans = self._admitted(conn, waiting)
        return msgspec.to_builtins(spans) if spans else None, rows_of(waiting) - rows_of(spans)

    def _waiting(self, rows: Sequence[Ingested], receivers: Receivers) -> list[Span]:
        """At most one for each receiver (I2)."""
        by_source = {(one.tenant, source_of(one.config)): one for one in receivers.values()}
        found: dict[str, Span] = {}
        for row in sorted(rows, key=lambda row: row.receiver in receivers):
            receiver = receiver_for(row, receivers, by_source)
            if receiver is None:
                self._tell(row)
            else:
                found.setdefault(receiver.name, Span(receiver.name, row.position + 1, row.head + 1, remote=row.receiver))
        return list(found.values())

    def _tell(self, row: Ingested) -> None:
        if row.receiver not in self._told:
            self._told.add(row.receiver)
            log.warning(
                "events wait for a receiver that no route has", receiver=row.receiver, tenant=str(row.tenant),
                events=row.head - row.position, next_step="add a route that hears the same",
            )  # fmt: skip

    def _admitted(self, conn: Connection, waiting: Sequence[Span]) -> list[Span]:
        spans = by_rows(waiting, self._settings.max_rows)
        sizes = ingest.sizes(conn, [(span.remote, span.first, span.end - 1) for span in spans])
        return by_bytes(spans, sizes, self._settings.max_bytes)

    def partition(self, source: str) -> str:
        return ""

    def rows(self, body: Any) -> int:
        return rows_of(msgspec.convert(body, list[Span]))

    def pieces(self, body: Any, tasks: int) -> Sequence[tuple[Span, ...]]:
        return packed(msgspec.convert(body, list[Span]), tasks)

    def read(self, piece: tuple[Span, ...], receivers: Receivers) -> Iterator[Read]:
        with closing(
            psycopg.connect(attentive(self._settings.dsn), autocommit=True, application_name="trunkline-job-ingest")
        ) as conn:
            for span in piece:
                for events in _chunks(ingest.read(conn, span.remote, span.first - 1, span.end - 1)):
                    yield receivers[span.receiver], events

    def move(self, conn: Connection, body: Any) -> None:
        for span in sorted(msgspec.convert(body, list[Span]), key=lambda span: span.remote):  # as nodes lock them
            ingest.move(conn, span.remote, span.end - 1, span.first - 1)

    def check(self, body: Any, receivers: Receivers) -> None:
        """Tasks have checked every position."""

    def close(self) -> None:
        """It holds nothing."""


def _chunks(pages: Iterator[list[Event]]) -> Iterator[list[Event]]:
    chunk: list[Event] = []
    for page in pages:
        chunk += page
        if len(chunk) >= AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
