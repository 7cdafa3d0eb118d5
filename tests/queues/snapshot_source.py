"""The leader's side of snapshots as these tests drive it, step by step, on one site's database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from queue_site import Site

from trunkline.queues import requests
from trunkline.queues.export import Exported
from trunkline.queues.messages import RECORDS
from trunkline.queues.snapshots import OPEN
from trunkline.queues.stamper import Stamper

CLIENT = "pol"
T = TypeVar("T")


_ROWS = """
SELECT id, client, destinations, ARRAY(SELECT destination FROM queues.delivery d WHERE d.request = r.id ORDER BY 1), reason,
       forced, state, base, chunks, records, bytes, progress, error
  FROM queues.request r WHERE state = ANY(%s) ORDER BY created_at, id
"""


@dataclass(frozen=True)
class Row:
    id: UUID
    client: str
    destinations: list[str]
    delivered: list[str]
    reason: str
    forced: bool
    state: str
    base: int | None
    chunks: int
    records: int
    bytes: int
    progress: int | None
    error: str | None


@dataclass
class Source:
    site: Site
    stamper: Stamper = field(init=False)
    incarnation: int = field(init=False)
    exported: list[Exported] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.new_leader()

    def within(self, work: Callable[..., T], *args: Any) -> T:
        with psycopg.connect(self.site.dsn) as conn:
            return work(conn, *args)

    def ask(self, *destinations: str, client: str = CLIENT, reason: str = "first", forced: bool = False) -> UUID:
        return self.within(requests.ask, client, destinations, reason, forced)

    def rows(self) -> list[Row]:
        """Of open requests, oldest first."""
        return [Row(*row) for row in self.site.ask(_ROWS, (list(OPEN),))]

    def row(self, request: UUID) -> Row:
        (row,) = [r for r in self.rows() if r.id == request]
        return row

    def state(self, request: UUID) -> str:
        (state,) = self.site.ask("SELECT state FROM queues.request WHERE id = %s", (request,))
        return str(state)

    def provide_for(self, *clients: str) -> None:
        """As if a provider were there."""
        for client in clients:
            self.site.do("INSERT INTO queues.provider (client, owner) VALUES (%s, 'somebody')", (client,))

    def export(self) -> list[UUID]:
        """All that may be: ready, with the base of now."""
        ids = self.within(requests.wanted_for_export)
        return self.export_these(ids) if ids else []

    def export_these(self, ids: Sequence[UUID]) -> list[UUID]:
        exported = self.stamper.export(ids)
        self.site.stack.callback(exported.close)
        self.exported.append(exported)
        return list(exported.requests)

    def new_leader(self) -> None:
        grant = self.site.take_over()
        self.stamper, self.incarnation = self.site.stamper(grant), grant.epoch

    def make_ready(self, ids: Sequence[UUID], snapshot: str, base: int) -> None:
        self.site.do(
            "UPDATE queues.request SET state = 'ready', snapshot = %s, base = %s, base_mark = 7, incarnation = %s,"
            " updated_at = now() WHERE id = ANY(%s) AND state = 'wanted'",
            (snapshot, base, self.incarnation, list(ids)),
        )

    def fill(self, request: UUID, *chunks: Sequence[bytes]) -> None:
        """As a provider would, without one."""
        self.site.do("UPDATE queues.request SET state = 'complete', chunks = %s WHERE id = %s", (len(chunks), request))
        for n, payloads in enumerate(chunks):
            body = RECORDS.encode([({}, p) for p in payloads])
            self.site.do("INSERT INTO queues.send_snapshot VALUES (%s, %s, %s, %s)", (request, n, len(payloads), body))

    def fetch(self, request: UUID) -> list[bytes]:
        """Payloads of the whole snapshot, as a destination gets them; proves that it has an end."""
        return [payload for _, payload in self.fetch_records(request)]

    def fetch_records(self, request: UUID) -> list[tuple[dict[str, str], bytes]]:
        records: list[tuple[dict[str, str], bytes]] = []
        chunk = 0
        while not (stored := self.within(requests.read_chunk, request, chunk)).last:
            assert stored.body is not None, f"chunk {chunk} is missing"
            records += RECORDS.decode(stored.body)
            chunk += 1
        return records

    def stored(self) -> list[UUID]:
        """The request of every chunk in the table."""
        return self.site.ask("SELECT request FROM queues.send_snapshot ORDER BY request, chunk")

    def deliver(self, request: UUID, *destinations: str) -> None:
        for destination in destinations:
            self.within(requests.delivered, request, destination)

    def expire(self, **patience: float) -> list[UUID]:
        return self.within(requests.expire, self.incarnation, requests.Patience(**patience))

    def open_ids(self) -> list[UUID]:
        return self.site.ask("SELECT id FROM queues.request WHERE state = ANY(%s) ORDER BY created_at", (list(OPEN),))

    def clear(self) -> None:
        self.site.do("TRUNCATE queues.request, queues.send_snapshot, queues.delivery, queues.provider")


@contextmanager
def source_at(dsn: str) -> Iterator[Source]:
    """All its connections are closed before what it left is removed."""
    with ExitStack() as stack:
        source = Source(Site(dsn, stack))
        yield source
        stack.close()
        source.clear()
