"""DB syncer: applies what waits of one type, of one site or of many, in one transaction.

A1  Late binding: what is applied is what the inbox holds when the worker is there. Rows are read without a lock, so an apply
    never holds intake; they leave late in the transaction, and only as they were read (H35).
A2  Own ledger rows are locked FOR UPDATE, those of the base FOR SHARE, in the order of sites; what may be written is judged
    against them (`trunkline.bridge.judgement`), so no row becomes visible before the row its bundle depends on (H34, G6).
A3  Whether a type is held is read in the snapshot of its bundles: what came after a loss is never seen without it (H37).
A4  An applied base makes the deltas needless that came before it; what it or a resync makes up for is settled with it.
A5  A row that did not change is not written.
A6  The fence is last (H01).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import psycopg

from trunkline.bridge.handler import Handler, Work, Written
from trunkline.bridge.judgement import Decision, Entry, Facts, Verdict, judge
from trunkline.bridge.settle import Applied, settle
from trunkline.bridge.tables import RowsHandler
from trunkline.bridge.types import BundleType, Types
from trunkline.core.bundle import Mode, Version
from trunkline.core.errors import Invalid, Retryable
from trunkline.db.lease import Grant, commit_fenced

WAVE_BYTES = 16 * 2**20
MOST_BUNDLES = 1_000

# `held`: since when. What restores must have come after that, and be newer than what was set aside: other parts of the resync
# that failed are neither.
_READ = """
SELECT site, held, key, incarnation, generation, coalesce(value, generation), dependency_incarnation, dependency_generation,
       arrival, restores, event_time, arrived_at, queue, position, headers->>'ce_id', headers->>'ce_time', data
  FROM (SELECT w.site, w.held IS NOT NULL AS held, w.place, i.*,
               sum(octet_length(i.data)) OVER (ORDER BY w.place, i.arrival) - octet_length(i.data) AS before
          FROM (SELECT site, place,
                       (SELECT max(r.wanted_at) FROM bridge.resync AS r WHERE %(ordered)s AND r.site = s.site
                           AND r.holds IS NOT NULL AND (r.holds = %(type)s OR r.type = %(base)s)) AS held
                  FROM unnest(%(sites)s::text[]) WITH ORDINALITY AS s (site, place)) AS w
          LEFT JOIN LATERAL (
               SELECT i.key, i.incarnation, i.generation, i.value, i.dependency_incarnation, i.dependency_generation,
                      i.arrival, i.restores, i.event_time, i.arrived_at, i.queue, i.position, i.headers, i.data
                 FROM bridge.inbox AS i
                WHERE i.site = w.site AND i.type = %(type)s AND {mode}
                  AND (w.held IS NULL OR i.arrival >= (
                       SELECT min(b.arrival) FROM bridge.inbox AS b
                        WHERE b.site = w.site AND b.type = %(type)s AND b.mode <> 'complete' AND b.restores
                          AND b.arrived_at > w.held AND NOT EXISTS (SELECT FROM bridge.quarantine AS q
                                           WHERE q.site = b.site AND q.type = b.type AND q.state = 'open'
                                             AND (q.incarnation, q.generation) >= (b.incarnation, b.generation))))
                ORDER BY i.arrival LIMIT %(most)s) AS i ON true) AS waiting
 WHERE before < %(bytes)s OR before IS NULL
 ORDER BY place, arrival
"""
_READ_BY_MODE = {
    mode: _READ.format(mode="i.key = ''" if mode is Mode.COMPLETE else "i.mode <> 'complete'") for mode in Mode
}  # as the indexes say it
_OWN = """
SELECT site, incarnation, generation, value FROM bridge.ledger WHERE type = %s AND site = ANY(%s) ORDER BY site FOR UPDATE
"""
_BASE = """
SELECT site, incarnation, value FROM bridge.ledger WHERE type = %s AND site = ANY(%s) ORDER BY site FOR SHARE
"""

_ROWS = RowsHandler()


class Outcome(msgspec.Struct, frozen=True):
    """Of one site, committed. `named` is the ledger's. `upto`: what arrived by then has left the inbox. `released`: a type that
    was held until now."""

    site: str
    verdict: Verdict
    applied: Version | None = None
    named: Version | None = None
    upto: int | None = None
    released: str | None = None


class Found(msgspec.Struct, frozen=True):
    """What waits of a site, what was decided of it, and the named version of its type that is applied now."""

    site: str
    decision: Decision
    named: Version | None

    def outcome(self, released: str | None = None) -> Outcome:
        done, upto = self.decision.applied, self.decision.upto
        if not done:
            return Outcome(self.site, self.decision.verdict, None, self.named, upto)
        return Outcome(self.site, Verdict.APPLIED, done[-1].version, self.decision.newest.named, upto, released)


# What the type needs is not there, not permitted or slow: no bundle's fault, and no other type's.
_OF_ITS_TYPE = (
    psycopg.NotSupportedError,
    psycopg.errors.QueryCanceled,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedObject,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.InsufficientPrivilege,
)
_ITS_OWN = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.ProgrammingError,
    psycopg.errors.ProgramLimitExceeded,
)


def is_of_its_type(error: BaseException) -> bool:
    """Others may well be applied meanwhile, and so may the same bundle later."""
    return isinstance(error, _OF_ITS_TYPE)


def is_elsewhere(error: BaseException) -> bool:
    """The failure is not the bundle's: the same bundle may well be written later."""
    if isinstance(error, psycopg.Error):
        return is_of_its_type(error) or not isinstance(error, _ITS_OWN)
    return isinstance(error, Retryable | OSError | MemoryError) or not isinstance(error, Exception)


