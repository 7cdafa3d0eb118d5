"""What neighbours tell each other on a link's topology channel: their rows, as deltas, and how far they are."""

from __future__ import annotations

import msgspec

from trunkline.core.codec import Codec
from trunkline.topology.rows import Row


class Told(msgspec.Struct, frozen=True, array_like=True, tag="told"):
    """My rows that changed, and the sources I have no row for any more. `full`: forget what I told before."""

    rows: tuple[Row, ...]
    gone: tuple[str, ...] = ()
    full: bool = False


class Progress(msgspec.Struct, frozen=True, array_like=True, tag="progress"):
    """On every heartbeat, what changed: how far I have each origin's records, and how far I know each origin's log to go."""

    cursors: dict[str, int]
    heads: dict[str, int]
    children: dict[str, int] = {}
    """How many of my neighbours take each origin from me: whoever rebalances compares."""


TopologyMessage = Told | Progress
CODEC: Codec[TopologyMessage] = Codec("topology message", TopologyMessage)
