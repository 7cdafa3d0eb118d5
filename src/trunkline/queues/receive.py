"""Where entries for this site become durable: rows of the receive queues, and the positions, in one transaction.

Invariants:
  P1  an entry and the position behind it commit together; a repeated call adds nothing
  P2  positions in a queue are dense and in order of arrival, because the queue's row is locked while they are given
  P3  positions are of one log; entries of another are refused until `reset`
  P4  every write ends with the fence (H01)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

from trunkline.core.errors import LocalProtocolError
from trunkline.core.ids import START, Position
from trunkline.core.jsoncodec import dumps
from trunkline.db.lease import Grant, commit_fenced
from trunkline.trunk.log import LOST, NOTHING_APPLIED, Applied, Entry

_ORIGIN = ""  # no client has this name: after a reset, the row that keeps the new log's id

_SESSIONS = "SELECT client, log_id, seq, mark FROM queues.session WHERE origin = %s ORDER BY client"
_ADVANCE = """
UPDATE queues.queue q SET head = q.head + n.entries
  FROM unnest(%s::text[], %s::bigint[]) AS n(client, entries)
 WHERE q.client = n.client AND q.remote = %s
RETURNING q.client, q.id, q.head
"""
_CREATE = """
INSERT INTO queues.queue (client, remote)
SELECT client, %(remote)s FROM unnest(%(clients)s::text[]) AS c(client)
 WHERE NOT EXISTS (SELECT FROM queues.queue q WHERE q.client = c.client AND q.remote = %(remote)s)
ON CONFLICT DO NOTHING
"""
_POSITIONS = """
INSERT INTO queues.session AS s (origin, client, log_id, seq, mark)
SELECT %(origin)s, client, %(log_id)s, %(seq)s, %(mark)s FROM unnest(%(clients)s::text[]) AS c(client)
ON CONFLICT (origin, client) DO UPDATE
   SET log_id = excluded.log_id, seq = excluded.seq, mark = excluded.mark, updated_at = now()
 WHERE s.seq <= excluded.seq
"""
_BEGIN_ANEW = "INSERT INTO queues.session (origin, client, log_id, seq, mark) VALUES (%s, %s, %s, 0, 0)"
_COPY = "COPY queues.receive (queue, position, seq, headers, payload) FROM STDIN (FORMAT BINARY)"
_COLUMNS = ("int4", "int8", "int8", "jsonb", "bytea")
_NO_HEADERS = Jsonb({}, dumps=dumps)


class PostgresSink:
    """One call at a time, from any thread."""

    def __init__(self, pool: ConnectionPool[psycopg.Connection[Any]], grant: Grant) -> None:
        self._pool, self._grant = pool, grant

    def applied(self, origin: str) -> Applied:
        with self._pool.connection() as conn:
            return _applied(conn, origin)

    def append(self, origin: str, log_id: str, entries: Sequence[Entry], upto: Position, clients: Sequence[str]) -> None:
        strangers = {e.client for e in entries} - set(clients)
        if strangers:
            why = f"entries of {', '.join(sorted(strangers))} come without a position"
            raise LocalProtocolError(f"log of {origin}", why, "name every entry's client in `clients`")
        with self._pool.connection() as conn:
            conn.execute("SET LOCAL synchronous_commit = on")
            applied = _applied(conn, origin, lock=True)
            _check_log(origin, applied, log_id)
            fresh = [e for e in entries if e.seq > applied.clients.get(e.client, START).seq]
            _advance(conn, origin, log_id, fresh, upto, clients)
            commit_fenced(conn, self._grant)

    def lost(self, origin: str, log_id: str, upto: Position, clients: Sequence[str]) -> None:
        with self._pool.connection() as conn:
            conn.execute("SET LOCAL synchronous_commit = on")
            applied = _applied(conn, origin, lock=True)
            _check_log(origin, applied, log_id)
            has = {c: applied.clients.get(c, START).seq for c in clients}
            behind = {c: seq for c, seq in has.items() if seq < upto.seq}
            records = [Entry(upto.seq, c, (), {LOST: f"{seq + 1}-{upto.seq}"}, b"") for c, seq in behind.items()]
            _advance(conn, origin, log_id, records, upto, list(behind))
            commit_fenced(conn, self._grant)

    def reset(self, origin: str, log_id: str) -> None:
        with self._pool.connection() as conn:
            conn.execute("SET LOCAL synchronous_commit = on")
            conn.execute("DELETE FROM queues.session WHERE origin = %s", (origin,))
            conn.execute(_BEGIN_ANEW, (origin, _ORIGIN, log_id))
            commit_fenced(conn, self._grant)


def _applied(conn: psycopg.Connection[Any], origin: str, lock: bool = False) -> Applied:
    rows = conn.execute(f"{_SESSIONS} FOR UPDATE" if lock else _SESSIONS, (origin,)).fetchall()
    if not rows:
        return NOTHING_APPLIED
    return Applied(rows[0][1], {client: Position(seq, mark) for client, _, seq, mark in rows if client != _ORIGIN})


def _check_log(origin: str, applied: Applied, log_id: str) -> None:
    if applied.log_id not in ("", log_id):
        why = f"positions are of log {applied.log_id}, entries of {log_id}"
        raise LocalProtocolError(f"log of {origin}", why, "reset the origin first")


def _advance(
    conn: psycopg.Connection[Any], origin: str, log_id: str, fresh: Sequence[Entry], upto: Position, clients: Sequence[str]
) -> None:
    if fresh:
        _store(conn, origin, fresh)
    asked = {"origin": origin, "log_id": log_id, "seq": upto.seq, "mark": upto.mark}
    conn.execute(_POSITIONS, {**asked, "clients": sorted(set(clients))})


def _store(conn: psycopg.Connection[Any], origin: str, fresh: Sequence[Entry]) -> None:
    counts = Counter(e.client for e in fresh)
    clients = sorted(counts)
    conn.execute(_CREATE, {"clients": clients, "remote": origin})
    advanced = conn.execute(_ADVANCE, (clients, [counts[c] for c in clients], origin)).fetchall()
    queue = {client: queue for client, queue, _ in advanced}
    last = {client: head - counts[client] for client, _, head in advanced}
    with conn.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.set_types(_COLUMNS)
        for e in fresh:
            last[e.client] += 1
            headers = Jsonb(e.headers, dumps=dumps) if e.headers else _NO_HEADERS
            copy.write_row((queue[e.client], last[e.client], e.seq, headers, e.payload))
