"""How a store behaves; the defaults are for a fleet, tests take shorter times."""

from __future__ import annotations

from dataclasses import dataclass

from trunkline.core.bucket import Rate


@dataclass(frozen=True)
class Settings:
    ttl_ms: int = 300_000
    """Of own keys, unless told otherwise; they are refreshed at a quarter of it."""
    decrement_ms: int = 1
    near_ms: int = 500
    sync_seconds: float = 30.0
    """Between two comparisons of digests with one peer in turn."""
    answer_seconds: float = 10.0
    """For one answer of a sync."""
    first_backoff: float = 0.5
    longest_backoff: float = 60.0
    flood_rate: Rate | None = None
    """Publications per second, each to all peers, and how many at once; None: as they come."""
    most_pending: int = 10_000
    """Keys that wait for one peer; beyond, a sync finds what it lacks."""
    synced_seconds: float | None = None
    """How long an area without peers waits before it counts as synced; None: not at all."""
    link_seconds: float = 5.0
    """A peer that has no link so long after the start no longer delays the synced signal."""
