"""The whole inbox, read into the units: what nobody noticed, what left without a job, and what is held.

The inbox is read before the ledger: a bundle seen waiting is at most too new for it, never too old. A scan that takes long
comes less often, so that it costs a small share of the time whatever waits.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import psycopg

from trunkline.bridge.types import Match, Types
from trunkline.bridge.units import Units, Waiting
from trunkline.core.bundle import Mode, Version
from trunkline.core.clock import Clock

SCAN_SECONDS = 1.0
REST = 10  # times as long as the last scan took
_AT_ONCE = 2_000  # entries, before workers have their turn again
_INBOX = """
SELECT site, type, key, incarnation, generation, dependency_incarnation, dependency_generation,
       extract(epoch FROM arrived_at)::float8, mode, arrival, restores
  FROM bridge.inbox
"""
_LEDGER = """
SELECT site, type, incarnation, value FROM bridge.ledger WHERE applied_at >= coalesce(%s, '-infinity'::timestamptz)
"""
_HELD = "SELECT site, type, holds FROM bridge.resync WHERE holds IS NOT NULL"
_SITES = "SELECT site FROM bridge.site"
_NOW = "SELECT now() - interval '1 minute'"


def held_types(types: Types, asked: str, holds: str | None) -> list[str]:
    """The types that wait for a resync of `asked`, where at least `holds` does: all deltas of one base, the base itself if it
    can be held."""
    if holds is None:
        return []
    deltas = [one.name for one in types.dependents(asked) if one.mode is Mode.DELTA]
    return list(dict.fromkeys([holds, *deltas]))


class Scan:
    """Called from one thread; `changed` guards the units."""

    def __init__(self, types: Types, units: Units, changed: threading.Condition, clock: Clock) -> None:
        self._types, self._units, self._changed, self._clock = types, units, changed, clock
        self._held: set[tuple[str, str]] = set()
        self._sites: set[str] = set()
        self._known_until: datetime | None = None

    def run(self, conn: psycopg.Connection[Any]) -> float:
        """Seconds until the next one."""
        began = self._clock.monotonic()
        with self._changed:
            self._units.scan_begins()
        since = conn.execute(_NOW).fetchone()
        inbox = conn.execute(_INBOX).fetchall()
        ledger = conn.execute(_LEDGER, (self._known_until,)).fetchall()
        held = conn.execute(_HELD).fetchall()
        sites = {site for (site,) in conn.execute(_SITES).fetchall()}
        conn.rollback()
        self._forget(sites)
        self._tell_ledger(ledger)
        self._tell_held({(site, name) for site, asked, holds in held for name in held_types(self._types, asked, holds)})
        self._tell_inbox(inbox)
        self._known_until = since[0] if since else None
        return max(SCAN_SECONDS, REST * (self._clock.monotonic() - began))

    def hold(self, site: str, type_: str) -> None:
        """A worker knows before the next scan; `changed` is taken."""
        self._units.hold(site, type_)
        self._held.add((site, type_))

    def _forget(self, sites: set[str]) -> None:
        with self._changed:
            for site in self._sites - sites:
                self._units.forget(site)
        self._sites = sites

    def _tell_ledger(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for some in _slices(rows):
            with self._changed:
                for site, type_, incarnation, value in some:
                    self._units.known(site, type_, Version(incarnation, value))

    def _tell_held(self, held: set[tuple[str, str]]) -> None:
        with self._changed:
            for site, type_ in held:
                self._units.hold(site, type_)
            for site, type_ in self._held - held:
                self._units.release(site, type_)
            self._held = held

    def _tell_inbox(self, rows: Iterable[tuple[Any, ...]]) -> None:
        ahead = self._clock.wall() - self._clock.monotonic()
        for some in _slices(rows):
            entries = [self._waiting(row, ahead) for row in some]
            with self._changed:
                for entry in entries:
                    self._units.arrived(entry)
        with self._changed:
            self._units.scan_ends()
            self._changed.notify_all()

    def _waiting(self, row: tuple[Any, ...], ahead: float) -> Waiting:
        """A type that is not declared any more is tried, too: then it is set aside, with that reason."""
        site, type_, key, incarnation, generation, needs_run, needs, since, mode, arrival, restores = row
        group, base, match, priority = "", None, Match.AT_LEAST, 0
        if type_ in self._types:
            declared = self._types[type_]
            group, base, match, priority = declared.group, declared.depends_on, declared.match, declared.priority
        return Waiting(
            site, group, type_, key if mode == Mode.COMPLETE else "", Version(incarnation, generation),
            Version(needs_run, needs) if needs is not None else None, base, match, Mode(mode), priority, since - ahead,
            arrival, restores,
        )  # fmt: skip


def _slices(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    iterator = iter(rows)
    while some := list(islice(iterator, _AT_ONCE)):
        yield some
