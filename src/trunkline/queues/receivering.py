"""The ring of slots in which received entries lie: a slot is left when it is large or old, and emptied whole when all of it was
passed.

Invariants:
  R1  a slot is emptied only with its own lock in hand, after a look, made under that lock, found nothing above any queue's tail
  R2  an entry that was written into a slot just after it was left, or emptied, is found there by the next such look
  R3  the lock is tried for 20 ms and then given up: readers and writers never wait longer for it

Slots grow with the number that are still waited for, so that sixteen of them hold much and let go of little often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from trunkline.db.lease import Grant, commit_fenced

SLOTS = 16
_LOCK_MS = 20

_PRESENT = """
SELECT slot, pg_relation_size(leaf) > 0, pg_table_size(leaf), extract(epoch FROM now() - slot_since)::float8
  FROM queues.receiver, LATERAL (SELECT ('queues.receive_' || slot)::regclass AS leaf) l
"""
_CLOSED = "SELECT DISTINCT slot FROM queues.closed_slot"
_CLOSE = """
INSERT INTO queues.closed_slot (slot, queue, last)
SELECT {number}, q.id, r.last FROM queues.queue q, LATERAL (SELECT max(position) AS last FROM {slot} WHERE queue = q.id) r
 WHERE r.last IS NOT NULL
"""
_LEAVE = "UPDATE queues.receiver SET slot = %s, slot_since = now()"
_PASSED = """
SELECT c.slot FROM queues.closed_slot c JOIN queues.queue q ON q.id = c.queue
 GROUP BY c.slot HAVING bool_and(c.last <= q.tail) ORDER BY min(c.closed_at)
"""
_WAITED_FOR = """
SELECT EXISTS (SELECT FROM queues.queue q WHERE EXISTS (SELECT FROM {slot} r WHERE r.queue = q.id AND r.position > q.tail))
"""


@dataclass(frozen=True)
class RingStep:
    left: int | None
    """The slot that is no longer written to."""
    emptied: tuple[int, ...]


@dataclass(frozen=True)
class ReceiveRing:
    """`bytes`: at which size a slot is left when at most one other is waited for; twice that for every two more."""

    bytes: int = 64 << 20
    seconds: float = 600.0

    def step(self, conn: psycopg.Connection[Any], grant: Grant) -> RingStep:
        """Each slot is a transaction of its own."""
        left = self._leave(conn)
        commit_fenced(conn, grant)
        passed = [slot for (slot,) in conn.execute(_PASSED).fetchall()]
        conn.commit()
        return RingStep(left, tuple(slot for slot in passed if _empty(conn, grant, slot)))

    def _leave(self, conn: psycopg.Connection[Any]) -> int | None:
        row = conn.execute(_PRESENT).fetchone()
        assert row is not None
        slot, used, size, age = row
        closed = {number for (number,) in conn.execute(_CLOSED).fetchall()}
        free = [n % SLOTS for n in range(slot + 1, slot + SLOTS) if n % SLOTS not in closed]
        if not used or not free or (size < self.bytes << len(closed) // 2 and age < self.seconds):
            return None
        conn.execute(_about(_CLOSE, slot))
        conn.execute(_LEAVE, (free[0],))
        return int(slot)


def _empty(conn: psycopg.Connection[Any], grant: Grant, slot: int) -> bool:
    try:
        conn.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(_LOCK_MS))
        conn.execute(_about("LOCK TABLE ONLY {slot} IN ACCESS EXCLUSIVE MODE", slot))
    except psycopg.errors.LockNotAvailable:
        conn.rollback()
        return False
    waited_for = conn.execute(_about(_WAITED_FOR, slot)).fetchone() == (True,)
    conn.execute("DELETE FROM queues.closed_slot WHERE slot = %s", (slot,))
    conn.execute(_about(_CLOSE if waited_for else "TRUNCATE ONLY {slot}", slot))
    commit_fenced(conn, grant)
    return not waited_for


def _about(statement: str, slot: int) -> sql.Composed:
    return sql.SQL(statement).format(slot=sql.Identifier("queues", f"receive_{slot}"), number=sql.Literal(slot))
