"""Snapshot requests at their source: rows that outlive every process that works on them.

All functions work in the caller's transaction, which the leader ends with its fence. Those that change which requests are
open take the client's lock first, so that two who ask in one instant do not make two of what should be one.

R1  At most one open request is for a given client and destination: who asks anew joins the one that is `wanted`, or leaves
    the older one for a new one. The older one's data no longer counts for it, nor does its end marker.
R2  A request has one base for ever. Whatever must begin anew (its snapshot is gone, its provider died) ends as failed, and
    another request takes its place: chunks of two bases can never be taken for one snapshot.
R3  The data of a request is stored once, whatever the number of its destinations, and deleted when none needs it any more.
R4  A request that nobody works on does not stay: it would hold up trimming for ever (H18). Of one that was forced the wish
    stays, without a base, until one of its sites is reached.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from trunkline.core.errors import Invalid
from trunkline.core.ids import ALL_SITES, Position, check_name
from trunkline.queues.sessionrows import RequestRow
from trunkline.queues.snapshots import OPEN, State, StoredChunk

# A provider that has not been seen for so long is not there: nothing is exported for it.
PROVIDER_SECONDS = 30.0
AWAY = "nobody fetched it, and somebody had forced it"
"""The reason of a request that is exported only when one of its sites is reached again."""

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('trunkline.request ' || %s, 0))"
_JOIN = """
UPDATE queues.request
   SET destinations = ARRAY(SELECT DISTINCT unnest(destinations || %(destinations)s::text[]) ORDER BY 1),
       forced = forced OR %(forced)s, reason = CASE WHEN %(forced)s THEN %(reason)s ELSE reason END, updated_at = now()
 WHERE id = (SELECT id FROM queues.request WHERE client = %(client)s AND state = 'wanted' ORDER BY created_at, id LIMIT 1)
   AND state = 'wanted'  -- also where it was waited for, and has become ready meanwhile
RETURNING id
"""
_INSERT = """
INSERT INTO queues.request (client, destinations, reason, forced)
VALUES (%(client)s, ARRAY(SELECT DISTINCT unnest(%(destinations)s::text[]) ORDER BY 1), %(reason)s, %(forced)s)
RETURNING id
"""
_LEAVE = """
UPDATE queues.request
   SET destinations = ARRAY(SELECT d FROM unnest(destinations) AS d WHERE d <> ALL(%(destinations)s)), updated_at = now()
 WHERE client = %(client)s AND state = ANY(%(open)s) AND id IS DISTINCT FROM %(but)s
   AND destinations && %(destinations)s::text[]
RETURNING id
"""
_OPEN_ROWS = """
SELECT id::text, client,
       ARRAY(SELECT name FROM unnest(destinations) WITH ORDINALITY AS n(name, nth)
              WHERE NOT EXISTS (SELECT FROM queues.delivery d WHERE d.request = r.id AND d.destination = name) ORDER BY nth),
       state, forced, coalesce(base, 0), coalesce(base_mark, 0), chunks, reason, reapplied_to
  FROM queues.request r WHERE state = ANY(%s) ORDER BY created_at, id
"""
_EXPORTABLE = """
SELECT r.id FROM queues.request r JOIN queues.provider p USING (client)
 WHERE r.state = 'wanted' AND p.seen_at > now() - make_interval(secs => %(seconds)s)
   AND (r.reason <> %(away)s OR r.destinations && %(reached)s::text[])
   AND NOT EXISTS (SELECT FROM queues.request o WHERE o.client = r.client AND o.state IN ('ready', 'providing'))
 ORDER BY r.created_at, r.id
"""
_CHUNK = """
SELECT r.state = 'complete' AND r.chunks = %(chunk)s, s.body
  FROM queues.request r LEFT JOIN queues.send_snapshot s ON s.request = r.id AND s.chunk = %(chunk)s
 WHERE r.id = %(request)s AND r.state = ANY(%(open)s)
"""
# Somebody reads it, so it is not forgotten; once a minute, to write little.
_TOUCH = "UPDATE queues.request SET updated_at = now() WHERE id = %s AND updated_at < now() - interval '1 minute'"
_DELIVER = """
INSERT INTO queues.delivery (request, destination)
SELECT id, %(destination)s FROM queues.request
 WHERE id = %(request)s AND state = 'complete' AND %(destination)s = ANY(destinations)
