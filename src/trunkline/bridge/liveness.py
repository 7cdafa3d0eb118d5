"""Which sites are silent: judged by the times their bundles carry, never by the clock of a bridge that was away.

The *watermark* is how late it is for the fleet: the newest event time that was read, and from there on the time that passes on
the monotonic clock while everything that was sent is read. A site is silent when its own newest event time is further
behind the watermark than it may be.

L1  Nobody becomes silent while there is a backlog: what a site sent may be in it. Without a backlog, whatever was sent before
    has been read.
L2  While there is a backlog the watermark follows event times only; so time in which the bridge was down, or behind, is held
    against nobody.
L3  The watermark never goes back.
L4  A silent site becomes active by a newer bundle only, also while there is a backlog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Heard:
    """`last_seen`: the newest event time of a site, in unix seconds."""

    last_seen: float
    silent: bool


@dataclass(frozen=True)
class Verdict:
    """Sites whose state changes, in order of their names. Who was last seen before `bound` is silent."""

    bound: float
    silent: tuple[str, ...] = ()
    active: tuple[str, ...] = ()


class Liveness:
    def __init__(self, silent_seconds: float) -> None:
        self._silent_seconds = silent_seconds
        self._watermark = float("-inf")
        self._caught_up_at: float | None = None

    @property
    def watermark(self) -> float:
        return self._watermark

    def judge(self, now: float, caught_up: bool, sites: Mapping[str, Heard]) -> Verdict:
        """`now` is monotonic; `sites` was read after it was known that intake had caught up."""
        self._advance(now, caught_up, max((heard.last_seen for heard in sites.values()), default=float("-inf")))
        bound = self._watermark - self._silent_seconds
        late = {site for site, heard in sites.items() if heard.last_seen < bound}
        silent = [site for site, heard in sites.items() if caught_up and not heard.silent and site in late]
        active = [site for site, heard in sites.items() if heard.silent and site not in late]
        return Verdict(bound, tuple(sorted(silent)), tuple(sorted(active)))

    def _advance(self, now: float, caught_up: bool, newest: float) -> None:
        if caught_up and self._caught_up_at is not None:
            self._watermark += now - self._caught_up_at
        self._watermark = max(self._watermark, newest)
        self._caught_up_at = now if caught_up else None
