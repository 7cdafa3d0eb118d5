"""Quarantine: bundles that failed at every try, with payload, reason and position, and what may become of them.

Q1  Setting aside costs the bundle alone. It is tried once more in the same transaction, so that what is set aside is what
    failed there, and nothing that came since.
Q2  A delta or hybrid that is set aside leaves a hole, and what follows it cannot be right: its type is held, and a resync is
    wanted until it comes (H37). For the same reason neither can be tried again later.
Q3  A complete bundle is tried again only while nothing newer is applied or waits; one that was appended, always.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from trunkline.bridge.apply import Found, Outcome, finish, is_elsewhere, look, write
from trunkline.bridge.counters import Tally, count
from trunkline.bridge.judgement import Entry, Verdict
from trunkline.bridge.types import BundleType, Types
from trunkline.bridge.wishes import wish, wish_for
from trunkline.core.bundle import Mode, Version
from trunkline.core.errors import Invalid
from trunkline.db.lease import Grant, commit_fenced

_MOVE = """
WITH leaving AS (
    DELETE FROM bridge.inbox WHERE site = %(site)s AND type = %(type)s {which}
    RETURNING site, type, key, incarnation, generation, value, mode, headers, data, queue, position)
INSERT INTO bridge.quarantine
       (site, type, key, incarnation, generation, value, mode, headers, payload, reason, queue, position)
SELECT site, type, key, incarnation, generation, value, mode, headers, data, %(reason)s, queue, position FROM leaving
"""
_MOVE_ONE = _MOVE.format(which="AND key = %(key)s AND incarnation = %(incarnation)s AND generation = %(generation)s")
_MOVE_ALL = _MOVE.format(which="")
_OPEN = """
SELECT state, site, type, mode, incarnation, generation FROM bridge.quarantine WHERE id = %s FOR UPDATE
"""
_NEWER = """
SELECT 'applied' FROM bridge.ledger WHERE site = %(site)s AND type = %(type)s AND (incarnation, generation) >= (%(i)s, %(g)s)
 UNION ALL
SELECT 'waiting' FROM bridge.inbox
 WHERE site = %(site)s AND type = %(type)s AND mode = 'complete' AND (incarnation, generation) >= (%(i)s, %(g)s)
"""
_BACK = """
INSERT INTO bridge.inbox AS b
       (site, type, key, incarnation, generation, value, mode, headers, data, queue, position,
        dependency_type, dependency_incarnation, dependency_generation)
SELECT q.site, q.type, q.key, q.incarnation, q.generation, q.value, q.mode, q.headers, q.payload, q.queue, q.position,
       d.parts[1], d.parts[2]::bigint, d.parts[3]::bigint
  FROM bridge.quarantine AS q
  LEFT JOIN LATERAL regexp_match(q.headers->>'ce_dependency', '^(.+)@([0-9]+)[.]([0-9]+)$') AS d (parts) ON true
 WHERE q.id = %s
ON CONFLICT (site, type, key) DO UPDATE
   SET incarnation = excluded.incarnation, generation = excluded.generation, value = excluded.value,
       headers = excluded.headers, data = excluded.data, queue = excluded.queue, position = excluded.position,
       dependency_type = excluded.dependency_type, dependency_incarnation = excluded.dependency_incarnation,
       dependency_generation = excluded.dependency_generation, arrived_at = now()
 WHERE b.key = ''
