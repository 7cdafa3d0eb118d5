"""Entries of a small fleet of types for tests of the units: one of each mode, and both ways to depend."""

from __future__ import annotations

from dataclasses import dataclass

from trunkline.bridge.types import Match
from trunkline.bridge.units import Job, Units, Waiting
from trunkline.core.bundle import Mode, Version


@dataclass(frozen=True)
class Kind:
    priority: int
    mode: Mode
    base: str | None = None
    match: Match = Match.AT_LEAST
    group: str = ""


BASE, EXACT, LOOSE, DELTA, HYBRID, EVENTS, ASIDE = "base", "exact", "loose", "delta", "hybrid", "events", "aside"
KINDS = {
    BASE: Kind(1, Mode.COMPLETE),
    EXACT: Kind(2, Mode.COMPLETE, BASE, Match.EXACT),
    LOOSE: Kind(3, Mode.COMPLETE, BASE),
    DELTA: Kind(4, Mode.DELTA, EXACT, Match.EXACT),
    HYBRID: Kind(5, Mode.HYBRID),
    EVENTS: Kind(6, Mode.APPEND),
    ASIDE: Kind(7, Mode.COMPLETE, BASE, Match.EXACT, "other"),
}


def v(generation: int, incarnation: int = 1) -> Version:
    return Version(incarnation, generation)


def waiting(
    type_: str, version: int = 1, *, site: str = "a", since: float = 0.0, needs: int | None = None, arrival: int = 0,
    restores: bool = False,
) -> Waiting:  # fmt: skip
    kind = KINDS[type_]
    dependency = v(needs) if needs is not None else None
    return Waiting(
        site, kind.group, type_, "", v(version), dependency, kind.base, kind.match, kind.mode, kind.priority, since, arrival,
        restores,
    )  # fmt: skip


def take_one(units: Units, now: float = 0.0) -> Job:
    wave = units.take(now)
    assert wave is not None, "nothing may be taken"
    assert len(wave.jobs) == 1
    return wave.jobs[0]


def finish(units: Units, job: Job, upto: int | None = None) -> None:
    units.finished(job, job.version, job.version, upto)


def order(units: Units, now: float = 0.0) -> list[tuple[str, str]]:
    """(site, type) of all that may be taken, one at a time, each finished before the next."""
    taken = []
    while (wave := units.take(now)) is not None:
        taken.append((wave.jobs[0].site, wave.type))
        finish(units, wave.jobs[0])
    return taken
