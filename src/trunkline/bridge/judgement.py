"""What becomes of the bundles that wait of one site and type: written, dropped, or left where they are. Pure.

J1  Complete and delta bundles are strictly newer than what was applied before them, hybrids not older, else they are stale:
    status never goes backward. Append bundles have no order.
J2  A dependency that is not met parks the bundle, and all that came after it.
J3  What was made for a base that is gone for good is discarded (H38).
J4  While a type is held (H37) nothing of it is written but what begins with a bundle that restores; what came before that one
    is discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cached_property

import msgspec

from trunkline.bridge.handler import Part
from trunkline.bridge.types import BundleType
from trunkline.core.bundle import Mode, Version


class Verdict(StrEnum):
    APPLIED = "applied"
    STALE = "stale"
    OUTDATED = "outdated"
    PARKED = "parked"
    NOTHING = "nothing"
    SET_ASIDE = "set aside"


class Entry(msgspec.Struct, frozen=True):
    """A bundle in the inbox; `queue` and `position` are where it stood before."""

    key: str
    version: Version
    named: Version
    dependency: Version | None = None
    arrival: int = 0
    restores: bool = False
    event_time: datetime | None = None
    arrived_at: datetime | None = None
    queue: str = ""
    position: int = 0
    id: str = ""
    time: str = ""
    data: bytes = b""

    @property
    def part(self) -> Part:
        return Part(self.id, self.version, self.time, self.data)


class Facts(msgspec.Struct, frozen=True):
    """What is known of the site: the version applied of this type, the named version applied of its base."""

    own: Version | None = None
    base: Version | None = None
    held: bool = False


class Decision(msgspec.Struct, frozen=True, dict=True):
    """`applied` is to be written, in this order; with the others it leaves the inbox. `drop_before`: so does all that arrived
    before that one."""

    verdict: Verdict
    applied: tuple[Entry, ...] = ()
    stale: tuple[Entry, ...] = ()
    outdated: tuple[Entry, ...] = ()
    drop_before: int | None = None

    @cached_property
    def leaving(self) -> tuple[Entry, ...]:
        return self.applied + self.stale + self.outdated

    @property
    def upto(self) -> int | None:
        return max((entry.arrival for entry in self.leaving), default=None)

    @cached_property
    def newest(self) -> Entry:
        return max(self.applied, key=lambda entry: (entry.version, entry.arrival))


_IS_STALE: dict[Mode, Callable[[Version, Version], bool]] = {
    Mode.COMPLETE: lambda version, own: version <= own,
    Mode.DELTA: lambda version, own: version <= own,
    Mode.HYBRID: lambda version, own: version < own,
    Mode.APPEND: lambda version, own: False,
}


def judge(declared: BundleType, waiting: Sequence[Entry], facts: Facts, most: int) -> Decision:
    """`waiting` is in order of arrival; while the type is held it begins with the first that restores, if there is one."""
    if facts.held and not (waiting and waiting[0].restores):
        return Decision(Verdict.PARKED)
    if not waiting:
        return Decision(Verdict.NOTHING)
    found: dict[Verdict, list[Entry]] = {Verdict.APPLIED: [], Verdict.STALE: [], Verdict.OUTDATED: []}
    last = facts.own
    for entry in waiting:
        verdict = judge_one(declared, entry, last, facts.base)
        if verdict is Verdict.PARKED or len(found[Verdict.APPLIED]) == most:
            break
        found[verdict].append(entry)
        last = entry.version if verdict is Verdict.APPLIED else last
    verdict = next((verdict for verdict, entries in found.items() if entries), Verdict.PARKED)
    before = waiting[0].arrival if facts.held and verdict is Verdict.APPLIED else None
    applied, stale, outdated = (tuple(entries) for entries in found.values())
    return Decision(verdict, applied, stale, outdated, before)


def judge_one(declared: BundleType, entry: Entry, own: Version | None, base: Version | None) -> Verdict:
    if own is not None and _IS_STALE[declared.mode](entry.version, own):
        return Verdict.STALE
    needs = entry.dependency
    if needs is None or declared.match.is_met(base, needs):
        return Verdict.APPLIED
    return Verdict.OUTDATED if declared.match.is_outdated(base, needs) else Verdict.PARKED
