"""Offsets, plans, gaps and changed topics in Postgres.

O1  At most one plan is open per reader group, committed under the lease before its end is named (H29).
O2  Offsets move in the transaction that writes the rows, locked, and only from where the plan begins (H28); anything else
    raises and leaves nothing behind.
O3  Within one topic id an offset only grows. Another id replaces it, and the change is recorded with it (H31).
O4  Gaps are recorded in the same transaction, so each is recorded once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
import psycopg
from psycopg.types.json import Jsonb

from trunkline.core.errors import Terminal
from trunkline.db.lease import Grant, commit_fenced
from trunkline.pipeline.kafka.judge import Standing
from trunkline.pipeline.kafka.plan import Plan, stand_of

_OFFSETS = "SELECT topic, partition, topic_id, next_offset FROM pipeline.kafka_offset WHERE reader_group = %s"
_LOCK = """
SELECT 1 FROM pipeline.kafka_offset WHERE reader_group = %s AND topic = ANY (%s) ORDER BY topic, partition FOR UPDATE
"""
_OPEN = "SELECT stand, moves, changes, epoch FROM pipeline.kafka_plan WHERE reader_group = %s"
_PLAN = """
INSERT INTO pipeline.kafka_plan (reader_group, epoch, stand, moves, changes) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (reader_group) DO UPDATE
   SET epoch = excluded.epoch, stand = excluded.stand, moves = excluded.moves, changes = excluded.changes, planned_at = now()
"""
_CLOSE = "DELETE FROM pipeline.kafka_plan WHERE reader_group = %s AND stand = %s AND moves = %s AND changes = %s"
_STORE = """
INSERT INTO pipeline.kafka_offset AS o (reader_group, topic, partition, topic_id, next_offset)
SELECT %s, * FROM unnest(%s::text[], %s::int[], %s::text[], %s::bigint[])
ON CONFLICT (reader_group, topic, partition) DO UPDATE SET next_offset = excluded.next_offset, updated_at = now()
 WHERE o.topic_id = excluded.topic_id AND o.next_offset < excluded.next_offset
"""
_FORGET = "DELETE FROM pipeline.kafka_offset WHERE reader_group = %s AND topic = ANY (%s)"
_CHANGED = """
INSERT INTO pipeline.kafka_change (reader_group, topic, old_id, new_id, stood) VALUES (%s, %s, %s, %s, %s)
"""
_LOST = """
INSERT INTO pipeline.kafka_gap (reader_group, topic, partition, topic_id, from_offset, to_offset)
VALUES (%s, %s, %s, %s, %s, %s)
"""
_REMEMBERED = """
SELECT DISTINCT ON (topic) topic, old_id, stood FROM pipeline.kafka_change
 WHERE reader_group = %s AND old_id = ANY (%s) AND new_id IS NULL ORDER BY topic, id DESC
"""


def read_offsets(conn: psycopg.Connection[Any], group: str) -> dict[str, Standing]:
    offsets: dict[str, Standing] = {}
    for topic, partition, topic_id, following in conn.execute(_OFFSETS, (group,)):
        offsets.setdefault(topic, Standing(topic_id, {})).next[partition] = following
    return offsets


def remembered(conn: psycopg.Connection[Any], group: str, topic_ids: Collection[str]) -> dict[str, Standing]:
    """Where topics stood that were taken for deleted: one that is back with its id had only been out of sight."""
    if not topic_ids:
        return {}
    rows = conn.execute(_REMEMBERED, (group, list(topic_ids))).fetchall()
    return {topic: Standing(old_id, {int(p): n for p, n in stood.items()}) for topic, old_id, stood in rows}


def begin_at(conn: psycopg.Connection[Any], group: str, standings: Mapping[str, Standing]) -> None:
    """Topics that were not read yet. The caller commits, fenced."""
    rows = [(topic, p, at.id, offset) for topic, at in standings.items() for p, offset in at.next.items()]
    if rows:
        conn.execute(_STORE, (group, *([*column] for column in zip(*rows, strict=True))))


def open_plan(conn: psycopg.Connection[Any], group: str) -> Plan | None:
    row = conn.execute(_OPEN, (group,)).fetchone()
    if row is None:
        return None
    return msgspec.convert(dict(zip(("stand", "moves", "changes", "epoch"), row, strict=True)), Plan, str_keys=True)


def commit_plan(conn: psycopg.Connection[Any], grant: Grant, group: str, plan: Plan) -> None:
    conn.execute(_PLAN, (group, grant.epoch, plan.stand, _json(plan.moves), _json(plan.changes)))
    commit_fenced(conn, grant)


def move_offsets(conn: psycopg.Connection[Any], group: str, plan: Plan) -> None:
    """Closes `plan` and stores all it says. For the transaction that writes the batch's rows; its owner commits it, fenced."""
    store_offsets(conn, group, plan)
    closed = conn.execute(_CLOSE, (group, plan.stand, _json(plan.moves), _json(plan.changes))).rowcount
    if closed != 1:
        raise _not_open(group)


def store_offsets(conn: psycopg.Connection[Any], group: str, plan: Plan) -> None:
    """The same for a plan that is kept elsewhere."""
    touched = {m.topic for m in plan.moves} | {c.topic for c in plan.changes}
    conn.execute(_LOCK, (group, sorted(touched)))
    _require_stand(conn, group, plan)
    _record(conn, group, plan)
    columns = ([getattr(m, name) for m in plan.moves] for name in ("topic", "partition", "id", "end"))
    if conn.execute(_STORE, (group, *columns)).rowcount != len(plan.moves):
        raise _not_open(group)


def _not_open(group: str) -> Terminal:
    return Terminal(f"batch of {group}", "its plan is not the open one", "start the query anew from the stored offsets")


def _require_stand(conn: psycopg.Connection[Any], group: str, plan: Plan) -> None:
    stored = read_offsets(conn, group)
    if stand_of(stored) != plan.stand:
        starts = {f"{m.topic}/{m.partition}": m.start for m in plan.moves}
        stands = {f"{t}/{p}": n for t, standing in stored.items() for p, n in standing.next.items()}
        differ = {place: (start, stands.get(place)) for place, start in starts.items() if start != stands.get(place)}
        why = f"it does not begin where the offsets stand; (planned, stored): {dict(list(differ.items())[:5])}"
        raise Terminal(f"batch of {group}", why, "start the query anew from the stored offsets")


def _record(conn: psycopg.Connection[Any], group: str, plan: Plan) -> None:
    with conn.cursor() as cursor:
        if plan.changes:
            cursor.execute(_FORGET, (group, [c.topic for c in plan.changes]))
            rows = ((group, c.topic, c.old.id, c.new_id, Jsonb(c.old.next)) for c in plan.changes)
            cursor.executemany(_CHANGED, rows)
        gaps = [(group, g.topic, g.partition, g.id, g.first, g.end) for g in plan.gaps()]
        if gaps:
            cursor.executemany(_LOST, gaps)


def _json(parts: Iterable[msgspec.Struct]) -> Jsonb:
    return Jsonb(msgspec.to_builtins(list(parts), str_keys=True))
