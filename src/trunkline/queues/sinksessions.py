"""This site's sessions as a destination, in their table: one per (origin, client).

    new        nothing is taken until the origin has said how to go on; `reason` is why
    snapshot   START is in the queue, chunks follow; log entries are held
    log        entries are taken after `position`

All of an origin's sessions are of one log. Each function here is one step, in the caller's transaction and under the lock of
the session's row; a step that was made before, or that belongs to another request than the present one, changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from trunkline.core.ids import START, Position
from trunkline.queues.arrivals import Level, Record, create_queues, store_records
from trunkline.queues.kinds import Kind
from trunkline.queues.messages import Records
from trunkline.queues.sessionrows import SessionRow
from trunkline.trunk.log import LOST

FIRST, GAP = "first", "gap"
REQUEST_HEADER, FORCED_HEADER = "trunkline-request", "trunkline-forced"
REAPPLIED_HEADER = "trunkline-reapplied"
"""Of LAST: entries up to this seq may be in the snapshot already, and follow all the same."""
_ORIGIN = ""  # no client has this name: the row that keeps the log's id while there is no session


@dataclass(frozen=True)
class Stored:
    """A session, how many records its snapshot has brought so far, and how full its queue is."""

    row: SessionRow
    records: int
    level: Level

    def is_receiving(self, request: str) -> bool:
        return self.row.state == "snapshot" and self.row.request == request


@dataclass(frozen=True)
class OriginSessions:
    """What the table says of one origin."""

    log_id: str
    clients: dict[str, Stored]

    def is_of(self, log_id: str) -> bool:
        return self.log_id in ("", log_id)

    def untouched(self) -> bool:
        """No position of the old log: it may be exchanged for another without anything being lost."""
        return all(session.row.position == START for session in self.clients.values())


_ROWS = """
SELECT s.origin, s.client, s.log_id, s.seq, s.mark, s.state, s.reason, s.request::text, s.forced, s.base, s.base_mark, s.chunk,
       extract(epoch FROM s.completed_at)::float8, s.records,
       coalesce(q.head - q.tail, 0), coalesce(q.received_bytes - q.passed_bytes, 0)
  FROM queues.session s LEFT JOIN queues.queue q ON q.client = s.client AND q.remote = s.origin
"""
_ALL = f"{_ROWS} WHERE s.client <> '' ORDER BY s.origin, s.client"
_OF_ORIGIN = f"{_ROWS} WHERE s.origin = %s ORDER BY s.client"
_LOCKED = f"{_OF_ORIGIN} FOR NO KEY UPDATE OF s"
_BEGIN = """
INSERT INTO queues.session (origin, client, log_id, seq, mark, state, reason)
SELECT %(origin)s, client, %(log_id)s, 0, 0, 'new', %(reason)s FROM unnest(%(clients)s::text[]) AS c(client)
ON CONFLICT (origin, client) DO NOTHING
"""
_ANEW = """
UPDATE queues.session SET log_id = %(log_id)s, seq = 0, mark = 0, state = 'new', reason = 'reset', request = NULL,
       forced = false, base = NULL, base_mark = NULL, chunk = 0, records = 0, updated_at = now()
 WHERE origin = %(origin)s
"""
_GAP = """
UPDATE queues.session SET state = 'new', reason = 'gap', updated_at = now()
 WHERE origin = %(origin)s AND client = ANY (%(clients)s) AND state = 'log' AND seq < %(seq)s
"""
_POSITIONS = """
UPDATE queues.session SET seq = %(seq)s, mark = %(mark)s, updated_at = now()
 WHERE origin = %(origin)s AND client = ANY (%(clients)s) AND seq <= %(seq)s
"""
_USE_LOG = """
UPDATE queues.session SET state = 'log', reason = '', seq = %(seq)s, mark = %(mark)s, updated_at = now()
 WHERE origin = %(origin)s AND client = %(client)s
"""
_START = """
UPDATE queues.session SET state = 'snapshot', request = %(request)s, base = %(seq)s, base_mark = %(mark)s, forced = %(forced)s,
       chunk = 0, records = 0, started_at = now(), completed_at = NULL, updated_at = now()
 WHERE origin = %(origin)s AND client = %(client)s
"""
_CHUNK = """
UPDATE queues.session SET chunk = chunk + 1, records = records + %(records)s, updated_at = now()
 WHERE origin = %(origin)s AND client = %(client)s
"""
_COMPLETE = """
UPDATE queues.session SET state = 'log', reason = '', seq = base, mark = base_mark, completed_at = now(), updated_at = now()
 WHERE origin = %(origin)s AND client = %(client)s
