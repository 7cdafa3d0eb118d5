"""Which neighbour to take an origin from, as one table. Pure.

| the present parent …                             | then                                                    |
|--------------------------------------------------|---------------------------------------------------------|
| is among the nearest                             | keep (sticky)                                           |
| is gone, out of reach, or its chain fails        | forced: at once                                         |
| works, and nothing nearer is there (stale-keep)  | keep                                                    |
| works, but something is nearer                   | wait: the hold-down decides, and only while this stays so |

Forced takes the first of the nearest that is safe: it does not lead back here; else any neighbour whose told path validates
(H26), else the present parent if it may yet get it, else nobody. Where nothing is nearest the origin is out of reach: nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b

from trunkline.topology.settings import Tie


class Verdict(Enum):
    KEEP = "keep"
    FORCED = "forced"
    WAIT = "wait"


@dataclass(frozen=True)
class Outlook:
    """Of one origin."""

    present: str | None
    works: bool
    """The present parent can reach the origin, or could before its rows expired, and its chain validates."""
    hopeful: bool
    """The present parent can reach the origin and does not lead back here, whatever it told."""
    further: bool
    """Something costs less than the present parent."""
    nearest: tuple[str, ...]
    """In order of preference."""
    unsafe: frozenset[str]
    """Those of them that lead back here, or stood still while the present parent may get on."""
    valid: tuple[str, ...]
    """Neighbours whose told path validates, the cheapest first; looked for only when all the nearest are unsafe."""


def verdict(outlook: Outlook) -> Verdict:
    if outlook.present is not None and outlook.present in outlook.nearest:
        return Verdict.KEEP
    if outlook.present is None or not outlook.works:
        return Verdict.FORCED
    return Verdict.WAIT if outlook.further else Verdict.KEEP


def forced(outlook: Outlook) -> str | None:
    if not outlook.nearest:
        return None
    safe = (v for v in outlook.nearest if v not in outlook.unsafe)
    return next(safe, None) or next(iter(outlook.valid), None) or (outlook.present if outlook.hopeful else None)


def preference(tie: Tie, site: str, origin: str, neighbours: Iterable[str]) -> tuple[str, ...]:
    """Equal neighbours in the order of choice; given in the order they were connected."""
    if tie is Tie.FIRST:
        return tuple(neighbours)
    return tuple(sorted(neighbours, key=lambda via: _weight(site, origin, via), reverse=True))


def _weight(site: str, origin: str, via: str) -> bytes:
    return blake2b("\0".join((site, origin, via)).encode(), digest_size=8).digest()
