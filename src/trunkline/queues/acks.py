"""How far every destination says it is in this site's log, kept at the origin.

A destination has a *generation*: it grows when the destination begins anew (restored, or its positions reset). A
newer generation replaces whatever an older one said, also by a lower position; within one generation a position only
grows (H12). All of this works in the caller's transaction, which the caller commits.
"""

from __future__ import annotations

from typing import Any

import psycopg

from trunkline.core.ids import Position

_ACKNOWLEDGE = """
INSERT INTO queues.acknowledged AS a (destination, client, generation, seq, mark)
VALUES (%(destination)s, %(client)s, %(generation)s, %(seq)s, %(mark)s)
ON CONFLICT (destination, client) DO UPDATE
   SET generation = excluded.generation, seq = excluded.seq, mark = excluded.mark, updated_at = now()
 WHERE (excluded.generation, excluded.seq) > (a.generation, a.seq)
"""


def acknowledge(conn: psycopg.Connection[Any], destination: str, client: str, generation: int, position: Position) -> None:
    asked = {"destination": destination, "client": client, "generation": generation}
    conn.execute(_ACKNOWLEDGE, {**asked, "seq": position.seq, "mark": position.mark})


def generations(conn: psycopg.Connection[Any]) -> dict[str, int]:
    """By destination, the newest that it spoke in."""
    return dict(conn.execute("SELECT destination, max(generation) FROM queues.acknowledged GROUP BY destination").fetchall())


def acknowledged(conn: psycopg.Connection[Any]) -> dict[tuple[str, str], Position]:
    rows = conn.execute("SELECT destination, client, seq, mark FROM queues.acknowledged")
    return {(destination, client): Position(seq, mark) for destination, client, seq, mark in rows}
