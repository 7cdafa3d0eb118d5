"""DB syncer: applies the newest bundle of one (site, type, key) in one transaction.

A1  Late binding: what is applied is what the inbox holds when the worker is there. The row is read without a lock, so
    an apply never holds intake; it leaves late in the transaction and only if it is still the version applied (H35).
A2  Strictly newer than the ledger, else dropped as stale: status never goes backward. Append bundles have no order among
    themselves; they are idempotent by the keys of their rows.
A3  The dependency is checked again here, against the ledger row locked FOR SHARE (H34), so no row becomes visible
    before the row its bundle depends on (G6).
A4  A row that did not change is not written.
A5  The fence is last (H01).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import psycopg

from trunkline.bridge.counters import Tally, count
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.tables import write_rows
from trunkline.bridge.types import BundleType
from trunkline.core.bundle import Dependency, Mode, Version
from trunkline.db.lease import Grant, commit_fenced

_NEWEST = """
SELECT incarnation, generation, dependency_type, dependency_incarnation, dependency_generation, data
  FROM bridge.inbox WHERE site = %s AND type = %s AND key = %s
"""
_OWN = "SELECT incarnation, generation FROM bridge.ledger WHERE site = %s AND type = %s FOR UPDATE"
_BASE = "SELECT incarnation, generation FROM bridge.ledger WHERE site = %s AND type = %s FOR SHARE"
_ADVANCE = """
INSERT INTO bridge.ledger AS l (site, type, incarnation, generation, value) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (site, type) DO UPDATE
   SET incarnation = excluded.incarnation, generation = excluded.generation, value = excluded.value, applied_at = now()
 WHERE (l.incarnation, l.generation) < (excluded.incarnation, excluded.generation)
"""
_LEAVE = """
DELETE FROM bridge.inbox WHERE site = %s AND type = %s AND key = %s AND incarnation = %s AND generation = %s
"""
_QUARANTINE = """
INSERT INTO bridge.quarantine (site, type, key, incarnation, generation, headers, payload, reason, queue, position)
SELECT site, type, key, incarnation, generation, headers, data, %s, queue, position FROM bridge.inbox
 WHERE site = %s AND type = %s AND key = %s AND incarnation = %s AND generation = %s
"""


@dataclass(frozen=True)
class _Found:
    site: str
    type: str
    key: str
    version: Version
    dependency: Dependency | None
    data: bytes

    @property
    def row(self) -> tuple[str, str, str, int, int]:
        return self.site, self.type, self.key, self.version.incarnation, self.version.generation


def apply_bundle(conn: psycopg.Connection[Any], grant: Grant, site: str, type_: str, key: str) -> Version | None:
    """The version applied and committed; None if nothing waits, or it is stale, or its dependency is not met."""
    try:
        applied = _apply(conn, grant, site, type_, key)
        if applied is None:
            conn.rollback()
        return applied
    except BaseException:
        conn.rollback()
        raise


def _apply(conn: psycopg.Connection[Any], grant: Grant, site: str, type_: str, key: str) -> Version | None:
    found = _newest(conn, site, type_, key)
    if found is None:
        return None
    declared = SHIPPED[type_]
    if declared.mode is Mode.COMPLETE and not _is_newer(conn, found):
        _leave(conn, found, Tally(stale=1))
        commit_fenced(conn, grant)
        return None
    if not _dependency_met(conn, found):
        return None
    _write(conn, declared, found)
    commit_fenced(conn, grant)
    return found.version


def _newest(conn: psycopg.Connection[Any], site: str, type_: str, key: str) -> _Found | None:
    row = conn.execute(_NEWEST, (site, type_, key)).fetchone()
    if row is None:
        return None
    incarnation, generation, needs, needs_incarnation, needs_generation, data = row
    dependency = Dependency(needs, Version(needs_incarnation, needs_generation)) if needs else None
    return _Found(site, type_, key, Version(incarnation, generation), dependency, data)


def _is_newer(conn: psycopg.Connection[Any], found: _Found) -> bool:
    row = conn.execute(_OWN, (found.site, found.type)).fetchone()
    return row is None or Version(*row) < found.version


def _dependency_met(conn: psycopg.Connection[Any], found: _Found) -> bool:
    if found.dependency is None:
        return True
    row = conn.execute(_BASE, (found.site, found.dependency.type)).fetchone()
    return row is not None and Version(*row) >= found.dependency.version


def _write(conn: psycopg.Connection[Any], declared: BundleType, found: _Found) -> None:
    rows = declared.rows(found.data)
    written = write_rows(conn, declared, found.site, rows)
    conn.execute(_ADVANCE, (found.site, found.type, found.version.incarnation, *[found.version.generation] * 2))
    _leave(conn, found, Tally(applied=1, rows_received=len(rows), rows_written=written))


def _leave(conn: psycopg.Connection[Any], found: _Found, tally: Tally) -> None:
    """What replaced it meanwhile stays. Intake counted this one as conflated then, which holds only if it was stale."""
    if conn.execute(_LEAVE, found.row).rowcount:
        count(conn, {found.site: tally})
    elif tally.applied:
        count(conn, {found.site: replace(tally, conflated=-1)})


def quarantine_bundle(
    conn: psycopg.Connection[Any], grant: Grant, site: str, type_: str, key: str, version: Version, reason: str
) -> bool:
    """Moves the bundle out of the way, with payload and reason; False if a newer one has replaced it."""
    row = (site, type_, key, version.incarnation, version.generation)
    try:
        moved = conn.execute(_QUARANTINE, (reason, *row)).rowcount == 1
        if moved and conn.execute(_LEAVE, row).rowcount == 1:
            count(conn, {site: Tally(quarantined=1)})
            commit_fenced(conn, grant)
            return True
        conn.rollback()
        return False
    except BaseException:
        conn.rollback()
        raise
