"""The stamper turns committed rows into the log: one per site, under the leader's lease.

Theory. A round is ONE repeatable-read transaction, so everything in it speaks of one snapshot: where the stamper
stands, the tickets above its cursor and in its holes, and all rows of those transactions (`rounds.py` decides what
follows). What it writes is one narrow row per round, whatever the number of entries: the xids in log order, how many
entries each has, a random mark, and where the stamper stands now. Neither entries nor any other row are updated.

The fence ends the round. A renewal of the lease during the round does not disturb it (the fence's KEY SHARE passes a
version that only differs in its expiry); a takeover makes it fail, either by the fence or, because the snapshot still
shows the old lease, as a serialization failure. Then the round is tried once more in a new snapshot, and there the
fence itself answers.

Invariants:
  S1  a round commits wholly or not at all, and only under a lease that holds (H01)
  S2  a round that finds no entries writes nothing
  S3  W, the bound of new holes, is taken after the read (H05)
  S4  every round has its own mark, and stamps are on disk before anybody is told of them (H11)
  S5  what a round costs depends on what it finds, not on the rounds before it: all its reads begin at an index key that
      none of them reached, also while an open transaction keeps every dead row in place

What it knows of the last round it keeps in memory, and reads it again when the log's last row is not the one it wrote.
Tickets of stamped transactions are deleted in the round: `stamp` says the same in less room. Nobody is notified of new
rows, so nothing serialises the applications' commits: the stamper polls (H09).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import IsolationLevel
from psycopg.errors import SerializationFailure

from trunkline.core.errors import Fenced
from trunkline.core.ids import START, Position
from trunkline.db.lease import Grant, commit_fenced
from trunkline.queues.destinations import intern
from trunkline.queues.export import READY, Exported, hold_snapshot
from trunkline.queues.restored import begin_anew_if_restored
from trunkline.queues.rounds import Brought, Cursor, Hole, Part, Round, Standing, Ticket, number, plan_round, tickets_of

BUSY_SECONDS = 0.005
BULK_SECONDS = 0.02
"""After a round that brought BULK_ENTRIES: under load fewer, larger rounds cost less, and nobody waits for one of them."""
BULK_ENTRIES = 500
IDLE_SECONDS = 0.25
ROUND_TRANSACTIONS = 500
"""Of up to 1,000 entries each: a round of the largest ones still takes less than a second."""
EXPORT_TRIES = 5

ALL_SLOTS = list(range(16))

_HEAD = """
SELECT coalesce(last_seq, 0), coalesce(mark, 0), pg_snapshot_xmin(pg_current_snapshot())::text::bigint
  FROM (SELECT) AS one LEFT JOIN (SELECT last_seq, mark FROM queues.stamp ORDER BY first_seq DESC LIMIT 1) AS s ON true
"""
_STANDING = """
SELECT cursor, holes, hole_bounds::text[]::bigint[] FROM queues.stamp ORDER BY first_seq DESC LIMIT 1
"""
_TICKETS = """
(SELECT ticket, xid::text::bigint, slot FROM queues.ticket WHERE ticket = ANY(%(holes)s::bigint[]))
 UNION ALL
(SELECT ticket, xid::text::bigint, slot FROM queues.ticket WHERE ticket > %(cursor)s ORDER BY ticket LIMIT %(limit)s)
 ORDER BY ticket LIMIT %(limit)s
"""
_PARTS = """
SELECT xid::text::bigint, client, destination_set, destinations, sum(queues.messages(ends)), sum(octet_length(payload))::bigint,
       min(id), min(slot), max(slot)
  FROM queues.send_log WHERE slot = ANY(%(slots)s::smallint[]) AND xid = ANY(%(xids)s::xid8[])
 GROUP BY xid, client, destination_set, destinations
