"""The ring of slots of the send queue: how full it is, the next one for writers, and emptying one whole.

A slot is emptied under its exclusive lock. Who writes a row holds a lock on its slot until the end of the transaction, so with
that lock in hand every row in it is committed; a new statement then sees whether any of them still waits for its stamp (H07).
The lock is asked for last and waited for shortly: an open transaction in that slot only means to try again later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.errors import LockNotAvailable

SLOTS = 16

_RING = """
SELECT slot, lowest, extract(epoch FROM slot_since)::float8, extract(epoch FROM clock_timestamp())::float8 FROM queues.stamper
"""
_SIZES = """
SELECT n, pg_relation_size(leaf), pg_total_relation_size(leaf)
  FROM (SELECT n, ('queues.send_log_' || n)::regclass AS leaf FROM generate_series(0, %s - 1) AS n) AS leaves
"""
_ROTATE = "UPDATE queues.stamper SET slot = %s, slot_since = clock_timestamp()"

# The log's last row stays: it says where the stamper stands. What it brought is folded all the same.
_FORGET = """
WITH gone AS (
    SELECT b.set, b.client, max(b.last) AS last
      FROM queues.stamp, unnest(sets, set_clients, set_lasts) AS b(set, client, last)
     WHERE last_seq <= %(upto)s AND last_seq > (SELECT lowest FROM queues.stamper) GROUP BY 1, 2
), moved AS (
    UPDATE queues.stamper SET lowest = s.last_seq, lowest_mark = s.mark
      FROM (SELECT last_seq, mark FROM queues.stamp WHERE last_seq <= %(upto)s ORDER BY last_seq DESC LIMIT 1) AS s
     WHERE s.last_seq > lowest
), deleted AS (
    DELETE FROM queues.stamp
     WHERE last_seq <= %(upto)s AND first_seq < (SELECT first_seq FROM queues.stamp ORDER BY first_seq DESC LIMIT 1)
)
INSERT INTO queues.trimmed AS t (destination_set, client, last_seq) SELECT * FROM gone
ON CONFLICT (destination_set, client) DO UPDATE SET last_seq = greatest(t.last_seq, excluded.last_seq)
RETURNING destination_set, client, last_seq
"""
# A ticket above the cursor or in a hole is of a transaction that is not stamped; above `seen` are rounds that the caller has
# not seen.
_IN_USE = """
WITH s AS (SELECT cursor, holes FROM queues.stamp ORDER BY first_seq DESC LIMIT 1)
SELECT slot = %(slot)s
       OR EXISTS (SELECT FROM queues.stamp WHERE first_seq > %(seen)s AND %(slot)s = ANY(slots))
       OR EXISTS (SELECT FROM queues.ticket t
                   WHERE (t.ticket > coalesce((SELECT cursor FROM s), 0) OR t.ticket = ANY(ARRAY(SELECT unnest(holes) FROM s)))
                     AND EXISTS (SELECT FROM queues.send_log l WHERE l.slot = %(slot)s AND l.xid = t.xid))
  FROM queues.stamper
"""

Folded = list[tuple[int, str, int]]
"""set, client, last seq that was trimmed"""


@dataclass(frozen=True)
class Ring:
    """Times in unix seconds of the database; `blank` are the slots without any row."""

    present: int
    since: float
    now: float
    lowest: int
    sizes: Mapping[int, int]
    blank: frozenset[int]

    @property
    def free(self) -> frozenset[int]:
        return self.blank - {self.present}

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


def read_ring(conn: psycopg.Connection[Any]) -> Ring:
    row = conn.execute(_RING).fetchone()
    assert row is not None
    slot, lowest, since, now = row
    sizes = conn.execute(_SIZES, (SLOTS,)).fetchall()
    blank = frozenset(n for n, rows, _ in sizes if not rows)
    return Ring(slot, since, now, lowest, {n: 0 if n in blank else total for n, _, total in sizes}, blank)


def rotate(conn: psycopg.Connection[Any], slot: int) -> None:
    conn.execute(_ROTATE, (slot,))


def forget(conn: psycopg.Connection[Any], upto: int) -> Folded:
    """In the caller's transaction: whole rounds up to `upto` are no longer in the log. Their rows go with their slots."""
    return conn.execute(_FORGET, {"upto": upto}).fetchall()


def empty(conn: psycopg.Connection[Any], slot: int, upto: int, seen: int) -> Folded | None:
    """In one transaction, which the caller commits: the log begins after `upto`, and the slot is empty.

    `seen` is the last seq the caller knows of, and `upto` the last one it knows to be in this slot. None, and a rollback: the
    slot is in use.
    """
    leaf = sql.Identifier("queues", f"send_log_{slot}")
    folded = forget(conn, upto)
    try:
        conn.execute("SET LOCAL lock_timeout = 20")
        conn.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS EXCLUSIVE MODE").format(leaf))
    except LockNotAvailable:
        conn.rollback()
        return None
    used = conn.execute(_IN_USE, {"slot": slot, "seen": seen}).fetchone()
    if used is None or used[0]:
        conn.rollback()
        return None
    conn.execute(sql.SQL("TRUNCATE ONLY {}").format(leaf))
    return folded
