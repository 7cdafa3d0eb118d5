"""One instance's routing table: id → (hash, revision), and hash → how many ids use its live route.

It says what has to start and to stop and moves only when that was done; it does neither itself.

    T1  Ids that share a hash share its live route. It starts with the first of them and stops with the last; ids that part
        and meet again are counted right.
    T2  Make before break: what must start comes first, then the table moves, then what nobody uses any more stops. What does
        not start is refused with its reason, and the id keeps the live route it has.
    T3  What is older than what the table knows of a route changes nothing, whoever says it and however late.
    T4  A route that does not run here (inactive, of another region) is known, but has no live route.
    T5  A scan is judged by its own moment: what is newer than its revision, and what was removed here since it began, is none
        of its business (H40). A removal is remembered until a scan that began after it is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from trunkline.routes.keys import RouteKey
from trunkline.routes.storage.base import Scan


class Known(msgspec.Struct, frozen=True, gc=False):
    """A route as this instance has it. `rests`: why it has no live route here; empty if it has one. `reloaded`: another value
    means that somebody wants its live route built anew; once for all ids that have the same."""

    hash: str
    revision: int
    rests: str = ""
    reloaded: str = ""


class Refused(msgspec.Struct, frozen=True):
    """What did not start here."""

    hash: str
    revision: int
    reason: str


class Gone(msgspec.Struct, frozen=True, gc=False):
    """A route that was removed, at `revision` or later. `scan`: the number of the last scan that had begun then."""

    revision: int
    scan: int


class Plan(msgspec.Struct, frozen=True):
    """What must happen for a route to become what is wanted. `uses`: the hash it will use. `start`: that hash, if it must start
    first; `instead_of`: the live route it takes over from in one moment. `stop`: what nobody will use any more."""

    moves: bool = True
    uses: str = ""
    start: str = ""
    instead_of: str = ""
    stop: str = ""


NOTHING = Plan(moves=False)


class Kind(StrEnum):
    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"


class Table:
    """`revision`: the newest of its routes."""

    def __init__(self) -> None:
        self.revision = 0
        self.ids: dict[RouteKey, Known] = {}
        self.live: dict[str, int] = {}
        self.refused: dict[RouteKey, Refused] = {}
        self.gone: dict[RouteKey, Gone] = {}
        self._built: dict[str, str] = {}
        self._scans = 0

    def plan(self, key: RouteKey, wanted: Known | None) -> Plan:
        """`wanted`: None means that it is not there any more."""
        known = self.ids.get(key)
        if wanted is None:
            return Plan(stop=self._only_user(known))
        if wanted.revision < self._newest(key) or (known is not None and wanted.revision == known.revision):
            return NOTHING
        if wanted.rests:
            return Plan(stop=self._only_user(known))
        if wanted.hash not in self.live:
            return Plan(uses=wanted.hash, start=wanted.hash, instead_of=self._only_user(known))
        if known is not None and known.hash == wanted.hash and not known.rests:
            again = wanted.hash if wanted.reloaded not in (known.reloaded, self._built.get(wanted.hash, "")) else ""
            return Plan(uses=wanted.hash, start=again, instead_of=again)
        return Plan(uses=wanted.hash, stop=self._only_user(known))

    def settle(self, key: RouteKey, wanted: Known | None) -> str:
        """The table moves, as planned. Gives the hash that nobody uses any more, if there is one."""
        known = self.ids.get(key)
        if wanted is None:
            self.gone[key] = Gone(self._removed_at(key), self._scans)
            self.ids.pop(key, None)
        else:
            self.ids[key] = wanted
            self.revision = max(self.revision, wanted.revision)
            self.gone.pop(key, None)
        self.refused.pop(key, None)
        if wanted is not None and not wanted.rests:
            self.live[wanted.hash] = self.live.get(wanted.hash, 0) + 1
            if wanted.reloaded:
                self._built[wanted.hash] = wanted.reloaded
        return self._leave(known)

    def refuse(self, key: RouteKey, wanted: Known, reason: str) -> None:
        """It did not start: whatever runs for this id runs on."""
        self.refused[key] = Refused(wanted.hash, wanted.revision, reason)

    def begin_scan(self) -> int:
        """The number of a scan whose reading begins now."""
        self._scans += 1
        return self._scans

    def differences(self, scan: Scan, number: int) -> dict[RouteKey, Kind]:
        """Where the table is not as the scan; what is newer than the scan is left out."""
        listed = {route.key: route for route in scan.routes}
        found: dict[RouteKey, Kind] = {}
        for key, route in listed.items():
            known = self.ids.get(key)
            if known is None and not self._removed_since(key, number):
                found[key] = Kind.MISSING
            elif known is not None and known.revision <= scan.revision and known.revision != route.revision:
                found[key] = Kind.DIFFERENT
        return found | dict.fromkeys(self._extra(scan, set(listed)), Kind.EXTRA)

    def behind(self, newer: Scan) -> dict[RouteKey, Kind]:
        """Where the table has not heard of what a part of a scan lists."""
        put = {line.key: line.revision for line in newer.routes}
        missed = {key: self._kind(key) for key, revision in put.items() if revision > self._newest(key)}
        gone = {key for key in newer.removed if key in self.ids or key in self.refused}
        return missed | {key: Kind.EXTRA for key in gone if newer.removed[key] > self._newest(key)}

    def _kind(self, key: RouteKey) -> Kind:
        return Kind.DIFFERENT if key in self.ids else Kind.MISSING

    def end_scan(self, number: int) -> None:
        """What it had to say is done, so removals that it has seen may be forgotten."""
        self.gone = {key: gone for key, gone in self.gone.items() if gone.scan >= number}

    def _extra(self, scan: Scan, listed: set[RouteKey]) -> Iterator[RouteKey]:
        for key in (self.ids.keys() | self.refused.keys()) - listed:
            if self._newest(key) <= scan.revision:
                yield key

    def _removed_since(self, key: RouteKey, number: int) -> bool:
        gone = self.gone.get(key)
        return gone is not None and gone.scan >= number

    def _newest(self, key: RouteKey) -> int:
        newest = 0
        for heard in (self.ids, self.refused, self.gone):
            if key in heard:
                newest = max(newest, heard[key].revision)
        return newest

    def _removed_at(self, key: RouteKey) -> int:
        """Every change has a revision of its own, so a removal is later by at least one than what it removed."""
        there = key in self.ids or key in self.refused
        return self._newest(key) + there

    def _only_user(self, known: Known | None) -> str:
        """The hash of its live route, if nobody else uses that."""
        return known.hash if known is not None and not known.rests and self.live[known.hash] == 1 else ""

    def _leave(self, known: Known | None) -> str:
        if known is None or known.rests:
            return ""
        self.live[known.hash] -= 1
        if self.live[known.hash]:
            return ""
        del self.live[known.hash]
        self._built.pop(known.hash, None)
        return known.hash
