"""What leaves the quarantine by itself, so that a sender that is wrong for ever does not fill the hub. In the caller's
transaction.

C1  Of complete bundles of one site and type only the newest can be of use: an older one that is open is cleared by it.
C2  What was dealt with is kept for some days, to be looked at.
C3  Of each site and type the newest few stay; what was dealt with goes before what is open. Whose type could not be told
    counts as one type.

Rows that somebody is dealing with are left for the next time, so nobody waits here and nobody is waited for.
"""

from __future__ import annotations

from typing import Any

import psycopg

MOST_AT_ONCE = 10_000

_CLEAR = """
UPDATE bridge.quarantine SET state = 'cleared', settled_at = now() WHERE id IN (
    SELECT q.id FROM bridge.quarantine q
     WHERE q.state = 'open' AND q.mode = 'complete' AND EXISTS (
           SELECT FROM bridge.quarantine n
            WHERE n.state = 'open' AND n.mode = 'complete' AND (n.site, n.type) = (q.site, q.type)
              AND (n.incarnation, n.generation) > (q.incarnation, q.generation))
     LIMIT %(at_once)s FOR UPDATE SKIP LOCKED)
"""
_SETTLED = """
DELETE FROM bridge.quarantine WHERE id IN (
    SELECT id FROM bridge.quarantine
     WHERE state <> 'open' AND settled_at < now() - make_interval(secs => 86400 * %(days)s::float8)
     LIMIT %(at_once)s FOR UPDATE SKIP LOCKED)
"""
_SURPLUS = """
DELETE FROM bridge.quarantine WHERE id IN (
    SELECT id FROM bridge.quarantine WHERE id IN (
        SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY site, type ORDER BY state = 'open' DESC, id DESC) AS nth
              FROM bridge.quarantine) numbered
         WHERE nth > %(most)s)
     LIMIT %(at_once)s FOR UPDATE SKIP LOCKED)
RETURNING site, state
"""


def clear_superseded(conn: psycopg.Connection[Any]) -> int:
    return conn.execute(_CLEAR, {"at_once": MOST_AT_ONCE}).rowcount


def drop_settled(conn: psycopg.Connection[Any], days: float) -> int:
    return conn.execute(_SETTLED, {"days": days, "at_once": MOST_AT_ONCE}).rowcount


def drop_surplus(conn: psycopg.Connection[Any], most: int) -> tuple[int, list[str]]:
    """How many went, and of which sites one went that was open."""
    gone = conn.execute(_SURPLUS, {"most": most, "at_once": MOST_AT_ONCE}).fetchall()
    return len(gone), sorted({site for site, state in gone if state == "open"})
