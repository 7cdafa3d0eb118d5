"""What people and machines see of a site's queues: read only, each look in the caller's transaction.

Everything comes as plain values, ready for JSON, the same for the command line, the API and the metrics.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import psycopg

from trunkline.core.errors import Invalid
from trunkline.db.operated import Shown, rows_of
from trunkline.queues.kinds import Kind, message_id
from trunkline.queues.sessionstatus import SessionStatus

SEND_LOG = "LRQ_Send_LogEntries"
MOST_NAMED = 20
_SESSION = tuple(field.name for field in fields(SessionStatus))

_LOG = """
SELECT log_id::text, coalesce((SELECT max(last_seq) FROM queues.stamp), 0) AS head, lowest, slot,
       (SELECT sum(pg_total_relation_size(inhrelid))::bigint FROM pg_inherits
         WHERE inhparent = 'queues.send_log'::regclass) AS bytes
  FROM queues.stamper
"""
_SENDING = """
SELECT coalesce(a.destination, n.destination) AS destination, coalesce(a.client, n.client) AS client,
       coalesce(a.seq, 0) AS acknowledged, n.client IS NOT NULL AS needs_snapshot, coalesce(n.over_cap, false) AS over_cap
  FROM queues.acknowledged a FULL JOIN queues.needs_snapshot n ON (n.destination, n.client) = (a.destination, a.client)
 ORDER BY destination, client
"""
_RECEIVING = """
SELECT q.name, q.client, q.remote, q.head, q.tail, q.head - q.tail AS waiting,
       q.received_bytes - q.passed_bytes AS waiting_bytes, coalesce(s.state, 'none') AS session, coalesce(s.seq, 0) AS seq
  FROM queues.queue q LEFT JOIN queues.session s ON (s.origin, s.client) = (q.remote, q.client)
 ORDER BY q.client, q.remote
"""
_CONSUMERS = """
SELECT c.client, c.name, c.detached_at IS NOT NULL AS detached,
       extract(epoch FROM now() - c.seen_at)::float8 AS idle_seconds,
       q.name AS queue, coalesce(d.position, 0) AS position, q.head - coalesce(d.position, 0) AS behind,
       coalesce(d.tries, 0) AS tries
  FROM queues.consumer c
  LEFT JOIN queues.queue q ON q.client = c.client
  LEFT JOIN queues.consumed d ON (d.client, d.consumer, d.queue) = (c.client, c.name, q.id)
 ORDER BY c.client, c.name, q.name
"""
_PROVIDERS = """
SELECT client, owner, extract(epoch FROM now() - seen_at)::float8 AS idle_seconds FROM queues.provider ORDER BY client
"""
_REQUESTS = """
SELECT id::text, client, destinations, reason, forced, state, base, chunks, records, bytes, progress,
       extract(epoch FROM now() - created_at)::float8 AS age_seconds
  FROM queues.request WHERE state IN ('wanted', 'ready', 'providing', 'complete') ORDER BY created_at, id
"""
_DEAD_LETTERS = """
SELECT client, consumer, count(*) AS letters FROM queues.dead_letter GROUP BY client, consumer ORDER BY client, consumer
"""
_STATUS = """
SELECT role, remote, client, status, extract(epoch FROM now() - updated_at)::float8 AS age_seconds
  FROM queues.status ORDER BY role, remote, client
"""
# Looked for only where something is unacknowledged, so that it ends at the first round that brought some of it.
_OLDEST = """
SELECT extract(epoch FROM now() - stamped_at)::float8 AS seconds FROM queues.stamp
 WHERE last_seq > %(after)s AND EXISTS (
       SELECT FROM unnest(sets, set_clients) AS b(set, client) JOIN queues.destination_set s ON s.id = b.set
        WHERE b.client = %(client)s AND (%(destination)s = ANY (s.sites) OR '*' = ANY (s.sites)))
 ORDER BY last_seq LIMIT 1
"""
_RECEIVED = """
SELECT r.position, r.type, r.seq, r.index, r.request::text, q.client, q.remote, r.headers,
       octet_length(r.payload) AS bytes, substring(r.payload FOR %(shown)s) AS payload
  FROM queues.receive r JOIN queues.queue q ON q.id = r.queue
 WHERE q.name = %(name)s AND r.position > %(after)s ORDER BY r.position LIMIT %(most)s
"""
_SENT = """
SELECT e.seq, e.client, coalesce(e.destinations, s.sites) AS destinations, e.headers,
       octet_length(e.payload) AS bytes, substring(e.payload FOR %(shown)s) AS payload
  FROM (SELECT l.*, t.first_seq - 1 + row_number() OVER (PARTITION BY t.first_seq ORDER BY x.nth, l.id, l.nth) AS seq
          FROM (SELECT first_seq, xids FROM queues.stamp WHERE last_seq > %(after)s ORDER BY first_seq LIMIT %(most)s) t,
               unnest(t.xids) WITH ORDINALITY AS x(xid, nth)
          JOIN queues.sent_message l ON l.xid = x.xid) e
  LEFT JOIN queues.destination_set s ON s.id = e.destination_set
 WHERE e.seq > %(after)s ORDER BY e.seq LIMIT %(most)s