"""


def _stored(values: Sequence[Any]) -> Stored:
    origin, client, log_id, seq, mark, state, reason, request, forced, base, base_mark, chunk, completed, *rest = values
    based = START if base is None else Position(base, base_mark)
    row = SessionRow(origin, client, log_id, Position(seq, mark), state, reason, request or "", forced, based, chunk, completed)
    records, entries, size = rest
    return Stored(row, records, Level(entries, size))


def all_sessions(conn: psycopg.Connection[Any]) -> list[Stored]:
    return [_stored(values) for values in conn.execute(_ALL).fetchall()]


def of_origin(conn: psycopg.Connection[Any], origin: str, lock: bool = False) -> OriginSessions:
    found = [_stored(values) for values in conn.execute(_LOCKED if lock else _OF_ORIGIN, (origin,)).fetchall()]
    return OriginSessions(found[0].row.log_id if found else "", {s.row.client: s for s in found if s.row.client != _ORIGIN})


def begin(conn: psycopg.Connection[Any], origin: str, log_id: str, clients: Sequence[str], reason: str = FIRST) -> None:
    conn.execute(_BEGIN, {"origin": origin, "log_id": log_id, "clients": sorted(clients), "reason": reason})


def begin_anew(conn: psycopg.Connection[Any], origin: str, log_id: str) -> None:
    """Of another log: every session is to be negotiated, and positions are forgotten."""
    begin(conn, origin, log_id, [_ORIGIN])
    conn.execute(_ANEW, {"origin": origin, "log_id": log_id})


def note_gap(conn: psycopg.Connection[Any], origin: str, log_id: str, upto: Position, clients: Sequence[str]) -> None:
    begin(conn, origin, log_id, clients, GAP)
    conn.execute(_GAP, {"origin": origin, "clients": sorted(clients), "seq": upto.seq})


def move(conn: psycopg.Connection[Any], origin: str, upto: Position, clients: Sequence[str]) -> None:
    conn.execute(_POSITIONS, {"origin": origin, "clients": sorted(clients), "seq": upto.seq, "mark": upto.mark})


def _locked(conn: psycopg.Connection[Any], origin: str, client: str, log_id: str) -> Stored | None:
    """The session, made if there was none; None when the origin's sessions are of another log."""
    known = of_origin(conn, origin, lock=True)
    if not known.is_of(log_id):
        if not known.untouched():
            return None
        begin_anew(conn, origin, log_id)
    begin(conn, origin, log_id, [client])
    create_queues(conn, origin, [client])
    return of_origin(conn, origin, lock=True).clients[client]


def use_log(
    conn: psycopg.Connection[Any], origin: str, client: str, log_id: str, at: Position, lost: tuple[int, int] | None
) -> bool:
    """Entries are taken after `at`; what was lost before it is on record in the queue (H20)."""
    session = _locked(conn, origin, client, log_id)
    if session is None:
        return False
    if session.row.state != "log":
        conn.execute(_USE_LOG, {"origin": origin, "client": client, "seq": at.seq, "mark": at.mark})
        if lost is not None:
            first, last = lost
            store_records(conn, origin, client, [Record(Kind.LOST, last, 0, None, {LOST: f"{first}-{last}"})])
    return True


def begin_snapshot(
    conn: psycopg.Connection[Any], origin: str, client: str, log_id: str, request: str, base: Position, forced: bool
) -> bool:
    """START, once per request; a request that is over does not begin again."""
    session = _locked(conn, origin, client, log_id)
    if session is None:
        return False
    if session.row.request == request:
        return session.row.state == "snapshot"
    asked = {"origin": origin, "client": client, "request": request, "forced": forced}
    conn.execute(_START, {**asked, "seq": base.seq, "mark": base.mark})
    store_records(conn, origin, client, [Record(Kind.START, base.seq, 0, UUID(request), _about(request, forced))])
    return True


def store_chunk(
    conn: psycopg.Connection[Any], origin: str, client: str, request: str, chunk: int, records: Records
) -> Level | None:
    """The next chunk of the present snapshot, or one that is there already; None when it is another one."""
    session = of_origin(conn, origin, lock=True).clients.get(client)
    if session is None or not session.is_receiving(request) or session.row.chunk < chunk:
        return None
    if session.row.chunk > chunk:
        return session.level
    conn.execute(_CHUNK, {"origin": origin, "client": client, "records": len(records)})
    rows = [
        Record(Kind.SNAPSHOT, session.row.base.seq, index, UUID(request), headers, payload)
        for index, (headers, payload) in enumerate(records, session.records + 1)
    ]
    return store_records(conn, origin, client, rows) if rows else session.level


def finish_snapshot(conn: psycopg.Connection[Any], origin: str, client: str, request: str, reapplied_to: int = 0) -> bool:
    """LAST, and the log from the base on; true also when that was done before."""
    session = of_origin(conn, origin, lock=True).clients.get(client)
    if session is None or session.row.request != request or session.row.state == "new":
        return False
    if session.row.state == "snapshot":
        conn.execute(_COMPLETE, {"origin": origin, "client": client})
        about = _about(request, session.row.forced)
        if reapplied_to > session.row.base.seq:
            about |= {REAPPLIED_HEADER: str(reapplied_to)}
        last = Record(Kind.LAST, session.row.base.seq, session.records + 1, UUID(request), about)
        store_records(conn, origin, client, [last])
    return True


def is_request(text: str) -> bool:
    """What another site calls a request may be anything."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _about(request: str, forced: bool) -> dict[str, str]:
    return {REQUEST_HEADER: request, FORCED_HEADER: str(forced).lower()}
