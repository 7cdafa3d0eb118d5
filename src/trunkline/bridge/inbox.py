"""Intake: one transaction puts a batch's bundles into the inbox and moves the offsets past them.

I1  The batch begins where the stored offsets stand, locked for the transaction (H28); anything else raises and leaves
    nothing behind.
I2  When the offsets have passed a message, it is in the inbox, or a newer one of its site and type is there or in the
    ledger, or it is in quarantine (G7).
I3  A complete bundle replaces an older one of its (site, type) and never a newer one. Append bundles are never
    conflated; one whose id already waits is a duplicate.
I4  Inbox rows are locked in the order of their key, and before any counter. A deadlock is tried again.
I5  The fence is last (H01), so a batch of a past holder leaves nothing behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from trunkline.bridge.counters import Tally, count
from trunkline.bridge.plan import Plan, read_offsets, same_offsets
from trunkline.bridge.shipped import SHIPPED
from trunkline.core.bundle import Bundle, Mode
from trunkline.core.errors import Terminal
from trunkline.db.lease import Grant, commit_fenced

_TRIES = 5
_COLUMNS = (
    "site, type, key, incarnation, generation, dependency_type, dependency_incarnation, dependency_generation,"
    " headers, data, queue, position"
)
_STAGE = """
CREATE TEMPORARY TABLE IF NOT EXISTS arrivals (
    site text, type text, key text, incarnation bigint, generation bigint, dependency_type text,
    dependency_incarnation bigint, dependency_generation bigint, headers jsonb, data bytea, queue text, position bigint
) ON COMMIT DELETE ROWS
"""
_UPSERT = f"""
INSERT INTO bridge.inbox AS i ({_COLUMNS})
SELECT {_COLUMNS} FROM arrivals ORDER BY site, type, key
ON CONFLICT (site, type, key) DO UPDATE
   SET incarnation = excluded.incarnation, generation = excluded.generation,
       dependency_type = excluded.dependency_type, dependency_incarnation = excluded.dependency_incarnation,
       dependency_generation = excluded.dependency_generation, headers = excluded.headers, data = excluded.data,
       queue = excluded.queue, position = excluded.position, arrived_at = now()
 WHERE i.key = '' AND (i.incarnation, i.generation) < (excluded.incarnation, excluded.generation)
RETURNING i.site, i.xmax = 0
"""
_LOCK_OFFSETS = "SELECT 1 FROM status.transport WHERE reader_group = %s ORDER BY queue FOR UPDATE"
_STORE_OFFSETS = """
INSERT INTO status.transport AS t (reader_group, queue, payload)
SELECT %s, queue, jsonb_build_object('next', next) FROM unnest(%s::text[], %s::bigint[]) AS n (queue, next) ORDER BY queue
ON CONFLICT (reader_group, queue) DO UPDATE SET payload = excluded.payload, updated_at = now()
"""
_CLOSE_PLAN = "DELETE FROM bridge.plan WHERE reader_group = %s AND from_offsets = %s AND to_offsets = %s"
_REFUSE = "COPY bridge.quarantine (site, headers, payload, reason, queue, position) FROM STDIN"


@dataclass(frozen=True)
class Arrived:
    """A bundle and where it stood."""

    bundle: Bundle
    queue: str
    position: int

    @property
    def slot(self) -> tuple[str, str, str]:
        return self.bundle.source, self.bundle.type, SHIPPED[self.bundle.type].slot_key(self.bundle)


@dataclass(frozen=True)
class Rejected:
    """A message that is no bundle of its authenticated sender, and why."""

    site: str
    headers: Mapping[str, str]
    payload: bytes
    reason: str
    queue: str
    position: int


def take_in(
    conn: psycopg.Connection[Any],
    grant: Grant,
    group: str,
    plan: Plan,
    bundles: Sequence[Arrived],
    rejected: Sequence[Rejected],
    counts: Mapping[str, int],
) -> None:
    """Takes in all of `plan`. `counts`: messages per site in the batch, those that were conflated away among them."""
    for left in reversed(range(_TRIES)):
        try:
            _require_offsets(conn, group, plan)
            kept = _newest(bundles)
            inserted = _upsert(conn, kept)
            _quarantine(conn, rejected)
            count(conn, _tallies(counts, inserted, rejected))
            _store_offsets(conn, group, plan)
            commit_fenced(conn, grant)
            return
        except psycopg.errors.DeadlockDetected:
            conn.rollback()
            if not left:
                raise
        except BaseException:
            conn.rollback()
            raise


def _require_offsets(conn: psycopg.Connection[Any], group: str, plan: Plan) -> None:
    conn.execute(_LOCK_OFFSETS, (group,))
    stored = read_offsets(conn, group)
    if not same_offsets(stored, plan.start):
        raise Terminal(
            f"batch of {group}", f"it begins at {dict(plan.start)}, the offsets stand at {stored}",
            "start the query anew from the stored offsets",
        )  # fmt: skip


def _newest(bundles: Iterable[Arrived]) -> list[Arrived]:
    kept: dict[tuple[str, str, str], Arrived] = {}
    for arrived in bundles:
        before = kept.setdefault(arrived.slot, arrived)
        if arrived.bundle.mode is Mode.COMPLETE and before.bundle.version < arrived.bundle.version:
            kept[arrived.slot] = arrived
    return list(kept.values())


def _upsert(conn: psycopg.Connection[Any], kept: Sequence[Arrived]) -> Counter[str]:
    """How many rows of each site came to be; every other message met one that already waited."""
    if not kept:
        return Counter()
    conn.execute(_STAGE)
    with conn.cursor() as cursor:
        with cursor.copy(f"COPY arrivals ({_COLUMNS}) FROM STDIN") as copy:
            for arrived in kept:
                copy.write_row(_row(arrived))
        returned = cursor.execute(_UPSERT).fetchall()
    return Counter(site for site, is_new in returned if is_new)


def _row(arrived: Arrived) -> tuple[object, ...]:
    bundle = arrived.bundle
    needs = bundle.dependency
    dependency = (needs.type, needs.version.incarnation, needs.version.generation) if needs else (None, None, None)
    version = (bundle.version.incarnation, bundle.version.generation)
    return *arrived.slot, *version, *dependency, Jsonb(bundle.headers()), bundle.data, arrived.queue, arrived.position


def _quarantine(conn: psycopg.Connection[Any], rejected: Sequence[Rejected]) -> None:
    if not rejected:
        return
    with conn.cursor() as cursor, cursor.copy(_REFUSE) as copy:
        for r in rejected:
            copy.write_row((r.site, Jsonb(dict(r.headers)), r.payload, r.reason, r.queue, r.position))


def _tallies(counts: Mapping[str, int], inserted: Counter[str], rejected: Sequence[Rejected]) -> dict[str, Tally]:
    refused = Counter(r.site for r in rejected)
    return {
        site: Tally(received=n, rejected=refused[site], conflated=n - refused[site] - inserted[site])
        for site, n in counts.items()
    }


def _store_offsets(conn: psycopg.Connection[Any], group: str, plan: Plan) -> None:
    conn.execute(_STORE_OFFSETS, (group, list(plan.end), list(plan.end.values())))
    closed = conn.execute(_CLOSE_PLAN, (group, Jsonb(dict(plan.start)), Jsonb(dict(plan.end)))).rowcount
    if closed != 1:
        raise Terminal(f"batch of {group}", "its plan is not the open one", "start the query anew from the stored offsets")
