"""The times and choices of the topology. The defaults are for production; tests and the simulator give their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Tie(StrEnum):
    FIRST = "first"
    """Among equal paths the neighbour that was connected first."""
    HASH = "hash"
    """First choices are spread over equal paths; what is chosen stays."""


class PublishRowsWhen(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True)
class Settings:
    debounce_seconds: float = 0.01
    longest_debounce: float = 0.5
    """Under churn the wait before a computation grows up to this."""
    hold_seconds: float = 1.5
    """A shorter path is taken when it was stable for so long."""
    first_damping: float = 2.0
    longest_damping: float = 30.0
    """A link that returns after a loss waits so long before it counts; doubled by every further loss."""
    heartbeat_seconds: float = 0.5
    stall_heartbeats: int = 3
    """The watchdog moves an origin that stood still for so many while somebody is ahead."""
    repeat_seconds: float = 20.0
    """Neighbours are told everything again so often: a message may have been lost on a link that lives on."""
    slack: int = 1000
    """A shorter path is taken only if its neighbour is at most so many entries behind."""
    lag_limit: int = 10_000
    """A neighbour that cannot choose is no parent for what it is so many entries behind with."""
    tie: Tie = Tie.FIRST
    rebalance: bool = False
    rebalance_seconds: float = 30.0
    publish_rows: PublishRowsWhen = PublishRowsWhen.AUTO
    publish_rows_sites: int = 64
    no_relay: bool = False
    costs: Mapping[str, int] = field(default_factory=dict)
    """Of links to these sites, in hops."""