"""


def listing(conn: psycopg.Connection[Any], most_entries: int, most_bytes: int) -> Shown:
    """The log and every queue; a receive queue that has so much takes no more."""
    consumers = rows_of(conn, _CONSUMERS)
    receiving = [
        row | {"full": row["waiting"] >= most_entries or row["waiting_bytes"] >= most_bytes}
        for row in rows_of(conn, _RECEIVING)
    ]
    return {
        "log": rows_of(conn, _LOG)[0] | {"name": SEND_LOG},
        "sending": rows_of(conn, _SENDING),
        "receiving": [row | {"consumers": _readers_of(row["name"], consumers)} for row in receiving],
        "consumers": _each_once(consumers),
        "providers": rows_of(conn, _PROVIDERS),
        "requests": rows_of(conn, _REQUESTS),
        "dead_letters": rows_of(conn, _DEAD_LETTERS),
    }


def _readers_of(queue: str, consumers: Sequence[Shown]) -> list[Shown]:
    keys = ("name", "detached", "position", "behind", "tries")
    return [{key: row[key] for key in keys} for row in consumers if row["queue"] == queue]


def _each_once(consumers: Sequence[Shown]) -> list[Shown]:
    keys = ("client", "name", "detached", "idle_seconds")
    return list({(row["client"], row["name"]): {key: row[key] for key in keys} for row in consumers}.values())


def sessions(conn: psycopg.Connection[Any]) -> list[Shown]:
    """As the leader last wrote them, with the age of that and of the oldest entry that is not acknowledged."""
    return [
        {key: row["status"][key] for key in _SESSION}
        | {"age_seconds": row["age_seconds"], "unacknowledged_seconds": _unacknowledged(conn, row)}
        for row in rows_of(conn, _STATUS)
    ]


def _unacknowledged(conn: psycopg.Connection[Any], row: Shown) -> float | None:
    status: Mapping[str, Any] = row["status"]
    if row["role"] != "source" or not status["remaining"]:
        return None
    asked = {"after": status["acknowledged"] or 0, "client": row["client"], "destination": row["remote"]}
    found = rows_of(conn, _OLDEST, asked)
    return float(found[0]["seconds"]) if found else None


def entries(conn: psycopg.Connection[Any], name: str, after: int | None, most: int, shown: int) -> Shown:
    """Of a receive queue from what nobody has passed yet, of the send log the last ones; or after a position.

    `shown`: so many bytes of each payload.
    """
    beginning = _beginning(conn, name, most)
    first = beginning if after is None else after
    asked = {"name": name, "after": first, "most": most, "shown": shown}
    if name == SEND_LOG:
        return {"name": name, "after": first, "entries": [_sent(row) for row in rows_of(conn, _SENT, asked)]}
    return {"name": name, "after": first, "entries": [_received(row) for row in rows_of(conn, _RECEIVED, asked)]}


def _beginning(conn: psycopg.Connection[Any], name: str, most: int) -> int:
    if name == SEND_LOG:
        return max(0, int(rows_of(conn, _LOG)[0]["head"]) - most)
    known: dict[str, int] = dict(conn.execute("SELECT name, tail FROM queues.queue").fetchall())
    if name not in known:
        raise NoSuchQueue(name, [SEND_LOG, *sorted(known)])
    return known[name]


class NoSuchQueue(Invalid):
    def __init__(self, name: str, known: Sequence[str]) -> None:
        more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
        named = ", ".join(known[:MOST_NAMED]) + more if known else "none yet: nothing has arrived here"
        super().__init__(f"queue {name!r}", "there is none of this name", f"name one of: {named}")


def _received(row: Shown) -> Shown:
    identity = message_id(row["remote"], row["seq"], row["index"], row["request"])
    about = {key: row[key] for key in ("position", "client", "seq", "index", "request")}
    return about | {"kind": Kind(row["type"]).name.lower(), "message_id": identity, "destinations": None} | _content(row)


def _sent(row: Shown) -> Shown:
    about = {"position": row["seq"], "client": row["client"], "seq": row["seq"], "index": 0, "request": None}
    kind = {"kind": Kind.LOG_ENTRY.name.lower(), "message_id": None, "destinations": row["destinations"]}
    return about | kind | _content(row)


def _content(row: Shown) -> Shown:
    return {"headers": row["headers"] or {}} | shown_payload(bytes(row["payload"]), row["bytes"])


def shown_payload(payload: bytes, size: int) -> Shown:
    """The beginning of a payload of so many bytes, or all of it. A character that was cut in two does not make it binary."""
    cut = len(payload) < size
    return {"bytes": size, "cut": cut} | _readable(payload, cut)


def _readable(payload: bytes, cut: bool) -> Shown:
    for end in range(len(payload), len(payload) - (4 if cut else 1), -1):
        try:
            return {"text": payload[: max(end, 0)].decode(), "base64": None}
        except UnicodeDecodeError:
            continue
    return {"text": None, "base64": base64.b64encode(payload).decode()}