RETURNING xmax = 0
"""
_SETTLE = "UPDATE bridge.quarantine SET state = %s, settled_at = now() WHERE id = %s"


def apply_or_set_aside(
    conn: psycopg.Connection[Any], grant: Grant, types: Types, type_name: str, site: str, failed: Version
) -> tuple[Outcome, str]:
    """The next bundle of the site by itself; if it cannot be written it is set aside, and the reason is told. A complete one
    other than that which `failed` before is not: it has its own tries."""
    try:
        if type_name not in types:
            return _set_all_aside(conn, grant, type_name, site)
        declared = types[type_name]
        [found] = look(conn, declared, [site], 1)
        try:
            with conn.transaction():
                written = write(conn, declared, [found])
                conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except Exception as error:
            entry = found.decision.applied[0] if found.decision.applied else None
            if is_elsewhere(error) or entry is None or (declared.mode is Mode.COMPLETE and entry.version != failed):
                raise
            return _set_aside(conn, grant, types, declared, found, entry, str(error).strip()), str(error).strip()
        return finish(conn, grant, types, declared, [found], written)[0], ""
    except BaseException:
        conn.rollback()
        raise


def _set_aside(
    conn: psycopg.Connection[Any], grant: Grant, types: Types, declared: BundleType, found: Found, entry: Entry, reason: str
) -> Outcome:
    row = {
        "site": found.site, "type": declared.name, "key": entry.key, "reason": reason.replace("\x00", ""),
        "incarnation": entry.version.incarnation, "generation": entry.version.generation,
    }  # fmt: skip
    if not conn.execute(_MOVE_ONE, row).rowcount:  # it was replaced, or dropped, meanwhile
        conn.rollback()
        return Outcome(found.site, Verdict.NOTHING, None, found.named, entry.arrival)
    wanted = wish_for(types, found.site, declared.name, f"a bundle of {declared.name} could not be applied")
    if declared.mode.is_ordered and wanted is not None:
        wish(conn, [wanted])
    count(conn, {found.site: Tally(quarantined=1)})
    commit_fenced(conn, grant)
    return Outcome(found.site, Verdict.SET_ASIDE, None, found.named, entry.arrival)


def _set_all_aside(conn: psycopg.Connection[Any], grant: Grant, type_name: str, site: str) -> tuple[Outcome, str]:
    reason = f"bundles of type {type_name!r} are not declared here any more"
    moved = conn.execute(_MOVE_ALL, {"site": site, "type": type_name, "reason": reason}).rowcount
    count(conn, {site: Tally(quarantined=moved)})
    commit_fenced(conn, grant)
    return Outcome(site, Verdict.SET_ASIDE), reason


def retry(conn: psycopg.Connection[Any], id: int) -> None:
    """Back into the inbox, in the caller's transaction; raises `Invalid` where that cannot be right."""
    site, type_, mode, version = _open(conn, id)
    what = f"quarantined bundle {id}"
    if type_ is None or version is None or mode is None:
        raise Invalid(what, "it was refused when it came: it is no bundle of its sender", "mend the sender, then drop this one")
    _MAY_RETRY[Mode(mode)](conn, what, site, type_, version)
    back = conn.execute(_BACK, (id,)).fetchone()
    replaced = back is not None and not back[0]
    conn.execute(_SETTLE, ("retried", id))
    count(conn, {site: Tally(quarantined=-1, conflated=int(replaced or back is None))})


def drop(conn: psycopg.Connection[Any], id: int) -> None:
    """Gives it up, in the caller's transaction; the row stays, as dropped. A resync that is wanted for it stays wanted."""
    _open(conn, id)
    conn.execute(_SETTLE, ("dropped", id))


def _open(conn: psycopg.Connection[Any], id: int) -> tuple[str, str | None, str | None, Version | None]:
    row = conn.execute(_OPEN, (id,)).fetchone()
    if row is None:
        raise Invalid(f"quarantined bundle {id}", "there is none", "list them: `trunkline bridge quarantine ls`")
    state, site, type_, mode, incarnation, generation = row
    if state != "open":
        raise Invalid(f"quarantined bundle {id}", f"it is {state} already", "list those that are open")
    return site, type_, mode, Version(incarnation, generation) if incarnation is not None else None


def _unless_newer(conn: psycopg.Connection[Any], what: str, site: str, type_: str, version: Version) -> None:
    asked = {"site": site, "type": type_, "i": version.incarnation, "g": version.generation}
    newer = conn.execute(_NEWER, asked).fetchone()
    if newer is not None:
        raise Invalid(what, f"one of {site} that is as new or newer is {newer[0]}", "drop it: nothing is missing")


def _never(conn: psycopg.Connection[Any], what: str, site: str, type_: str, version: Version) -> None:
    next_step = f"ask for everything anew: `trunkline bridge resync {site} --type {type_}`"
    raise Invalid(what, "bundles before and after it are gone their way: alone it cannot be right any more", next_step)


def _always(conn: psycopg.Connection[Any], what: str, site: str, type_: str, version: Version) -> None:
    pass


_MAY_RETRY: dict[Mode, Callable[[psycopg.Connection[Any], str, str, str, Version], None]] = {
    Mode.COMPLETE: _unless_newer,
    Mode.APPEND: _always,
    Mode.DELTA: _never,
    Mode.HYBRID: _never,
}
