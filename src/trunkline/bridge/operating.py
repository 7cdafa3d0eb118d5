"""A hub's bridge as its operators use it, on connections of whoever asks: a node's pool, or one of a command.

Commands and API speak of the same things in the same words because both are made of this.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import psycopg

from trunkline.bridge import explain, inspect, setaside
from trunkline.bridge.declared import read_types
from trunkline.bridge.forget import forget
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.types import BundleType, Types
from trunkline.bridge.wishes import Wish, to_ask, wish
from trunkline.core.config import BridgeConfig
from trunkline.core.errors import Invalid, Terminal
from trunkline.db.operated import ANSWER_MS, Connect, Shown, operated

FORGET_MS = 300_000  # a site may have millions of events
_WHAT = "database of the bridge"
_REASON = "an operator asked for it"
_SENDS = """
SELECT type FROM bridge.ledger WHERE site = %(site)s
 UNION SELECT type FROM bridge.inbox WHERE site = %(site)s
 UNION SELECT type FROM bridge.quarantine WHERE site = %(site)s AND state = 'open' AND type IS NOT NULL
"""
_AT_ONCE = "UPDATE bridge.resync SET asked_at = NULL WHERE site = %s AND type = ANY(%s)"


class NoBridge(Terminal):
    def __init__(self, why: str) -> None:
        next_step = "ask at the hub, or start its bridge once: `trunkline bridge run --config hub.yaml`"
        super().__init__(_WHAT, f"it has no bridge, or one of another version: {why}", next_step)


class BridgeOperating:
    """Each call is one transaction; all may block."""

    def __init__(self, connect: Connect, types: Types) -> None:
        self._connect, self._types = connect, types

    def status(self, type_: str | None, after: str, most: int) -> Shown:
        """A page of sites, and notes on those that somebody should look at, whatever page they are on."""
        with self._transaction() as conn:
            self._check_type(type_)
            page, following = inspect.sites(conn, after, most)
            notes = [note for one in inspect.troubled(conn) for note in explain.notes(self._types, one)]
            return {
                "summary": inspect.summary(conn),
                "notes": _few(note for note in notes if type_ in (None, note["type"])),
                "sites": [_of_type(one, type_) for one in page],
                "next": following,
            }

    def site(self, name: str, type_: str | None) -> Shown:
        with self._transaction() as conn:
            self._check_type(type_)
            found = inspect.site(conn, name)
            notes = [note for note in explain.notes(self._types, found) if type_ in (None, note["type"])]
            return _of_type(found, type_) | {"notes": notes}

    def offsets(self) -> Shown:
        with self._transaction() as conn:
            return {"offsets": inspect.offsets(conn)}

    def types(self) -> Shown:
        """These are declared, and in no database."""
        order = sorted(self._types.values(), key=lambda one: (one.priority, one.name))
        return {"types": [_declared(one) for one in order]}

    def numbers(self) -> Shown:
        """For metrics; empty where there is no bridge."""
        try:
            with self._transaction() as conn:
                return inspect.numbers(conn)
        except NoBridge:
            return {}

    def quarantine(self, site: str | None, settled: bool, before: int, most: int) -> Shown:
        with self._transaction() as conn:
            return {"quarantine": inspect.quarantine(conn, site, settled, before, most)}

    def quarantined(self, id: int, shown: int) -> Shown:
        with self._transaction() as conn:
            found = inspect.quarantined(conn, id, shown)
            return found | {"next_steps": list(explain.next_steps(found))}

    def retry(self, id: int) -> Shown:
        with self._transaction() as conn:
            inspect.quarantined(conn, id, 0)
            setaside.retry(conn, id)
            return {"id": id, "state": inspect.quarantined(conn, id, 0)["state"]}

    def drop(self, id: int) -> Shown:
        with self._transaction() as conn:
            inspect.quarantined(conn, id, 0)
            setaside.drop(conn, id)
            return {"id": id, "state": inspect.quarantined(conn, id, 0)["state"]}

    def resync(self, site: str, type_: str | None) -> Shown:
        """Wants all of that type, or of every type that the site sends, anew; it is asked for until it has come."""
        with self._transaction() as conn:
            inspect.heard(conn, site)
            wanted = self._to_ask(conn, site, type_)
            wish(conn, [Wish(site, name, None, _REASON) for name in wanted])
            conn.execute(_AT_ONCE, (site, wanted))
            return {"site": site, "types": wanted}

    def forget(self, site: str, force: bool) -> Shown:
        with self._transaction(FORGET_MS) as conn:
            return {"site": site, "deleted": forget(conn, self._types, site, force)}

    def _to_ask(self, conn: psycopg.Connection[Any], site: str, type_: str | None) -> list[str]:
        sent = [type_] if type_ else [name for (name,) in conn.execute(_SENDS, {"site": site}) if name in self._types]
        found = sorted({asked for name in sent if (asked := to_ask(self._types, name))})
        if not found:
            what = f"resync of {type_}" if type_ else f"resync of {site}"
            why = "what is only appended has no newest state" if type_ else "the site has sent nothing that could be sent anew"
            raise Invalid(what, why, "see what a site sends with `trunkline bridge status SITE`")
        return found

    def _check_type(self, type_: str | None) -> None:
        if type_ is not None:
            self._types[type_]

    def _transaction(self, most_ms: int = ANSWER_MS) -> AbstractContextManager[psycopg.Connection[Any]]:
        return operated(self._connect, _WHAT, NoBridge, most_ms)


def _few(notes: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Of each kind no more than some."""
    kinds: dict[str, list[dict[str, str]]] = {}
    for note in notes:
        kinds.setdefault(note["kind"], []).append(note)
    shown = [note for of_kind in kinds.values() for note in of_kind[: inspect.MOST_NOTES]]
    return sorted(shown, key=lambda note: (note["site"], note["type"], note["kind"]))


def _of_type(site: Shown, type_: str | None) -> Shown:
    return site | {"types": [part for part in site["types"] if type_ in (None, part["type"])]}


def _declared(one: BundleType) -> Shown:
    return {
        "type": one.name, "priority": one.priority, "mode": str(one.mode), "depends_on": one.depends_on,
        "match": str(one.match) if one.depends_on else None, "tables": list(one.tables), "group": one.group,
    }  # fmt: skip


def types_of(config: BridgeConfig | None) -> Types:
    """Those that come with the bridge, and those that its configuration adds."""
    if config is None or not config.types:
        return SHIPPED
    return Types((*SHIPPED.values(), *read_types(config.types)))
