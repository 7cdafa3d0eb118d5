"""Where a message is between two sites: in the send log of one, with each destination, and in receive queues of the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, LiteralString

import msgspec
import psycopg

from trunkline.core.ids import ALL_SITES
from trunkline.db.operated import Shown, rows_of
from trunkline.db.traced import State, Step, Wanted, matches
from trunkline.queues.sessionstatus import queue_name

LOOKED_AT = 50_000
"""The newest entries of the log and of each receive queue."""
TABLES = ("queues.send_log", "queues.receive")

_SENT: LiteralString = f"""
SELECT e.seq, extract(epoch FROM e.stamped_at)::float8 AS at, e.client, e.headers, coalesce(e.destinations, s.sites) AS sites
  FROM (SELECT l.client, l.headers, l.destinations, l.destination_set, t.stamped_at,
               t.first_seq - 1 + row_number() OVER (PARTITION BY t.first_seq ORDER BY x.nth, l.id, l.nth) AS seq
          FROM (SELECT first_seq, xids, stamped_at FROM queues.stamp
                 WHERE last_seq > (SELECT max(last_seq) FROM queues.stamp) - %(most)s) t,
               unnest(t.xids) WITH ORDINALITY AS x(xid, nth)
          JOIN queues.sent_message l ON l.xid = x.xid) e
  LEFT JOIN queues.destination_set s ON s.id = e.destination_set
 WHERE {matches("e.headers")} ORDER BY e.seq DESC LIMIT %(found)s
"""
_UNSTAMPED: LiteralString = f"""
SELECT l.client, l.headers FROM (SELECT xid FROM queues.ticket ORDER BY ticket DESC LIMIT %(most)s) t
  JOIN queues.send_log l ON l.xid = t.xid WHERE {matches("l.headers")} LIMIT %(found)s
"""
_LOG: LiteralString = "SELECT coalesce((SELECT max(last_seq) FROM queues.stamp), 0) AS head, lowest FROM queues.stamper"
_SESSIONS: LiteralString = """
SELECT coalesce(a.destination, s.remote, n.destination) AS site, coalesce(a.seq, 0) AS acknowledged,
       extract(epoch FROM a.updated_at)::float8 AS at, s.status ->> 'stall' AS stall, (s.status ->> 'sent')::bigint AS sent,
       n.destination IS NOT NULL AS needs_snapshot
  FROM (SELECT * FROM queues.acknowledged WHERE client = %(client)s) a
  FULL JOIN (SELECT * FROM queues.status WHERE role = 'source' AND client = %(client)s) s ON s.remote = a.destination
  FULL JOIN (SELECT * FROM queues.needs_snapshot WHERE client = %(client)s) n
       ON n.destination = coalesce(a.destination, s.remote)
 ORDER BY 1
"""
_RECEIVED: LiteralString = f"""
SELECT q.id, q.name, q.client, q.remote, q.head, q.tail, r.position, r.seq, r.headers
  FROM queues.queue q JOIN queues.receive r ON r.queue = q.id AND r.position > q.head - %(most)s
 WHERE {matches("r.headers")} ORDER BY q.name, r.position DESC LIMIT %(found)s
"""
_CONSUMERS: LiteralString = """
SELECT c.name, coalesce(d.position, 0) AS position, coalesce(d.tries, 0) AS tries, c.detached_at IS NOT NULL AS detached,
       extract(epoch FROM d.updated_at)::float8 AS at
  FROM queues.consumer c LEFT JOIN queues.consumed d ON (d.client, d.consumer, d.queue) = (c.client, c.name, %(queue)s)
 WHERE c.client = %(client)s ORDER BY c.name
