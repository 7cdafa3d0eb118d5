"""The channels of a link. A message is one frame: length, channel, body; the layer that owns a channel owns its bodies.

Both tables are part of the wire version: the two ends of a link must agree on them before the first frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

# The largest thing carried whole is one transaction's entries (at most a few MiB); twice that leaves room, and a hostile
# length field cannot make this side hold more per link.
MAX_FRAME: Final = 8 * 1024 * 1024
# A HELLO with the heads and positions of 10,000 sites. Bytes of a control message may take fifty times their size in memory.
MAX_CONTROL: Final = 2 * 1024 * 1024


class Channel(IntEnum):
    CONTROL = 0
    STORE = 1
    TRUNK = 2
    """Records, and what must stand in order between them."""
    TOPOLOGY = 3
    """Rows and progress told to neighbours. Only between nodes that both name the capability."""
    SIGNAL = 4
    """What the trunk says besides: it never waits for the records (H15). Only between such nodes, as well."""


@dataclass(frozen=True)
class Bounds:
    """Bytes of frames, headers included.

    `window`: sent and not yet handled at the receiver; it covers rate times round trip (4 MiB: 80 MB/s over 50 ms).
    `queue`: waiting at the sender. Two of the largest frames: one on its way to the socket, one to follow. More would only
    add delay behind a slow peer; a node with 100 links holds next to nothing in the usual case and 6.4 GB in the worst.
    """

    window: int
    queue: int


LARGEST: Final[Mapping[Channel, int]] = {
    Channel.CONTROL: MAX_CONTROL,
    Channel.STORE: MAX_FRAME,
    Channel.TRUNK: MAX_FRAME,
    Channel.TOPOLOGY: MAX_FRAME,
    Channel.SIGNAL: MAX_FRAME,
}
"""The most that a frame's length field may say: channel and body together."""

DATA: Final[Mapping[Channel, Bounds]] = {
    Channel.STORE: Bounds(window=1024 * 1024, queue=2 * MAX_FRAME),
    Channel.TRUNK: Bounds(window=4 * 1024 * 1024, queue=2 * MAX_FRAME),
    Channel.TOPOLOGY: Bounds(window=1024 * 1024, queue=2 * MAX_FRAME),
    Channel.SIGNAL: Bounds(window=1024 * 1024, queue=2 * MAX_FRAME),
}
"""Channels with credit (`trunkline.net.credit`). CONTROL needs none: the link itself speaks there, and goes first."""
