"""The site's ingest in Postgres: events that nodes took for their receivers, and that are not routed yet.

E1  Positions of a receiver are dense, and in the order of the commits: whoever appends locks its row. Head and events commit
    together, so all up to a head that was read is there.
E2  Whoever routes passes events from where it read them, in a fenced transaction, or has not passed them (H28). What is passed
    is deleted.
E3  What waits for a receiver that no route has any more goes to one of its tenant that hears the same. If there is none it
    waits until one comes: whoever sent it was told that it is safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, LiteralString, TypeVar

import msgspec
import psycopg

from trunkline.core.errors import Retryable, Terminal
from trunkline.routes.event import Event
from trunkline.routes.keys import Tenant

Connection = psycopg.Connection[Any]
T = TypeVar("T")

_PAGE = 500  # an event may have 1 MiB
MOST_WAITING = 1_000_000  # events of a receiver: hours of a busy one, about 1 GB of the database

APPEND: LiteralString = """
WITH given AS (
    SELECT * FROM unnest(%(receivers)s::text[], %(orgs)s::text[], %(apps)s::text[], %(sources)s::text[], %(counts)s::bigint[],
                         %(bytes)s::bigint[]) AS g (receiver, org, app, source, count, bytes)),
moved AS (
    INSERT INTO routes.ingest AS i (receiver, org, app, source, head, total)
    SELECT receiver, org, app, source, count, bytes FROM given ORDER BY receiver
    ON CONFLICT (receiver) DO UPDATE SET head = i.head + excluded.head, total = i.total + excluded.total
     WHERE i.head + excluded.head - i.position <= %(most)s
    RETURNING i.receiver, i.head, i.total),
kept AS (
    INSERT INTO routes.ingest_event (receiver, position, total, event)
    SELECT m.receiver, m.head - g.count + e.nth, m.total - g.bytes + e.upto, e.event::json
      FROM unnest(%(of)s::text[], %(nths)s::bigint[], %(uptos)s::bigint[], %(events)s::text[])
           AS e (receiver, nth, upto, event) JOIN moved m USING (receiver) JOIN given g USING (receiver))
SELECT receiver FROM moved
"""
WAITS: LiteralString = "SELECT 1 FROM routes.ingest WHERE receiver = %s AND head > position"
WAITING: LiteralString = """
SELECT receiver, org, app, source, position, head FROM routes.ingest WHERE head > position ORDER BY receiver
"""
_SIZES = """
SELECT coalesce((SELECT e.total FROM routes.ingest_event e WHERE e.receiver = u.receiver AND e.position = u.last)
    - (SELECT e.total FROM routes.ingest_event e WHERE e.receiver = u.receiver AND e.position = u.first), 0)
  FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) WITH ORDINALITY AS u (receiver, first, last, nth) ORDER BY u.nth
"""
_READ = """
SELECT position, event::text FROM routes.ingest_event WHERE receiver = %s AND position > %s AND position <= %s
 ORDER BY position LIMIT %s
"""
_PASS = "UPDATE routes.ingest SET position = %s WHERE receiver = %s AND position = %s"
_FORGET = "DELETE FROM routes.ingest_event WHERE receiver = %s AND position > %s AND position <= %s"


class Ingested(msgspec.Struct, frozen=True):
    """Where a receiver's ingest stands; something waits in it."""

    receiver: str
    tenant: Tenant
    source: str
    position: int
    head: int


def ingested(rows: Sequence[tuple[Any, ...]]) -> list[Ingested]:
    """Of `WAITING`."""
    return [Ingested(receiver, Tenant(org, app), *rest) for receiver, org, app, *rest in rows]


def waiting(conn: Connection) -> list[Ingested]:
    return ingested(conn.execute(WAITING).fetchall())


def receiver_for(row: Ingested, by_name: Mapping[str, T], by_source: Mapping[tuple[Tenant, str], T]) -> T | None:
    """E3."""
    return by_name.get(row.receiver) or by_source.get((row.tenant, row.source))


def sizes(conn: Connection, spans: Sequence[tuple[str, int, int]]) -> list[int]:
    """About how many bytes there are in each (receiver, first, last)."""
    columns = [list(column) for column in zip(*spans, strict=True)]
    return [size for (size,) in conn.execute(_SIZES, columns)] if spans else []


def read(conn: Connection, receiver: str, after: int, upto: int) -> Iterator[list[Event]]:
    """Page by page; all of it, or it raises."""
    while after < upto:
        rows = conn.execute(_READ, (receiver, after, upto, _PAGE)).fetchall()
        if not rows or rows[-1][0] != after + len(rows):
            why = f"not all is there between positions {after + 1} and {upto}"
            raise Terminal(f"ingest of receiver {receiver}", why, "report this defect")
        after += len(rows)
        yield [msgspec.json.decode(event, type=Event) for _, event in rows]


def move(conn: Connection, receiver: str, position: int, after: int) -> None:
    """Past what lies behind `after`, up to `position`; the caller commits, fenced."""
    if conn.execute(_PASS, (position, receiver, after)).rowcount != 1:
        why = "it is no longer where it was read from: somebody else routes its events"
        raise Retryable(f"ingest of receiver {receiver}", why, "read it again from where it stands")
    conn.execute(_FORGET, (receiver, after, position))
