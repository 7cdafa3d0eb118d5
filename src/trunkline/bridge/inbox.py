"""Intake: one transaction puts a batch's bundles into the inbox and moves the offsets past them.

I1  The batch begins where the stored offsets stand, locked for the transaction (H28); anything else raises and leaves
    nothing behind.
I2  When the offsets have passed a message, it is in the inbox or, as a part, in the chunk table; or a newer one of its site and
    type is there or in the ledger; or it is in quarantine (G7).
I3  A complete bundle replaces an older one of its (site, type) and never a newer one. All others are kept, in the order they
    were read; one whose id already waits is a duplicate.
I4  Runs are told first, then parts are joined: what reaches the inbox is whole and has a version that can be compared.
I5  Inbox rows are locked in the order of their site and type, and before any counter. A deadlock is tried again.
I6  The fence is last (H01), so a batch of a past holder leaves nothing behind.
I7  What Python does with each bundle is done awake: a large batch is no sleeping holder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from trunkline.bridge.batch import Arrived, Batch, Lost, Rejected
from trunkline.bridge.chunks import Joined, flaw, join_chunks
from trunkline.bridge.counters import Tally, count
from trunkline.bridge.lost import before_reading, want_again
from trunkline.bridge.plan import Plan, read_offsets, same_offsets
from trunkline.bridge.runs import tell_runs
from trunkline.bridge.seen import see
from trunkline.bridge.types import Types
from trunkline.bridge.units import Waiting
from trunkline.core.bundle import Bundle, Mode
from trunkline.core.errors import Invalid, Terminal
from trunkline.core.jsoncodec import dumps, loads
from trunkline.db.awake import awake
from trunkline.db.lease import Grant, commit_fenced

__all__ = ["Arrived", "Batch", "Lost", "Rejected", "take_in", "write_batch"]

Slot = tuple[str, str, str]
"""(site, type, key): a row of the inbox"""

_TRIES = 5
_STAGED = {
    "site": "text", "type": "text", "key": "text", "mode": "text", "incarnation": "bigint", "generation": "bigint",
    "value": "bigint", "dependency_type": "text", "dependency_incarnation": "bigint", "dependency_generation": "bigint",
    "restores": "boolean", "headers": "jsonb", "data": "bytea", "queue": "text", "position": "bigint",
}  # fmt: skip
_COLUMNS = ", ".join(_STAGED)
_STAGE = f"""
CREATE TEMPORARY TABLE IF NOT EXISTS arrivals (
    {", ".join(f"{name} {kind}" for name, kind in _STAGED.items())}, sent float8, place int
) ON COMMIT DELETE ROWS
"""
_COPY = f"COPY arrivals ({_COLUMNS}, sent, place) FROM STDIN (FORMAT BINARY)"
_REPLACED = [name for name in _STAGED if name not in ("site", "type", "key", "mode")]
# The order is that of a subquery, so that rows are numbered (arrival) as they are sorted.
_UPSERT = f"""
INSERT INTO bridge.inbox AS i ({_COLUMNS}, event_time, arrival)
SELECT {_COLUMNS}, CASE WHEN sent IS NOT NULL THEN least(to_timestamp(sent), now()) END, nextval('bridge.arrival')
  FROM (SELECT * FROM arrivals ORDER BY site, type, place) AS sorted
ON CONFLICT (site, type, key) DO UPDATE
   SET {", ".join(f"{name} = excluded.{name}" for name in (*_REPLACED, "event_time", "arrival"))}, arrived_at = now()
 WHERE i.key = '' AND (i.incarnation, i.generation) < (excluded.incarnation, excluded.generation)
RETURNING i.site, i.type, i.key, i.arrival, extract(epoch FROM i.arrived_at)::float8, i.xmax = 0
"""
_LOCK_OFFSETS = "SELECT 1 FROM status.transport WHERE reader_group = %s ORDER BY queue FOR UPDATE"
_STORE_OFFSETS = """
INSERT INTO status.transport AS t (reader_group, queue, payload)
SELECT %s, queue, jsonb_build_object('next', next) FROM unnest(%s::text[], %s::bigint[]) AS n (queue, next) ORDER BY queue
ON CONFLICT (reader_group, queue) DO UPDATE SET payload = excluded.payload, updated_at = now()
 WHERE t.payload IS DISTINCT FROM excluded.payload
