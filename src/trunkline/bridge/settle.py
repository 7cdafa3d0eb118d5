"""The end of an apply: the ledger goes on, the bundles leave the inbox, what they make up for is settled, and all is counted.

In this order, which is that of intake: ledger, inbox, quarantine and wishes, counters. So the two never wait in a ring.
What was written and is in the inbox no more, not even as something newer, was taken away meanwhile, with its site perhaps: then
nothing was applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import psycopg

from trunkline.bridge.counters import Tally, count
from trunkline.bridge.handler import Written
from trunkline.bridge.judgement import Decision, Entry
from trunkline.bridge.types import BundleType, Match, Types
from trunkline.core.bundle import Mode, Version
from trunkline.core.errors import Retryable

_ADVANCE = """
INSERT INTO bridge.ledger AS l (site, type, incarnation, generation, value, event_time)
SELECT n.site, %s, n.incarnation, n.generation, n.value, nullif(n.event_time, '')::timestamptz
  FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[])
       AS n (site, incarnation, generation, value, event_time)
 ORDER BY n.site
ON CONFLICT (site, type) DO UPDATE
   SET incarnation = excluded.incarnation, generation = excluded.generation, value = excluded.value,
       event_time = coalesce(excluded.event_time, l.event_time), applied_at = now()
 WHERE (l.incarnation, l.generation) <= (excluded.incarnation, excluded.generation)
"""
_CLEAR = """
UPDATE bridge.quarantine AS q SET state = 'cleared', settled_at = now()
  FROM unnest(%(sites)s::text[], %(incarnations)s::bigint[], %(generations)s::bigint[]) AS n (site, incarnation, generation)
 WHERE q.state = 'open' AND q.site = n.site
   AND (q.type = %(type)s AND (q.incarnation, q.generation) <= (n.incarnation, n.generation)
        OR q.type = ANY(%(deltas)s) AND q.mode = 'delta')
"""
# What waited when the wish was made may be as old as what was lost.
_GRANT = """
DELETE FROM bridge.resync AS r USING unnest(%s::text[], %s::text[]) AS n (site, arrived_at)
 WHERE r.type = %s AND r.site = n.site AND r.wanted_at < nullif(n.arrived_at, '')::timestamptz
RETURNING r.site, r.holds
"""
# A base may be sent again under the name it had: then only its place in the queue tells which deltas are older than it.
_NEEDLESS = """
DELETE FROM bridge.inbox AS i
 USING unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[])
       AS n (site, queue, position, incarnation, value)
 WHERE i.site = n.site AND i.type = ANY(%s) AND i.mode = 'delta' AND i.queue = n.queue AND i.position < n.position
   AND i.dependency_incarnation IN (0, n.incarnation) AND i.dependency_generation = n.value
RETURNING i.site
"""
_DROP = """
DELETE FROM bridge.inbox AS i USING unnest(%s::text[], %s::bigint[]) AS n (site, arrival)
 WHERE i.site = n.site AND i.type = %s AND i.mode <> 'complete' AND i.arrival < n.arrival
RETURNING i.site
"""
_LEAVE = """
WITH leaving AS (
    SELECT i.site, i.key
      FROM unnest(%(sites)s::text[], %(keys)s::text[], %(incarnations)s::bigint[], %(generations)s::bigint[])
           AS n (site, key, incarnation, generation)
      JOIN bridge.inbox AS i ON i.site = n.site AND i.type = %(type)s AND i.key = n.key
       AND i.incarnation = n.incarnation AND i.generation = n.generation
     ORDER BY i.site, i.key FOR UPDATE OF i)
DELETE FROM bridge.inbox AS i USING leaving AS l WHERE i.site = l.site AND i.type = %(type)s AND i.key = l.key
RETURNING i.site, i.key
"""
_THERE = """
SELECT i.site, i.key FROM bridge.inbox AS i JOIN unnest(%s::text[], %s::text[]) AS n (site, key) USING (site, key)
 WHERE i.type = %s
