"""What has waited too long or is too much: each function works in the caller's transaction and says what it did.

E1  A chunk goes when nothing more of its bundle has come for a while; a resync makes up for the bundle.
E2  Of ordered bundles no more wait than may: when there are more they all go, for without the first the others are worth
    nothing. Their type is held until a resync is applied (H37).
    The same goes for what waits for a resync at all sites: of more than may, the longest rows go first. A row that has its
    answer behind it stays.
E3  A dependent whose base does not come is asked for by a resync of the base; it stays where it is.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg

from trunkline.bridge.counters import Tally, count
from trunkline.bridge.types import Types
from trunkline.bridge.wishes import Wish, to_ask, wish, wish_for

_EXPIRE = """
DELETE FROM bridge.chunk c USING (
    SELECT site, type, message, size FROM bridge.chunk GROUP BY site, type, message, size
    HAVING max(arrived_at) < now() - make_interval(secs => %s)
) AS old
 WHERE (c.site, c.type, c.message, c.size) = (old.site, old.type, old.message, old.size)
RETURNING c.site, c.type
"""
_ANY_OLD_CHUNK = "SELECT EXISTS (SELECT FROM bridge.chunk WHERE arrived_at < now() - make_interval(secs => %s))"
_SURPLUS = """
SELECT site, type FROM bridge.inbox WHERE mode IN ('delta', 'hybrid')
 GROUP BY site, type HAVING count(*) > %s ORDER BY site, type
"""
# From the shortest row to the longest, so that most sites keep theirs.
_STUCK = """
SELECT site, type
  FROM (SELECT i.site, i.type, sum(count(*)) OVER (ORDER BY count(*), i.site, i.type) AS upto
          FROM bridge.inbox AS i JOIN unnest(%s::text[], %s::text[]) AS t (type, asked) USING (type)
          JOIN bridge.resync AS r ON r.site = i.site AND r.type = t.asked
         WHERE i.mode IN ('delta', 'hybrid')
         GROUP BY i.site, i.type HAVING NOT bool_or(i.restores AND i.arrived_at > r.wanted_at)) AS stuck
 WHERE upto > %s ORDER BY site, type
"""
# The worker that applies them has this row, too: whatever it is doing, it is done before they go.
_LOCK_LEDGER = """
SELECT FROM bridge.ledger JOIN unnest(%s::text[], %s::text[]) AS k (site, type) USING (site, type)
 ORDER BY site, type FOR UPDATE OF ledger
"""
_DROP = "DELETE FROM bridge.inbox WHERE site = %s AND type = %s AND mode IN ('delta', 'hybrid')"
_WITHOUT_BASE = """
SELECT DISTINCT i.site, i.dependency_type, i.type
  FROM bridge.inbox i LEFT JOIN bridge.ledger l ON l.site = i.site AND l.type = i.dependency_type
 WHERE i.dependency_type IS NOT NULL AND i.arrived_at < now() - make_interval(secs => %s)
   AND (l.site IS NULL
        OR (CASE i.dependency_incarnation WHEN 0 THEN 0 ELSE l.incarnation END, l.value)
           < (i.dependency_incarnation, i.dependency_generation))
   AND NOT EXISTS (SELECT FROM bridge.inbox b WHERE b.site = i.site AND b.type = i.dependency_type)
   AND NOT EXISTS (SELECT FROM bridge.resync r WHERE r.site = i.site AND r.type = i.dependency_type)
 ORDER BY 1, 2, 3
"""


def expire_chunks(conn: psycopg.Connection[Any], types: Types, seconds: float) -> int:
    """Only when intake has caught up: while the bridge was down, the rest may have been sent."""
    if conn.execute(_ANY_OLD_CHUNK, (seconds,)).fetchone() != (True,):
        return 0
    gone = Counter(conn.execute(_EXPIRE, (seconds,)).fetchall())
    reason = f"the rest of a bundle did not come within {seconds:g} s"
    wishes = [wish_for(types, site, type_, reason) for site, type_ in gone if type_ in types]
    wish(conn, [one for one in wishes if one])
    sites = Counter[str]()
    for (site, _), chunks in gone.items():
        sites[site] += chunks
    count(conn, {site: Tally(expired=chunks) for site, chunks in sites.items()})
    return gone.total()


def drop_surplus(conn: psycopg.Connection[Any], types: Types, most: int) -> list[tuple[str, str]]:
    """The sites and types whose waiting deltas were dropped."""
    found: list[tuple[str, str]] = conn.execute(_SURPLUS, (most,)).fetchall()
    return _drop(conn, types, found, f"more than {most} bundles of {{type}} waited, and were dropped")


def drop_stuck(conn: psycopg.Connection[Any], types: Types, most: int) -> list[tuple[str, str]]:
    """The sites and types whose bundles were dropped because too many wait for a resync. They do not hold up intake, for it has
    yet to bring the answers."""
    asked = [(one.name, to_ask(types, one.name)) for one in types.values() if one.mode.is_ordered]
    columns = [list(column) for column in zip(*asked, strict=True)] or [[], []]
    found: list[tuple[str, str]] = conn.execute(_STUCK, (*columns, most)).fetchall()
    return _drop(conn, types, found, f"more than {most} bundles wait for a resync; those of {{type}} were dropped")


def _drop(conn: psycopg.Connection[Any], types: Types, found: list[tuple[str, str]], reason: str) -> list[tuple[str, str]]:
    """Waits for the workers before it has anything that others wait for."""
    if found:
        conn.execute(_LOCK_LEDGER, [list(column) for column in zip(*found, strict=True)])
    for site, type_ in found:
        dropped = conn.execute(_DROP, (site, type_)).rowcount
        wanted = wish_for(types, site, type_, reason.format(type=type_)) if type_ in types else None
        wish(conn, [wanted] if wanted else [])
        count(conn, {site: Tally(discarded=dropped)})
    return found


def want_bases(conn: psycopg.Connection[Any], seconds: float) -> int:
    found = conn.execute(_WITHOUT_BASE, (seconds,)).fetchall()
    wish(conn, [Wish(site, base, None, f"{type_} has waited for it for {seconds:g} s") for site, base, type_ in found])
    return len(found)
