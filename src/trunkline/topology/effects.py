"""What the topology asks of its host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trunkline.topology.links import LinkRow
from trunkline.topology.messages import TopologyMessage
from trunkline.topology.rows import Row


class Manner(StrEnum):
    FIRST = "first"
    """There was no parent."""
    FORCED = "forced"
    """The path is gone: at once."""
    GENTLE = "gentle"
    """The old parent still serves: nothing twice, or nothing late, as configured."""


@dataclass(frozen=True)
class Move:
    """Take this origin from that neighbour from now on; None: from nobody. Answer `subscribed` when it accepted."""

    origin: str
    via: str | None
    manner: Manner


@dataclass(frozen=True)
class TakeFromAny:
    """Nobody is known to be ahead, but there is more: ask all of these; the first that brings something is the parent."""

    origin: str
    sites: tuple[str, ...]


@dataclass(frozen=True)
class Publish:
    """Persist as `link:<site>`."""

    row: LinkRow


@dataclass(frozen=True)
class PublishRows:
    """Persist as `rows:<site>`; None: let go of it."""

    rows: tuple[Row, ...] | None


@dataclass(frozen=True)
class Tell:
    site: str
    message: TopologyMessage


Effect = Move | TakeFromAny | Publish | PublishRows | Tell