"""

_NONE = Written(0, 0)


class Applied(msgspec.Struct, frozen=True):
    """A site of which something was written; `named` is what its ledger said before."""

    site: str
    decision: Decision
    named: Version | None


def settle(
    conn: psycopg.Connection[Any],
    types: Types,
    declared: BundleType,
    decisions: Mapping[str, Decision],
    applied: Sequence[Applied],
    written: Mapping[str, Written],
) -> dict[str, str | None]:
    """Sites whose resync has come, and the type that waited for it."""
    if applied:
        _advance(conn, declared, applied)
    tallies = _leave(conn, types, declared, decisions, applied, written)
    released = _make_up(conn, types, declared, applied)
    count(conn, tallies)
    return released


def _make_up(
    conn: psycopg.Connection[Any], types: Types, declared: BundleType, applied: Sequence[Applied]
) -> dict[str, str | None]:
    made_up = [(one, entry) for one in applied if (entry := _makes_up(declared, one.decision))]
    if not made_up:
        return {}
    _clear(conn, types, declared, [one for one, _ in made_up])
    arrivals = _texts(entry.arrived_at for _, entry in made_up)
    return dict(conn.execute(_GRANT, ([one.site for one, _ in made_up], arrivals, declared.name)).fetchall())


def _makes_up(declared: BundleType, decision: Decision) -> Entry | None:
    """The bundle that holds all the site has of this type, or with which that begins."""
    restoring = (entry for entry in reversed(decision.applied) if entry.restores)
    return next(restoring, None) if declared.mode.is_ordered else decision.applied[-1]


def _advance(conn: psycopg.Connection[Any], declared: BundleType, applied: Sequence[Applied]) -> None:
    rows = [(one.site, one.decision.newest) for one in applied]
    conn.execute(
        _ADVANCE,
        (
            declared.name,
            [site for site, _ in rows],
            [newest.version.incarnation for _, newest in rows],
            [newest.version.generation for _, newest in rows],
            [newest.named.generation for _, newest in rows],
            _texts(newest.event_time for _, newest in rows),
        ),
    )


def _texts(times: Iterable[datetime | None]) -> list[str]:
    """Empty for none. A list of times would be rendered one by one, slowly."""
    return ["" if time is None else time.isoformat() for time in times]


def _clear(conn: psycopg.Connection[Any], types: Types, declared: BundleType, applied: Sequence[Applied]) -> None:
    """What was appended and failed is made up for by nothing."""
    if declared.mode is Mode.APPEND:
        return
    versions = [one.decision.newest.version for one in applied]
    conn.execute(_CLEAR, {
        "type": declared.name, "deltas": _deltas(types, declared), "sites": [one.site for one in applied],
        "incarnations": [v.incarnation for v in versions], "generations": [v.generation for v in versions],
    })  # fmt: skip


def _deltas(types: Types, declared: BundleType) -> list[str]:
    return [one.name for one in types.dependents(declared.name) if one.mode is Mode.DELTA]


def _leave(
    conn: psycopg.Connection[Any],
    types: Types,
    declared: BundleType,
    decisions: Mapping[str, Decision],
    applied: Sequence[Applied],
    written: Mapping[str, Written],
) -> dict[str, Tally]:
    """What replaced a complete bundle meanwhile stays. Intake counted the other as conflated: wrong if it was applied."""
    dropped = _drop_before(conn, declared, decisions) + _drop_needless(conn, types, declared, applied)
    left = _delete(conn, declared, decisions)
    _require_there(conn, declared, {(one.site, entry.key) for one in applied for entry in one.decision.applied} - left)
    tallies = {}
    for site, decision in decisions.items():
        done, stale, outdated = (
            sum([(site, entry.key) in left for entry in entries]) if entries else 0
            for entries in (decision.applied, decision.stale, decision.outdated)
        )
        replaced = len(decision.applied) - done if declared.mode is Mode.COMPLETE else 0
        rows = written.get(site, _NONE)
        tallies[site] = Tally(
            conflated=-replaced, applied=done + replaced, stale=stale, discarded=outdated + dropped[site],
            rows_received=rows.received, rows_written=rows.written,
        )  # fmt: skip
    return tallies


def _require_there(conn: psycopg.Connection[Any], declared: BundleType, stay: set[tuple[str, str]]) -> None:
    if stay:
        sites, keys = map(list, zip(*stay, strict=True))
        gone = stay - set(conn.execute(_THERE, (sites, keys, declared.name)).fetchall())
        if gone:
            what = f"{declared.name} of {', '.join(sorted({site for site, _ in gone}))}"
            raise Retryable(what, "it was taken out of the inbox while it was applied", "the inbox is read again")


def _drop_before(conn: psycopg.Connection[Any], declared: BundleType, decisions: Mapping[str, Decision]) -> Counter[str]:
    drops = {site: d.drop_before for site, d in decisions.items() if d.drop_before is not None}
    if not drops:
        return Counter()
    gone = conn.execute(_DROP, (list(drops), list(drops.values()), declared.name)).fetchall()
    return Counter(site for (site,) in gone)


def _drop_needless(
    conn: psycopg.Connection[Any], types: Types, declared: BundleType, applied: Sequence[Applied]
) -> Counter[str]:
    exact = [name for name in _deltas(types, declared) if types[name].match is Match.EXACT]
    if not exact or declared.mode is not Mode.COMPLETE:
        return Counter()
    rows = [
        (one.site, one.decision.newest.queue, one.decision.newest.position, one.named.incarnation, one.named.generation)
        for one in applied
        if one.named is not None
    ]
    if not rows:
        return Counter()
    gone = conn.execute(_NEEDLESS, (*map(list, zip(*rows, strict=True)), exact)).fetchall()
    return Counter(site for (site,) in gone)


def _delete(conn: psycopg.Connection[Any], declared: BundleType, decisions: Mapping[str, Decision]) -> set[tuple[str, str]]:
    rows = [(site, entry) for site, decision in decisions.items() for entry in decision.leaving]
    gone = conn.execute(_LEAVE, {
        "type": declared.name, "sites": [site for site, _ in rows], "keys": [entry.key for _, entry in rows],
        "incarnations": [entry.version.incarnation for _, entry in rows],
        "generations": [entry.version.generation for _, entry in rows],
    })  # fmt: skip
    return set(gone.fetchall())