"""
_CLOSE_PLAN = "DELETE FROM bridge.plan WHERE reader_group = %s AND from_offsets = %s AND to_offsets = %s"
_REFUSE = "COPY bridge.quarantine (site, headers, payload, reason, queue, position) FROM STDIN"


def take_in(conn: psycopg.Connection[Any], grant: Grant, group: str, plan: Plan, types: Types, batch: Batch) -> list[Waiting]:
    """Takes in all of `plan`. What is returned is for the units."""
    for left in reversed(range(_TRIES)):
        try:
            _require_offsets(conn, group, plan)
            waiting = write_batch(conn, types, batch)
            _store_offsets(conn, group, plan)
            commit_fenced(conn, grant)
            return waiting
        except psycopg.errors.DeadlockDetected:
            conn.rollback()
            if not left:
                raise
        except BaseException:
            conn.rollback()
            raise
    raise AssertionError("the last try returns or raises")


def write_batch(conn: psycopg.Connection[Any], types: Types, batch: Batch) -> list[Waiting]:
    """Inside the caller's transaction. What is returned is for the units, after the commit."""
    before_reading(conn, batch.lost)
    sound, rejected = _sound(awake(conn, batch.bundles), batch.rejected)
    told = tell_runs(conn, sorted(sound, key=lambda a: (a.queue, a.position)))
    joined = join_chunks(conn, [a for a in told if a.bundle.chunk is not None])
    kept = newest(types, awake(conn, [*(a for a in told if a.bundle.chunk is None), *joined.wholes]))
    waiting, inserted = _upsert(conn, types, kept)
    _quarantine(conn, rejected)
    want_again(conn, types, batch.lost)
    see(conn, batch.transport, sound)
    past = _by_site(sound) - _by_site(told)
    count(conn, _tallies(batch, _by_rejected(rejected), past, inserted, joined))
    return waiting


def _sound(bundles: Iterable[Arrived], refused: Iterable[Rejected]) -> tuple[list[Arrived], list[Rejected]]:
    """Parts that cannot be parts are refused like whatever is no bundle."""
    sound, rejected = [], list(refused)
    for arrived in bundles:
        reason = flaw(arrived.bundle)
        if reason is None:
            sound.append(arrived)
        else:
            b = arrived.bundle
            rejected.append(Rejected(b.source, b.headers(), b.data, reason, arrived.queue, arrived.position))
    return sound, rejected


def slot_of(types: Types, bundle: Bundle) -> Slot:
    return bundle.source, bundle.type, types[bundle.type].slot_key(bundle)


def newest(types: Types, bundles: Iterable[Arrived]) -> dict[Slot, Arrived]:
    """Of complete bundles the newest of each site and type, of others the first of each id; in the order they were read."""
    kept: dict[Slot, Arrived] = {}
    for arrived in bundles:
        slot = slot_of(types, arrived.bundle)
        before = kept.setdefault(slot, arrived)
        if arrived.bundle.mode is Mode.COMPLETE and before.bundle.version < arrived.bundle.version:
            kept[slot] = arrived
    return dict(sorted(kept.items(), key=lambda item: (item[1].queue, item[1].position)))


def restores(bundle: Bundle) -> bool:
    """With it a resync begins: what came before it no longer matters."""
    if bundle.mode is not Mode.HYBRID or b'"resync' not in bundle.data:
        return False
    try:
        document = loads(bundle.data)
    except Invalid:
        return False
    return isinstance(document, dict) and any(document.get(name) is not None for name in ("resync", "resync_metadata"))