"""


class Arrival(msgspec.Struct, frozen=True):
    """A message in a receive queue."""

    queue: str
    position: int
    headers: dict[str, str]


def sent(conn: psycopg.Connection[Any], wanted: Wanted) -> Iterator[Step]:
    asked = wanted.args(most=LOOKED_AT)
    for row in rows_of(conn, _UNSTAMPED, asked):
        why = "it is committed, and not numbered yet: the node that leads the site does that"
        yield Step("send log", State.WAITS, why, None, {"client": row["client"], "headers": row["headers"]})
    for row in rows_of(conn, _SENT, asked):
        details = {key: row[key] for key in ("seq", "client", "headers")} | {"destinations": row["sites"]}
        why = f"number {row['seq']} of the log, client {row['client']}, for {', '.join(row['sites'])}"
        yield Step("send log", State.DONE, why, row["at"], details)
        yield from _destinations(conn, row)


def older(conn: psycopg.Connection[Any]) -> str:
    """What a record that is not in the log may be, in words; empty: all of the log was looked at."""
    log = rows_of(conn, _LOG)[0]
    first = max(log["lowest"], log["head"] - LOOKED_AT)
    return f"only numbers {first + 1} to {log['head']} of the send log were looked at" if first > 0 else ""


def _destinations(conn: psycopg.Connection[Any], entry: Shown) -> Iterator[Step]:
    known = {row["site"]: row for row in rows_of(conn, _SESSIONS, {"client": entry["client"]})}
    sites = known.keys() if ALL_SITES in entry["sites"] else entry["sites"]
    for site in sorted(sites):
        yield _destination(site, entry, known.get(site))


def _destination(site: str, entry: Shown, session: Shown | None) -> Step:
    place, details = f"link to {site}", {"site": site, "client": entry["client"], "seq": entry["seq"]}
    if session is None:
        return Step(place, State.WAITS, f"there is no session of {entry['client']} with {site} yet", None, details)
    if session["acknowledged"] >= entry["seq"]:
        exact = session["at"] if session["acknowledged"] == entry["seq"] else None
        return Step(place, State.DONE, f"{site} has acknowledged up to {session['acknowledged']}", exact, details)
    return Step(place, State.WAITS, _unacknowledged(site, entry, session), None, details)


def _unacknowledged(site: str, entry: Shown, session: Shown) -> str:
    if session["needs_snapshot"]:
        return f"{site} has fallen too far behind: a snapshot brings it up, and not this entry"
    if session["stall"]:
        return f"{site} has acknowledged up to {session['acknowledged']}: {session['stall']}"
    if (session["sent"] or 0) >= entry["seq"]:
        return f"it is sent; {site} has acknowledged up to {session['acknowledged']}"
    return f"it is not sent yet; {site} has acknowledged up to {session['acknowledged']}"


def received(conn: psycopg.Connection[Any], wanted: Wanted) -> tuple[list[Step], list[Arrival]]:
    steps: list[Step] = []
    arrivals: list[Arrival] = []
    for row in rows_of(conn, _RECEIVED, wanted.args(most=LOOKED_AT)):
        details = {"queue": row["name"], "position": row["position"], "from": row["remote"], "seq": row["seq"]}
        steps.append(Step("receive queue", State.DONE, f"position {row['position']} of {row['name']}", None, details))
        steps += _consumers(conn, row)
        arrivals.append(Arrival(row["name"], row["position"], row["headers"] or {}))
    return steps, arrivals


def passed(conn: psycopg.Connection[Any], origin: str, entries: Sequence[Step]) -> Iterator[Step]:
    """Entries that `origin` sent and that were received here, but are kept no longer: all consumers have passed them."""
    seqs = {one.details["client"]: one.details["seq"] for one in entries if "seq" in one.details}
    for client, seq in seqs.items():
        query = "SELECT seq FROM queues.session WHERE (origin, client) = (%(origin)s, %(client)s) AND state = 'log'"
        for row in rows_of(conn, query, {"origin": origin, "client": client}):
            if row["seq"] >= seq:
                why = f"{queue_name(client, origin)} has received up to {row['seq']}; this entry is kept there no longer"
                yield Step("receive queue", State.DONE, why)


def _consumers(conn: psycopg.Connection[Any], entry: Shown) -> Iterator[Step]:
    for row in rows_of(conn, _CONSUMERS, {"queue": entry["id"], "client": entry["client"]}):
        place, details = f"consumer {row['name']}", {"consumer": row["name"], "position": row["position"]}
        if row["position"] >= entry["position"]:
            exact = row["at"] if row["position"] == entry["position"] else None
            yield Step(place, State.DONE, f"it is past position {row['position']}", exact, details)
        else:
            yield Step(place, State.WAITS, _behind(row, entry), None, details)


def _behind(row: Shown, entry: Shown) -> str:
    if row["detached"]:
        return "it was idle for too long and is detached: nothing is kept for it"
    next_one = row["position"] + 1 == entry["position"]
    tries = f", and failed {row['tries']} times at the next one{': this one' if next_one else ''}" if row["tries"] else ""
    return f"it stands at {row['position']}, {entry['position'] - row['position']} before this one{tries}"
