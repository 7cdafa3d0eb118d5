"""Offsets and plan rows: what a batch covers is decided once, in Postgres, before Spark hears of it.

The source and the function that takes a batch in live in different processes, and either may die between the two. So
the source commits a *plan row* (from, to) before it names the end of a batch, and intake takes in exactly the open
plan. Offsets are {queue: position to read next}; a queue that is not named stands at its first position.

P1  At most one plan is open per reader group (H29). The transaction that takes a batch in closes it.
P2  A plan that begins where the offsets stand is repeated as it is, by whoever holds the lease then. Any other was
    made before the database was restored: it is replaced.
P3  No plan goes backward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from trunkline.core.errors import Terminal
from trunkline.db.lease import Grant, commit_fenced

Offsets = Mapping[str, int]
FIRST_POSITION = 1

_OFFSETS = "SELECT queue, (payload->>'next')::bigint FROM status.transport WHERE reader_group = %s"
_OPEN = "SELECT from_offsets, to_offsets, epoch FROM bridge.plan WHERE reader_group = %s"
_COMMIT = """
INSERT INTO bridge.plan (reader_group, epoch, from_offsets, to_offsets) VALUES (%s, %s, %s, %s)
ON CONFLICT (reader_group) DO UPDATE
   SET epoch = excluded.epoch, from_offsets = excluded.from_offsets, to_offsets = excluded.to_offsets, planned_at = now()
"""


@dataclass(frozen=True)
class Plan:
    start: Offsets
    end: Offsets
    epoch: int = 0

    def ranges(self) -> dict[str, range]:
        """The positions of each queue that the batch covers, queues without any left out."""
        spans = {queue: range(self.start.get(queue, FIRST_POSITION), end) for queue, end in self.end.items()}
        return {queue: span for queue, span in spans.items() if span}

    def rows(self) -> int:
        """Positions are dense, so this is how many entries the batch has."""
        return sum(len(span) for span in self.ranges().values())


def same_offsets(one: Offsets, other: Offsets) -> bool:
    return all(one.get(q, FIRST_POSITION) == other.get(q, FIRST_POSITION) for q in {*one, *other})


def require_forward(start: Offsets, end: Offsets) -> None:
    back = sorted(q for q in {*start, *end} if end.get(q, FIRST_POSITION) < start.get(q, FIRST_POSITION))
    if back:
        spans = ", ".join(f"{q} from {start.get(q, FIRST_POSITION)} to {end.get(q, FIRST_POSITION)}" for q in back)
        raise Terminal(
            "batch plan", f"it goes backward: {spans}", "the queue was restored or emptied: set its offset in status.transport"
        )


def read_offsets(conn: psycopg.Connection[Any], group: str) -> dict[str, int]:
    return dict(conn.execute(_OFFSETS, (group,)).fetchall())


def open_plan(conn: psycopg.Connection[Any], group: str) -> Plan | None:
    row = conn.execute(_OPEN, (group,)).fetchone()
    return Plan(*row) if row else None


def commit_plan(conn: psycopg.Connection[Any], grant: Grant, group: str, start: Offsets, end: Offsets) -> None:
    require_forward(start, end)
    conn.execute(_COMMIT, (group, grant.epoch, Jsonb(dict(start)), Jsonb(dict(end))))
    commit_fenced(conn, grant)
