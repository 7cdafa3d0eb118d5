"""How far every destination says it is in this site's log, kept at the origin.

A destination has a *generation*: it grows when the destination begins anew (restored, or its positions reset). A
newer generation replaces whatever an older one said, also by a lower position; within one generation a position only
grows (H12). All of this works in the caller's transaction, which the caller commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

from trunkline.core.ids import Position

_ACKNOWLEDGE = """
INSERT INTO queues.acknowledged AS a (destination, client, generation, seq, mark)
SELECT %(destination)s, client, %(generation)s, seq, mark
  FROM unnest(%(clients)s::text[], %(seqs)s::bigint[], %(marks)s::bigint[]) AS said(client, seq, mark)
ON CONFLICT (destination, client) DO UPDATE
   SET generation = excluded.generation, seq = excluded.seq, mark = excluded.mark, updated_at = now()
 WHERE (excluded.generation, excluded.seq) > (a.generation, a.seq)
"""
_AT_BASE = """
WITH there AS (
    DELETE FROM queues.needs_snapshot WHERE destination = %(destination)s AND client = %(client)s
)
INSERT INTO queues.acknowledged AS a (destination, client, generation, seq, mark)
VALUES (%(destination)s, %(client)s, 0, %(seq)s, %(mark)s)
ON CONFLICT (destination, client) DO UPDATE SET seq = excluded.seq, mark = excluded.mark, updated_at = now()
 WHERE excluded.seq > a.seq
"""


def acknowledge_many(
    conn: psycopg.Connection[Any], destination: str, generation: int, positions: Mapping[str, Position]
) -> None:
    """Of one destination, by client."""
    if not positions:
        return
    clients = sorted(positions)
    asked = {"destination": destination, "generation": generation, "clients": clients}
    places = {"seqs": [positions[c].seq for c in clients], "marks": [positions[c].mark for c in clients]}
    conn.execute(_ACKNOWLEDGE, {**asked, **places})


def acknowledge(conn: psycopg.Connection[Any], destination: str, client: str, generation: int, position: Position) -> None:
    acknowledge_many(conn, destination, generation, {client: position})


def acknowledge_base(conn: psycopg.Connection[Any], destination: str, client: str, base: Position) -> None:
    """It has applied a snapshot: entries after the base are kept for it from now on, whenever its next word comes (H18)."""
    conn.execute(_AT_BASE, {"destination": destination, "client": client, "seq": base.seq, "mark": base.mark})


def generations(conn: psycopg.Connection[Any]) -> dict[str, int]:
    """By destination, the newest that it spoke in."""
    return dict(conn.execute("SELECT destination, max(generation) FROM queues.acknowledged GROUP BY destination").fetchall())


def acknowledged(conn: psycopg.Connection[Any]) -> dict[tuple[str, str], Position]:
    rows = conn.execute("SELECT destination, client, seq, mark FROM queues.acknowledged")
    return {(destination, client): Position(seq, mark) for destination, client, seq, mark in rows}