def apply_wave(
    conn: psycopg.Connection[Any],
    grant: Grant,
    types: Types,
    type_name: str,
    sites: Sequence[str],
    most: int = MOST_BUNDLES,
) -> list[Outcome]:
    """All of them or, after an error, none. Sites that did not fit into one transaction are left out of the answer."""
    try:
        declared = types[type_name]
        found = look(conn, declared, sites, most)
        written = write(conn, declared, found)
        return finish(conn, grant, types, declared, found, written)
    except BaseException:
        conn.rollback()
        raise


def look(conn: psycopg.Connection[Any], declared: BundleType, sites: Sequence[str], most: int) -> list[Found]:
    waiting, held = _read(conn, declared, sites, most)
    ledger = conn.execute(_OWN, (declared.name, sorted(waiting))).fetchall()
    own = {site: (Version(i, g), Version(i, v)) for site, i, g, v in ledger}
    base = _lock_base(conn, declared, waiting)
    found = []
    for site, entries in waiting.items():
        version, named = own.get(site, (None, None))
        decision = judge(declared, entries, Facts(version, base.get(site), site in held), most)
        found.append(Found(site, decision, named))
    return found


def _read(
    conn: psycopg.Connection[Any], declared: BundleType, sites: Sequence[str], most: int
) -> tuple[dict[str, list[Entry]], set[str]]:
    values = {
        "type": declared.name, "base": declared.depends_on, "ordered": declared.mode.is_ordered, "sites": list(sites),
        "most": most, "bytes": WAVE_BYTES,
    }  # fmt: skip
    waiting: dict[str, list[Entry]] = {}
    held = set()
    for row in conn.execute(_READ_BY_MODE[declared.mode], values, binary=True).fetchall():
        entries = waiting.setdefault(row[0], [])
        if row[1]:
            held.add(row[0])
        if row[2] is not None:
            entries.append(_entry(row))
    return waiting, held


def _entry(row: tuple[Any, ...]) -> Entry:
    _, _, key, incarnation, generation, value, needs_run, needs, arrival, restores, event_time, arrived_at, queue, position, \
        id_, time, data = row  # fmt: skip
    dependency = Version(needs_run, needs) if needs is not None else None
    version, named = Version(incarnation, generation), Version(incarnation, value)
    return Entry(
        key, version, named, dependency, arrival, restores, event_time, arrived_at, queue, position, id_ or "", time or "", data
    )


def _lock_base(
    conn: psycopg.Connection[Any], declared: BundleType, waiting: Mapping[str, Iterable[Entry]]
) -> dict[str, Version]:
    sites = sorted(site for site, entries in waiting.items() if any(entry.dependency for entry in entries))
    if not sites or declared.depends_on is None:
        return {}
    return {site: Version(i, v) for site, i, v in conn.execute(_BASE, (declared.depends_on, sites)).fetchall()}


def write(conn: psycopg.Connection[Any], declared: BundleType, found: Sequence[Found]) -> Mapping[str, Written]:
    if declared.needs_dependency and any(e.dependency is None for one in found for e in one.decision.applied):
        why = f"it names no version of {declared.depends_on} that it was made for"
        raise Invalid(f"bundle of type {declared.name}", why, "send it with a dependency")
    parts = [(one.site, tuple(entry.part for entry in one.decision.applied)) for one in found]
    work = [Work(site, applied) for site, applied in parts if applied]
    handler: Handler = declared.handler or _ROWS
    return handler.write(conn, declared, work) if work else {}


def finish(
    conn: psycopg.Connection[Any],
    grant: Grant,
    types: Types,
    declared: BundleType,
    found: Sequence[Found],
    written: Mapping[str, Written],
) -> list[Outcome]:
    """Settles and commits; where nothing leaves, nothing was done."""
    deciding = [one for one in found if one.decision.leaving]
    if not deciding:
        conn.rollback()
        return [one.outcome() for one in found]
    applied = [Applied(one.site, one.decision, one.named) for one in deciding if one.decision.applied]
    released = settle(conn, types, declared, {one.site: one.decision for one in deciding}, applied, written)
    commit_fenced(conn, grant)
    return [one.outcome(released.get(one.site)) for one in found]