"""
_WRITE = """
WITH stamped AS (
    INSERT INTO queues.stamp (first_seq, last_seq, mark, xids, slots, counts, bytes, sets, set_clients, set_counts, set_bytes,
                              set_lasts, cursor, holes, hole_bounds)
    VALUES (%(first)s, %(last)s, %(mark)s, %(xids)s::xid8[], %(slots)s, %(counts)s, %(bytes)s, %(sets)s, %(set_clients)s,
            %(set_counts)s, %(set_bytes)s, %(set_lasts)s, %(cursor)s, %(kept)s::bigint[] || %(new_holes)s::bigint[],
            %(kept_bounds)s::xid8[] || array_fill(pg_current_xact_id(), ARRAY[cardinality(%(new_holes)s::bigint[])]))
), begun AS (
    INSERT INTO queues.client (name, first_seq)
    SELECT c.name, c.after + 1 + (SELECT coalesce(sum(queues.messages(l.ends)), 0)
                                    FROM queues.send_log l WHERE l.xid = c.xid AND l.id < c.id)
      FROM unnest(%(new_clients)s::text[], %(client_afters)s::bigint[], %(client_xids)s::xid8[], %(client_ids)s::bigint[])
           AS c(name, after, xid, id)
), done AS (
    DELETE FROM queues.ticket WHERE ticket = ANY(%(tickets)s::bigint[])
)
SELECT pg_current_xact_id()::text::bigint
"""

PartRow = tuple[int, str, int | None, list[str] | None, int, int, int, int, int]


@dataclass(frozen=True)
class Stamped:
    head: Position
    stamped: int
    sets: tuple[Brought, ...] = ()


def random_mark() -> int:
    return secrets.randbelow(2**63 - 1) + 1


def read_log_id(conn: psycopg.Connection[Any]) -> str:
    row = conn.execute("SELECT log_id::text FROM queues.stamper").fetchone()
    assert row is not None
    return str(row[0])


class Stamper:
    """`conn` belongs to the stamper alone, from `connect_fenced`. Any thread may call; one round runs at a time."""

    def __init__(self, conn: psycopg.Connection[Any], grant: Grant, random_mark: Callable[[], int]) -> None:
        self._conn, self._grant, self._random_mark = conn, grant, random_mark
        self._lock = threading.Lock()
        self._standing: Standing | None = None
        conn.rollback()
        # A table that is empty most of the time looks small to the planner even when it is full of dead rows.
        conn.execute("SET synchronous_commit = on; SET enable_seqscan = off; SET jit = off")
        conn.commit()
        begin_anew_if_restored(conn, grant)
        conn.isolation_level = IsolationLevel.REPEATABLE_READ

    @property
    def cursor(self) -> Cursor:
        return self._standing.cursor if self._standing else Cursor(0)

    def round(self, limit: int = ROUND_TRANSACTIONS) -> Stamped:
        """At most `limit` transactions; `Fenced` when the lease is another's, and then nothing is written."""
        with self._lock:
            return self._tried(2, limit)[0]

    def export(self, requests: Sequence[UUID]) -> Exported:
        """Rounds until one has read everything; its snapshot is exported, and these requests are ready at its base.

        Base, snapshot and stamps commit together: no entry after the base is trimmed from then on (H18), and none up to it
        is missing in the snapshot (H19).
        """
        with self._lock:
            while True:
                _, exported = self._tried(EXPORT_TRIES, ROUND_TRANSACTIONS, requests)
                if exported is not None:
                    return exported

    def run(self, stop: threading.Event, on_head: Callable[[Position], None]) -> None:
        """Until `stop`; `on_head` hears the head first, then each time it grew, also where `export` stamped what came.
        `Fenced` and lost connections rise."""
        pause, told = BUSY_SECONDS, self.round().head
        on_head(told)
        while not stop.wait(pause):
            done = self.round()
            if done.head != told:
                told = done.head
                on_head(told)
            pause = _pause_after(done, pause)

    def _tried(self, tries: int, limit: int, requests: Sequence[UUID] | None = None) -> tuple[Stamped, Exported | None]:
        try:
            return self._round(limit, requests)
        except (SerializationFailure, Fenced):
            # The snapshot may be older than the lease's last renewal: only a new one can tell.
            if tries == 1:
                raise
        return self._tried(tries - 1, limit, requests)

    def _round(self, limit: int, requests: Sequence[UUID] | None) -> tuple[Stamped, Exported | None]:
        before, self._standing = self._standing, None
        try:
            standing, xmin, tickets = self._read(before, limit)
            plan = plan_round(standing.cursor, tickets, len(tickets) < limit, xmin)
            head, brought, after = self._stamp(standing, plan) if plan.stamped else self._pass(standing, plan)
            wanted = requests if len(tickets) < limit else None
            exported = self._commit(bool(plan.stamped), head, wanted)
        except BaseException:
            self._conn.rollback()
            raise
        self._standing = after
        return Stamped(head, head.seq - standing.head.seq, brought), exported

    def _commit(self, wrote: bool, head: Position, requests: Sequence[UUID] | None) -> Exported | None:
        if requests is None:
            commit_fenced(self._conn, self._grant) if wrote else self._conn.rollback()
            return None
        snapshot, holder = hold_snapshot(self._conn)
        try:
            made = {"base": head.seq, "mark": head.mark, "snapshot": snapshot, "incarnation": self._grant.epoch}
            ready = self._conn.execute(READY, {**made, "requests": list(requests)}).fetchall()
            commit_fenced(self._conn, self._grant)
        except BaseException:
            holder.close()
            raise
        return Exported(snapshot, head, tuple(id for (id,) in ready), holder)

    def _read(self, before: Standing | None, limit: int) -> tuple[Standing, int, list[Ticket]]:
        """Where the stamper stands, and what there is to do, in one snapshot; with one trip where memory serves."""
        looked = before or Standing()
        with self._conn.pipeline():
            head = self._conn.execute(_HEAD)
            tickets = self._conn.execute(_TICKETS, _asked(looked, limit))
        seq, mark, xmin = head.fetchone() or (0, 0, 0)
        if before is None or before.head != Position(seq, mark):
            looked = self._remember(Position(seq, mark))
            tickets = self._conn.execute(_TICKETS, _asked(looked, limit))
        return looked, xmin, self._with_parts(tickets.fetchall())

    def _remember(self, head: Position) -> Standing:
        clients = frozenset(name for (name,) in self._conn.execute("SELECT name FROM queues.client"))
        row = self._conn.execute(_STANDING).fetchone()
        if row is None:
            return Standing(Cursor(0), START, (), clients)
        cursor, holes, bounds = row
        return Standing(Cursor(cursor, tuple(map(Hole, holes, bounds))), head, (), clients)

    def _with_parts(self, drawn: Sequence[tuple[int, int, int | None]]) -> list[Ticket]:
        if not drawn:
            return []
        slots = {slot for _, _, slot in drawn if slot is not None}
        spread = any(slot is None for _, _, slot in drawn)
        asked = {"slots": ALL_SLOTS if spread else list(slots), "xids": [str(xid) for _, xid, _ in drawn]}
        rows: list[PartRow] = self._conn.execute(_PARTS, asked).fetchall()
        numbers = intern(self._conn, {tuple(row[3]) for row in rows if row[3] is not None})
        parts: dict[int, list[Part]] = {}
        for xid, client, known, sites, entries, size, first_id, low, high in rows:
            to = known if known is not None else numbers[tuple(sites or ())]
            parts.setdefault(xid, []).append(Part(xid, client, to, entries, size, first_id, frozenset((low, high))))
        return tickets_of([(n, xid) for n, xid, _ in drawn], parts)

    def _pass(self, standing: Standing, plan: Round) -> tuple[Position, tuple[Brought, ...], Standing]:
        """Nothing to write: what was found out is remembered (R5)."""
        bound = 0
        if plan.new_holes:
            row = self._conn.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
            assert row is not None
            bound = row[0]
        return standing.head, (), standing.passed(plan, bound)

    def _stamp(self, standing: Standing, plan: Round) -> tuple[Position, tuple[Brought, ...], Standing]:
        numbered = number(plan.stamped, standing.head.seq, standing.clients)
        head, brought, new = Position(numbered.ends[-1], self._random_mark()), numbered.brought, numbered.new_clients
        row = self._conn.execute(
            _WRITE,
            {
                "first": standing.head.seq + 1, "last": head.seq, "mark": head.mark,
                "xids": [str(t.xid) for t in plan.stamped], "counts": [t.entries for t in plan.stamped],
                "bytes": [min(t.bytes, 2**31 - 1) for t in plan.stamped], "slots": list(numbered.slots),
                "sets": [b.set for b in brought], "set_clients": [b.client for b in brought],
                "set_counts": [b.entries for b in brought], "set_bytes": [b.bytes for b in brought],
                "set_lasts": [b.last for b in brought], "cursor": plan.cursor,
                "kept": [h.ticket for h in plan.kept], "kept_bounds": [str(h.bound) for h in plan.kept],
                "new_holes": list(plan.new_holes), "tickets": [*standing.empty, *plan.empty, *(t.number for t in plan.stamped)],
                "new_clients": [c.name for c in new], "client_afters": [c.after for c in new],
                "client_xids": [str(c.xid) for c in new], "client_ids": [c.first_id for c in new],
            },
        ).fetchone()  # fmt: skip
        assert row is not None
        after = Standing(plan.cursor_with(row[0]), head, (), standing.clients | {c.name for c in new})
        return head, brought, after


def _pause_after(done: Stamped, pause: float) -> float:
    if not done.stamped:
        return min(2 * pause, IDLE_SECONDS)
    return BULK_SECONDS if done.stamped >= BULK_ENTRIES else BUSY_SECONDS


def _asked(standing: Standing, limit: int) -> dict[str, Any]:
    return {"cursor": standing.cursor.ticket, "holes": [h.ticket for h in standing.cursor.holes], "limit": limit}
