"""A snapshot whose provider reads elsewhere than in the exported snapshot: which entries its records may know already.

What it read is of some instant before it ended. All that was committed by then may be in it, also what is not in the log yet.
So once everything committed is stamped, the log's head is the bound: entries after the base and up to there are applied on
a state that may know them, and the listener is told so (H19).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

_UNSTAMPED = """
WITH stood AS (SELECT cursor, holes FROM queues.stamp ORDER BY first_seq DESC LIMIT 1)
SELECT ARRAY(SELECT ticket FROM queues.ticket WHERE ticket > coalesce((SELECT cursor FROM stood), 0)
             UNION ALL
             SELECT ticket FROM queues.ticket WHERE ticket = ANY(ARRAY(SELECT unnest(holes) FROM stood)))
"""
_LEFT = "SELECT ARRAY(SELECT ticket FROM queues.ticket WHERE ticket = ANY(%s))"
_HEAD = "SELECT coalesce(max(last_seq), 0) FROM queues.stamp"


def known_upto(conn: psycopg.Connection[Any], go_on: Callable[[], bool]) -> int | None:
    """The seq up to which entries may be known to who has read by now; `conn` is in autocommit. Waits for the stamper, and asks
    before each look whether to go on; None: no longer."""
    waits = _one(conn, _UNSTAMPED)
    while waits:
        if not go_on():
            return None
        waits = _one(conn, _LEFT, waits)
    return int(_one(conn, _HEAD))


def _one(conn: psycopg.Connection[Any], query: str, *values: Any) -> Any:
    row = conn.execute(query.encode(), values or None).fetchone()
    assert row is not None
    return row[0]
