"""Forgetting a site: everything the hub keeps of it, in one transaction.

F1  All or nothing, so nobody sees a part of a site.
F2  Locks in the order of everybody else: ledger, rows, inbox, and the counter last. An apply that leaves the inbox first has
    its rows found once more after that; one that comes later finds its bundle gone, and undoes itself.
F3  A site that still sends would be back at once, with what it sends next and nothing else. So it is not forgotten while
    bundles of it come, unless somebody insists.
F4  Where intake reads on is not touched: what it has passed it does not read again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg
from psycopg import sql

from trunkline.bridge.inspect import NoSuchSite, stored
from trunkline.bridge.types import Types
from trunkline.core.errors import Invalid

QUIET_SECONDS = 60
_KEPT_BESIDE = ("chunk", "quarantine", "run", "resync", "site", "counter")
_KNOWN = " OR ".join(
    f"EXISTS (SELECT FROM bridge.{name} WHERE site = %(site)s)" for name in ("site", "ledger", "inbox", "counter")
)
_QUIET = """
SELECT extract(epoch FROM now() - greatest(
       (SELECT max(arrived_at) FROM bridge.inbox WHERE site = %(site)s),
       (SELECT max(arrived_at) FROM bridge.chunk WHERE site = %(site)s),
       (SELECT max(applied_at) FROM bridge.ledger WHERE site = %(site)s)))::float8
"""


def forget(conn: psycopg.Connection[Any], types: Types, site: str, force: bool) -> dict[str, int]:
    """Table → rows that are gone. The transaction stays open."""
    _check(conn, site, force)
    tables = dict.fromkeys(table for declared in types.values() for table in declared.tables)
    applied = ["bridge.ledger", *tables]
    gone: Counter[str] = Counter()
    for table in (*applied, "bridge.inbox", *applied, *(f"bridge.{name}" for name in _KEPT_BESIDE)):
        gone[table] += _delete(conn, table, site)
    return dict(gone)


def _check(conn: psycopg.Connection[Any], site: str, force: bool) -> None:
    asked = {"site": stored(site)}
    if conn.execute(f"SELECT {_KNOWN}", asked).fetchone() != (True,):
        raise NoSuchSite(site)
    (quiet,) = conn.execute(_QUIET, asked).fetchone() or (None,)
    if not force and quiet is not None and quiet < QUIET_SECONDS:
        why = f"a bundle of it came {quiet:.0f} s ago: it would be back with the next one"
        raise Invalid(f"site {site!r}", why, f"stop its reporter and wait {QUIET_SECONDS} s, or give --force")


def _delete(conn: psycopg.Connection[Any], table: str, site: str) -> int:
    statement = sql.SQL("DELETE FROM {} WHERE site = %s").format(sql.Identifier(*table.split(".")))
    return conn.execute(statement, (site,)).rowcount
