"""The stamper turns committed rows into the log: one per site, under the leader's lease.

Theory. A round is ONE repeatable-read transaction, so everything in it speaks of one snapshot: where the stamper
stands, the tickets above its cursor and in its holes, and all rows of those transactions (`rounds.py` decides what
follows). What it writes is one narrow row per round, whatever the number of entries: the xids in log order, how many
entries each has, and a random mark. Entries are never updated.

The fence ends the round. A renewal of the lease during the round does not disturb it (the fence's KEY SHARE passes a
version that only differs in its expiry); a takeover makes it fail, either by the fence or, because the snapshot still
shows the old lease, as a serialization failure. Then the round is tried once more in a new snapshot, and there the
fence itself answers.

Invariants:
  S1  a round commits wholly or not at all, and only under a lease that holds (H01)
  S2  a round that finds nothing writes nothing and takes no xid
  S3  W, the bound of new holes, is taken after the read (H05)
  S4  every round has its own mark, and stamps are on disk before anybody is told of them (H11)

Tickets of stamped transactions are deleted in the round: `stamp` says the same in less room, and the table stays as
small as the backlog. Nobody is notified of new rows, so nothing serialises the applications' commits: the stamper
polls (H09).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

import psycopg
from psycopg import IsolationLevel
from psycopg.errors import SerializationFailure

from trunkline.core.errors import Fenced
from trunkline.core.ids import Position
from trunkline.db.lease import Grant, commit_fenced
from trunkline.queues.rounds import Cursor, Hole, Round, Ticket, plan_round

BUSY_SECONDS = 0.005
IDLE_SECONDS = 0.25

_STATE = """
SELECT cursor, holes, hole_bounds::text[]::bigint[], head, mark, pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
       ARRAY(SELECT name FROM queues.client)
  FROM queues.stamper
"""
_TICKETS = """
WITH due AS MATERIALIZED (
    SELECT * FROM (
        (SELECT ticket, xid FROM queues.ticket WHERE ticket = ANY(%(holes)s::bigint[]))
        UNION ALL
        (SELECT ticket, xid FROM queues.ticket WHERE ticket > %(cursor)s ORDER BY ticket LIMIT %(limit)s)
    ) AS both_kinds ORDER BY ticket LIMIT %(limit)s
)
SELECT ticket, due.xid::text::bigint, client, coalesce(entries, 0), first_id
  FROM due LEFT JOIN LATERAL (
        SELECT client, count(*) AS entries, min(id) AS first_id FROM queues.send_log l WHERE l.xid = due.xid GROUP BY client
       ) AS by_client ON true
 ORDER BY ticket, first_id
"""
_WRITE = """
WITH stamped AS (
    INSERT INTO queues.stamp (first_seq, last_seq, mark, xids, counts)
    SELECT %(first)s, %(last)s, %(mark)s, %(xids)s::bigint[]::text[]::xid8[], %(counts)s::int[] WHERE %(first)s <= %(last)s
), begun AS (
    INSERT INTO queues.client (name, first_seq)
    SELECT c.name, c.first_seq + (SELECT count(*) FROM queues.send_log l WHERE l.xid = c.xid::text::xid8 AND l.id < c.id)
      FROM unnest(%(new_clients)s::text[], %(client_seqs)s::bigint[], %(client_xids)s::bigint[], %(client_ids)s::bigint[])
           AS c(name, first_seq, xid, id)
), done AS (
    DELETE FROM queues.ticket WHERE ticket = ANY(%(tickets)s::bigint[])
)
UPDATE queues.stamper
   SET cursor = %(cursor)s, head = %(last)s, mark = %(mark)s,
       holes = %(kept)s::bigint[] || %(new_holes)s::bigint[],
       hole_bounds = %(kept_bounds)s::bigint[]::text[]::xid8[]
                     || array_fill(pg_current_xact_id(), ARRAY[cardinality(%(new_holes)s::bigint[])])
