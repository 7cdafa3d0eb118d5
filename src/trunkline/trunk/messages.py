"""What travels on a link's trunk channel."""

from __future__ import annotations

import msgspec

from trunkline.core.codec import Codec
from trunkline.core.ids import Position
from trunkline.trunk.log import Applied, Entry


class Subscribe(msgspec.Struct, frozen=True, array_like=True, tag="subscribe"):
    """I take `origin` from you, for these destinations, each from its own position. Replaces my earlier one."""

    id: int
    origin: str
    wants: dict[str, Applied]


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    id: int
    origin: str


class Batch(msgspec.Struct, frozen=True, array_like=True, tag="batch"):
    """Whole transactions: all entries after `prev` up to `upto` that the subscription wants, each once.

    `prev` is the `upto` of the batch before, so a hole is seen at once; the first one of a subscription `opens` it and says in
    `prev` where the stream begins. No entries is the sign that there were none.
    `clients` are those that ever wrote up to here: each of them is complete up to `upto`.
    """

    id: int
    origin: str
    log_id: str
    prev: int
    entries: tuple[Entry, ...]
    upto: Position
    clients: tuple[str, ...]
    opens: bool


class Taken(msgspec.Struct, frozen=True, array_like=True, tag="taken"):
    """Flow control, not an acknowledgement: the window is open up to here."""

    id: int
    origin: str
    seq: int


class Ack(msgspec.Struct, frozen=True, array_like=True, tag="ack"):
    """Durable at the destination. Travels the reverse path; a newer generation of the destination replaces."""

    origin: str
    log_id: str
    destination: str
    generation: int
    clients: dict[str, Position]


class Reset(msgspec.Struct, frozen=True, array_like=True, tag="reset"):
    """From the origin only: that destination's positions are not of this log. It must begin anew, never skip."""

    id: int
    origin: str
    log_id: str
    destination: str


TrunkMessage = Subscribe | Stop | Batch | Taken | Ack | Reset
CODEC: Codec[TrunkMessage] = Codec("trunk message", TrunkMessage)