ON CONFLICT DO NOTHING
"""
# Nobody is left who needs it: all were served (done), or all have left (superseded).
_SETTLE = """
WITH over AS (
    UPDATE queues.request r
       SET state = CASE WHEN EXISTS (SELECT FROM queues.delivery d WHERE d.request = r.id) THEN 'done' ELSE 'superseded' END,
           updated_at = now()
     WHERE id = ANY(%(ids)s) AND state = ANY(%(open)s)
       AND NOT EXISTS (SELECT FROM unnest(destinations) AS name
                        WHERE NOT EXISTS (SELECT FROM queues.delivery d WHERE d.request = r.id AND d.destination = name))
    RETURNING id
)
DELETE FROM queues.send_snapshot WHERE request IN (SELECT id FROM over)
"""
_END = """
WITH over AS (
    UPDATE queues.request SET state = %(state)s, error = %(error)s, updated_at = now()
     WHERE id = %(request)s AND state = ANY(%(open)s) RETURNING id, client, destinations, reason, forced
), gone AS (
    DELETE FROM queues.send_snapshot WHERE request IN (SELECT id FROM over)
)
SELECT client, ARRAY(SELECT name FROM unnest(destinations) AS name
                      WHERE NOT EXISTS (SELECT FROM queues.delivery d WHERE d.request = over.id AND d.destination = name)),
       reason, forced
  FROM over
"""
# A provider holds the lock of what it provides, on a connection of its own: it ends with the process. After one that died the
# next follows at once, after more of them in a row 2, 4, 8 … 60 s after its last word, for each costs a snapshot.
_ABANDONED = """
SELECT id, state = 'complete', forced, CASE state
       WHEN 'ready' THEN 'nobody took it up while its snapshot lasted'
       WHEN 'complete' THEN 'no destination fetched it'
       ELSE coalesce(error, 'its provider ' || provider || ' is gone or does nothing') END
  FROM queues.request r
 WHERE state = 'ready' AND (incarnation <> %(incarnation)s OR updated_at < now() - make_interval(secs => %(ready)s))
    OR state = 'providing' AND (updated_at < now() - make_interval(secs => %(providing)s)
       OR updated_at < now() - make_interval(secs => (
              SELECT CASE count(*) WHEN 0 THEN 0 ELSE least(60, 2 ^ least(count(*), 6)) END FROM queues.request f
               WHERE f.client = r.client AND f.state = 'failed' AND f.provider IS NOT NULL
                 AND f.updated_at > now() - interval '1 hour' AND f.updated_at > coalesce((
                     SELECT max(s.updated_at) FROM queues.request s
                      WHERE s.client = r.client AND s.state IN ('complete', 'done')), '-infinity')))
          AND pg_try_advisory_xact_lock(hashtextextended('trunkline.providing ' || id, 0)))
    OR state = 'complete' AND updated_at < now() - make_interval(secs => %(complete)s)
 ORDER BY client