def _upsert(conn: psycopg.Connection[Any], types: Types, kept: Mapping[Slot, Arrived]) -> tuple[list[Waiting], Counter[str]]:
    """What waits now that did not before; and how many rows of each site came to be."""
    if not kept:
        return [], Counter()
    restoring = {slot for slot, arrived in awake(conn, kept.items()) if restores(arrived.bundle)}
    conn.execute(_STAGE)
    with conn.cursor() as cursor:
        with cursor.copy(_COPY) as copy:
            copy.set_types([*_STAGED.values(), "float8", "int4"])
            for place, (slot, arrived) in enumerate(kept.items()):
                copy.write_row((*_row(slot, arrived, slot in restoring), arrived.sent, place))
        returned = cursor.execute(_UPSERT).fetchall()
    inserted = Counter(site for site, *_, is_new in returned if is_new)
    return [
        _waiting(types, kept[slot].bundle, arrival, since, slot in restoring)
        for *found, arrival, since, _ in awake(conn, returned)
        for slot in [(found[0], found[1], found[2])]
    ], inserted


def _row(slot: Slot, arrived: Arrived, is_restoring: bool) -> tuple[object, ...]:
    bundle = arrived.bundle
    needs = bundle.dependency
    return (
        *slot, str(bundle.mode), bundle.version.incarnation, bundle.version.generation, bundle.value,
        *((needs.type, needs.version.incarnation, needs.version.generation) if needs else (None, None, None)),
        is_restoring, Jsonb(bundle.headers(), dumps), bundle.data, arrived.queue, arrived.position,
    )  # fmt: skip


def _waiting(types: Types, bundle: Bundle, arrival: int, since: float, is_restoring: bool) -> Waiting:
    declared = types[bundle.type]
    needs = bundle.dependency
    return Waiting(
        bundle.source, declared.group, bundle.type, declared.slot_key(bundle), bundle.version,
        needs.version if needs else None, needs.type if needs else None, declared.match, bundle.mode, declared.priority,
        since, arrival, is_restoring,
    )  # fmt: skip


def _quarantine(conn: psycopg.Connection[Any], rejected: Sequence[Rejected]) -> None:
    if not rejected:
        return
    with conn.cursor() as cursor, cursor.copy(_REFUSE) as copy:
        for r in rejected:
            headers = {_text(name): _text(value) for name, value in r.headers.items()}
            copy.write_row((r.site, Jsonb(headers, dumps), r.payload, _text(r.reason), r.queue, r.position))


def _text(value: str) -> str:
    """What Postgres can keep of it: no text of its has a NUL character."""
    return value.replace("\x00", "\\x00")


def _by_site(bundles: Iterable[Arrived]) -> Counter[str]:
    return Counter(arrived.bundle.source for arrived in bundles)


def _by_rejected(rejected: Iterable[Rejected]) -> Counter[str]:
    return Counter(r.site for r in rejected)


def _tallies(
    batch: Batch, refused: Counter[str], past: Counter[str], inserted: Counter[str], joined: Joined
) -> dict[str, Tally]:
    """All that was received went somewhere; what went nowhere else met one that already waited."""
    wholes, unkept = _by_site(joined.wholes), Counter(batch.unkept)
    return {
        site: Tally(
            received=n, rejected=refused[site], stale=past[site], joined=joined.taken[site] - wholes[site],
            conflated=n - refused[site] - past[site] - inserted[site] - joined.kept[site] + wholes[site] - unkept[site],
            discarded=unkept[site],
        )
        for site, n in batch.counts.items()
    }  # fmt: skip


def _require_offsets(conn: psycopg.Connection[Any], group: str, plan: Plan) -> None:
    conn.execute(_LOCK_OFFSETS, (group,))
    stored = read_offsets(conn, group)
    if not same_offsets(stored, plan.start):
        raise Terminal(
            f"batch of {group}", f"it begins at {dict(plan.start)}, the offsets stand at {stored}",
            "start the query anew from the stored offsets",
        )  # fmt: skip


def _store_offsets(conn: psycopg.Connection[Any], group: str, plan: Plan) -> None:
    conn.execute(_STORE_OFFSETS, (group, list(plan.end), list(plan.end.values())))
    closed = conn.execute(_CLOSE_PLAN, (group, Jsonb(dict(plan.start)), Jsonb(dict(plan.end)))).rowcount
    if closed != 1:
        raise Terminal(f"batch of {group}", "its plan is not the open one", "start the query anew from the stored offsets")