"""

TicketRow = tuple[int, int, str | None, int, int | None]
"""ticket, xid, client, entries of that client in it, id of the first of them"""


@dataclass(frozen=True)
class Stamped:
    head: Position
    stamped: int


@dataclass(frozen=True)
class State:
    cursor: Cursor
    head: Position
    xmin: int
    clients: frozenset[str]


@dataclass(frozen=True)
class NewClient:
    name: str
    xid: int
    first_id: int


def random_mark() -> int:
    return secrets.randbelow(2**63 - 1) + 1


def read_log_id(conn: psycopg.Connection[Any]) -> str:
    row = conn.execute("SELECT log_id::text FROM queues.stamper").fetchone()
    assert row is not None
    return str(row[0])


class Stamper:
    """`conn` belongs to the stamper alone, from `connect_fenced`."""

    def __init__(self, conn: psycopg.Connection[Any], grant: Grant, random_mark: Callable[[], int]) -> None:
        self._conn, self._grant, self._random_mark = conn, grant, random_mark
        conn.rollback()
        conn.isolation_level = IsolationLevel.REPEATABLE_READ
        conn.execute("SET synchronous_commit = on")
        conn.commit()

    def round(self, limit: int = 2000) -> Stamped:
        """At most `limit` transactions; `Fenced` when the lease is another's, and then nothing is written."""
        try:
            return self._round(limit)
        except (SerializationFailure, Fenced):
            # The snapshot may be older than the lease's last renewal: only a new one can tell.
            self._conn.rollback()
            return self._round(limit)

    def run(self, stop: threading.Event, on_head: Callable[[Position], None]) -> None:
        """Until `stop`; `on_head` hears the head first, then each time it grows. `Fenced` and lost connections rise."""
        pause = BUSY_SECONDS
        on_head(self.round().head)
        while not stop.wait(pause):
            done = self.round()
            if done.stamped:
                on_head(done.head)
            pause = BUSY_SECONDS if done.stamped else min(2 * pause, IDLE_SECONDS)

    def _round(self, limit: int) -> Stamped:
        state = self._read_state()
        rows = self._read_tickets(state.cursor, limit)
        tickets = _tickets(rows)
        plan = plan_round(state.cursor, tickets, len(tickets) < limit, state.xmin)
        if not plan.changed:
            self._conn.rollback()
            return Stamped(state.head, 0)
        head = self._write(state, plan, tickets, _new_clients(rows, state.clients))
        commit_fenced(self._conn, self._grant)
        return Stamped(head, head.seq - state.head.seq)

    def _read_state(self) -> State:
        row = self._conn.execute(_STATE).fetchone()
        assert row is not None
        cursor, holes, bounds, head, mark, xmin, clients = row
        left = tuple(map(Hole, holes, bounds))
        return State(Cursor(cursor, left), Position(head, mark), xmin, frozenset(clients))

    def _read_tickets(self, cursor: Cursor, limit: int) -> list[TicketRow]:
        holes = [h.ticket for h in cursor.holes]
        return self._conn.execute(_TICKETS, {"cursor": cursor.ticket, "holes": holes, "limit": limit}).fetchall()

    def _write(self, state: State, plan: Round, seen: list[Ticket], new: list[NewClient]) -> Position:
        counts = [t.entries for t in plan.stamped]
        ends = list(accumulate(counts, initial=state.head.seq))
        begin = {t.xid: end + 1 for t, end in zip(plan.stamped, ends, strict=False)}
        head = Position(ends[-1], self._random_mark() if counts else state.head.mark)
        self._conn.execute(
            _WRITE,
            {
                "first": state.head.seq + 1, "last": head.seq, "mark": head.mark,
                "xids": [t.xid for t in plan.stamped], "counts": counts,
                "new_clients": [c.name for c in new], "client_seqs": [begin[c.xid] for c in new],
                "client_xids": [c.xid for c in new], "client_ids": [c.first_id for c in new],
                "tickets": [t.number for t in seen], "cursor": plan.cursor,
                "kept": [h.ticket for h in plan.kept], "kept_bounds": [h.bound for h in plan.kept],
                "new_holes": list(plan.new_holes),
            },
        )  # fmt: skip
        return head


def _tickets(rows: Iterable[TicketRow]) -> list[Ticket]:
    grouped = groupby(rows, key=itemgetter(0, 1))
    return [Ticket(number, xid, sum(row[3] for row in parts)) for (number, xid), parts in grouped]


def _new_clients(rows: Iterable[TicketRow], known: frozenset[str]) -> list[NewClient]:
    new: dict[str, NewClient] = {}
    for _, xid, client, _, first_id in rows:
        if client is not None and first_id is not None and client not in known:
            new.setdefault(client, NewClient(client, xid, first_id))
    return list(new.values())