"""
_FORGET = """
WITH old AS (
    DELETE FROM queues.request WHERE state <> ALL(%s) AND updated_at < now() - make_interval(secs => %s) RETURNING id
)
DELETE FROM queues.delivery WHERE request IN (SELECT id FROM old)
"""


@dataclass(frozen=True)
class Patience:
    """Seconds: for a provider to take up a request, for its next chunk, for a destination to fetch one that is complete;
    and how long a request that is over stays to be seen."""

    ready: float = 60.0
    providing: float = 600.0
    complete: float = 86_400.0
    over: float = 30 * 86_400.0


PATIENCE = Patience()


def ask(conn: psycopg.Connection[Any], client: str, destinations: Collection[str], reason: str, forced: bool = False) -> UUID:
    """The request that will serve them: one that is wanted already and joined, or a new one."""
    check_name("client", client)
    if not destinations or ALL_SITES in destinations:
        raise Invalid(f"snapshot of client {client}", "it is not said for which sites", "name each of them")
    conn.execute(_LOCK, (client,))
    asked = {"client": client, "destinations": list(destinations), "reason": reason, "forced": forced}
    row = conn.execute(_JOIN, asked).fetchone() or conn.execute(_INSERT, asked).fetchone()
    assert row is not None
    request: UUID = row[0]
    left = conn.execute(_LEAVE, {**asked, "but": request, "open": list(OPEN)}).fetchall()
    _settle(conn, (id_ for (id_,) in left))
    return request


def open_requests(conn: psycopg.Connection[Any]) -> list[RequestRow]:
    """Oldest first."""
    rows = conn.execute(_OPEN_ROWS, (list(OPEN),)).fetchall()
    return [
        RequestRow(id_, client, tuple(waiting), state, forced, Position(base, mark), chunks, reason, reapplied)
        for id_, client, waiting, state, forced, base, mark, chunks, reason, reapplied in rows
    ]


def providers(conn: psycopg.Connection[Any]) -> dict[str, float]:
    """Clients that have a provider, and the seconds since it was last seen."""
    return dict(conn.execute("SELECT client, extract(epoch FROM now() - seen_at)::float8 FROM queues.provider").fetchall())


def wanted_for_export(conn: psycopg.Connection[Any], reached: Iterable[str] = ()) -> list[UUID]:
    """Requests whose provider is there and has no other to do: for these the stamper exports its snapshot."""
    asked = {"seconds": PROVIDER_SECONDS, "away": AWAY, "reached": list(reached)}
    return [id_ for (id_,) in conn.execute(_EXPORTABLE, asked).fetchall()]


def read_chunk(conn: psycopg.Connection[Any], request: UUID, chunk: int) -> StoredChunk:
    asked = {"request": request, "chunk": chunk, "open": list(OPEN)}
    with conn.cursor(binary=True) as cursor:
        row = cursor.execute(_CHUNK, asked).fetchone()
    if row is None:
        return StoredChunk(None)
    conn.execute(_TOUCH, (request,))
    return StoredChunk(row[1], bool(row[0]))


def delivered(conn: psycopg.Connection[Any], request: UUID, destination: str) -> None:
    """The destination has all of it; one that has left the request is not heard."""
    _lock(conn, request)
    conn.execute(_DELIVER, {"request": request, "destination": destination})
    _settle(conn, [request])


def cancel(conn: psycopg.Connection[Any], request: UUID, why: str, state: State = State.CANCELLED) -> None:
    """Ends it for all its destinations; its provider hears of it at its next word."""
    _lock(conn, request)
    _end(conn, request, state, why)


def again(conn: psycopg.Connection[Any], request: UUID, why: str, reason: str | None = None) -> UUID | None:
    """Ends it, and asks anew for those whom it has not served; None if it was over already, or had served all."""
    _lock(conn, request)
    row = _end(conn, request, State.FAILED, why)
    if row is None or not row[1]:
        return None
    client, destinations, its_reason, forced = row
    return ask(conn, client, destinations, reason or its_reason, forced)


def expire(conn: psycopg.Connection[Any], incarnation: int, patience: Patience = PATIENCE) -> list[UUID]:
    """Replaces requests whose snapshot went with another leader or whose provider is gone; ends those that nobody fetches,
    and forgets what is over. Returns those that ended. A site that was to get a forced one gets it when it returns."""
    abandoned = conn.execute(_ABANDONED, {**vars(patience), "incarnation": incarnation}).fetchall()
    for request, is_complete, forced, why in abandoned:
        if is_complete and not forced:
            cancel(conn, request, why, State.FAILED)
        else:
            again(conn, request, why, AWAY if is_complete else None)
    conn.execute(_FORGET, (list(OPEN), patience.over))
    return [row[0] for row in abandoned]


def _lock(conn: psycopg.Connection[Any], request: UUID) -> None:
    row = conn.execute("SELECT client FROM queues.request WHERE id = %s", (request,)).fetchone()
    if row is not None:
        conn.execute(_LOCK, row)


def _end(conn: psycopg.Connection[Any], request: UUID, state: State, why: str) -> tuple[str, list[str], str, bool] | None:
    return conn.execute(_END, {"request": request, "state": state, "error": why, "open": list(OPEN)}).fetchone()


def _settle(conn: psycopg.Connection[Any], requests: Iterable[UUID]) -> None:
    conn.execute(_SETTLE, {"ids": list(requests), "open": list(OPEN)})
