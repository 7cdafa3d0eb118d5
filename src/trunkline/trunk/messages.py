"""What travels between the carriers of two sites: the data in order, and signals that never wait for data."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from itertools import pairwise

import msgspec

from trunkline.core.codec import Codec
from trunkline.core.errors import RemoteProtocolError
from trunkline.core.ids import Position
from trunkline.trunk.log import Applied, Entry


class Lane(IntEnum):
    """A site has at most one subscription per origin and lane at its parent."""

    LIVE = 0
    CATCH_UP = 1
    """For destinations far behind: merged into one stream with a share of the bandwidth (H14)."""


class Subscribe(msgspec.Struct, frozen=True, array_like=True, tag="subscribe"):
    """I take `origin` from you, for these destinations, each from its own position. Replaces my earlier one of this lane.

    `kept` are destinations of my subscription `continues` whose stream goes on without a break: they have whatever you sent
    them. A parent that does not have that subscription any more goes by `wants` alone.
    """

    id: int
    origin: str
    wants: dict[str, Applied]
    lane: Lane = Lane.LIVE
    continues: int = 0
    kept: tuple[str, ...] = ()


class SubscribeAll(msgspec.Struct, frozen=True, array_like=True, tag="subscribe-all"):
    """To a peer that knows no subscriptions: send everything of every origin, of these from here on."""

    positions: dict[str, Applied]


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    id: int
    origin: str


class Stopped(msgspec.Struct, frozen=True, array_like=True, tag="stopped"):
    """In stream, after the last batch: nothing beyond `upto` was or will be sent under this subscription."""

    id: int
    origin: str
    upto: int


class Batch(msgspec.Struct, frozen=True, array_like=True, tag="batch"):
    """Whole transactions: all entries after `prev` up to `upto` that the subscription wants, each once.

    `prev` is the `upto` of the batch before, so a hole is seen at once; the first one of a subscription `opens` it and says in
    `prev` where the stream begins. No entries is the sign that there were none.
    `clients` are those that ever wrote up to here: each of them is complete up to `upto`.
    `after`, where a subscription continues another: the kept destinations were sent everything up to here under that one; the
    new set is effective from here on. -1: it continues nothing.
    """

    id: int
    origin: str
    log_id: str
    prev: int
    entries: tuple[Entry, ...]
    upto: Position
    clients: tuple[str, ...]
    opens: bool
    after: int = -1


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


class Vector(msgspec.Struct, frozen=True, array_like=True, tag="vector"):
    """The acknowledgements of a whole subtree: everybody in `members` has `least`, except those that are named.

    `members` (destination → generation) is said when it changed and from time to time; None: those of this `version`.
    """

    origin: str
    log_id: str
    version: int
    least: dict[str, Position]
    exceptions: dict[str, dict[str, Position]]
    members: dict[str, int] | None = None


class Awaited(msgspec.Struct, frozen=True, array_like=True, tag="awaited"):
    """From the origin down to these destinations: somebody waits for their acknowledgements, for so many seconds."""

    origin: str
    destinations: tuple[str, ...]
    seconds: float


class Reset(msgspec.Struct, frozen=True, array_like=True, tag="reset"):
    """From the origin only: that destination's positions are not of this log. It must begin anew, never skip."""

    id: int
    origin: str
    log_id: str
    destination: str


class Gap(msgspec.Struct, frozen=True, array_like=True, tag="gap"):
    """From the origin only: up to `lowest` the log was trimmed, and that destination lacks entries of these clients there."""

    id: int
    origin: str
    log_id: str
    destination: str
    lowest: Position
    clients: tuple[str, ...]


class Send(msgspec.Struct, frozen=True, array_like=True, tag="send"):
    """One message for one site, hop by hop, at most once; whoever sent it expects the answer."""

    to: str
    source: str
    body: bytes
    hops: int
    bulk: bool = False


TrunkMessage = Subscribe | SubscribeAll | Stop | Stopped | Batch | Taken | Ack | Vector | Awaited | Reset | Gap | Send


# So many names are not worth a table of their own.
_FEW = 2


class _CarriedEntry(msgspec.Struct, frozen=True, array_like=True):
    seq: int
    client: str
    set: int
    headers: dict[str, str]
    payload: bytes
    ends: tuple[int, ...]


class _CarriedBatch(msgspec.Struct, frozen=True, array_like=True, tag="sets"):
    """A batch whose entries have many destinations: each set of them is said once, however many entries have it."""

    batch: Batch
    sets: tuple[tuple[str, ...], ...]
    entries: tuple[_CarriedEntry, ...]


class _TrunkCodec(Codec[TrunkMessage]):
    def __init__(self) -> None:
        super().__init__("trunk message", TrunkMessage | _CarriedBatch)

    def encode_many(self, messages: Iterable[TrunkMessage]) -> list[bytes]:
        return super().encode_many([_with_sets(m) if isinstance(m, Batch) else m for m in messages])  # type: ignore[misc]

    def encode(self, message: TrunkMessage) -> bytes:
        return self.encode_many((message,))[0]

    def decode_many(self, bodies: Iterable[bytes]) -> list[TrunkMessage]:
        messages = [_without_sets(m) if isinstance(m, _CarriedBatch) else m for m in super().decode_many(bodies)]
        for message in messages:
            if isinstance(message, Batch):
                _check_packs(message.entries)
        return messages


def _with_sets(batch: Batch) -> Batch | _CarriedBatch:
    if all(len(e.destinations) <= _FEW for e in batch.entries):
        return batch
    numbers: dict[tuple[str, ...], int] = {}
    same: dict[int, int] = {}  # entries of one set mostly share one tuple: that saves to look at all its names
    carried = []
    for e in batch.entries:
        number = same.get(id(e.destinations))
        if number is None:
            number = same[id(e.destinations)] = numbers.setdefault(e.destinations, len(numbers))
        carried.append(_CarriedEntry(e.seq, e.client, number, e.headers, e.payload, e.ends))
    return _CarriedBatch(msgspec.structs.replace(batch, entries=()), tuple(numbers), tuple(carried))


def _without_sets(carried: _CarriedBatch) -> Batch:
    sets = carried.sets
    if any(not 0 <= e.set < len(sets) for e in carried.entries):
        why = "an entry names a set of destinations that it does not bring"
        raise RemoteProtocolError("trunk message", why, "run the same version on both sides")
    entries = tuple([Entry(e.seq, e.client, sets[e.set], e.headers, e.payload, e.ends) for e in carried.entries])
    return msgspec.structs.replace(carried.batch, entries=entries)


def _check_packs(entries: tuple[Entry, ...]) -> None:
    for e in entries:
        if (ends := e.ends) and (ends[-1] != len(e.payload) or ends[0] < 0 or any(a > b for a, b in pairwise(ends))):
            why = f"entry {e.seq} is a pack that is not as long as its messages"
            raise RemoteProtocolError("trunk message", why, "run the same version on both sides")


class _PlainCodec(Codec[TrunkMessage]):
    def encode_many(self, messages: Iterable[TrunkMessage]) -> list[bytes]:
        return super().encode_many([_without_packs(m) if isinstance(m, Batch) else m for m in messages])

    def encode(self, message: TrunkMessage) -> bytes:
        return self.encode_many((message,))[0]


def _without_packs(batch: Batch) -> Batch:
    if not any(e.ends for e in batch.entries):
        return batch
    return msgspec.structs.replace(batch, entries=tuple(message for e in batch.entries for message in e.apart()))


CODEC: Codec[TrunkMessage] = _TrunkCodec()
PLAIN: Codec[TrunkMessage] = _PlainCodec("trunk message", TrunkMessage)
"""For a peer that knows neither sets nor packs."""

_IN_STREAM = (Batch, Stopped)


def travels_in_stream(message: TrunkMessage) -> bool:
    """True: on the channel of the data, in order with it. Everything else has credit of its own (H15)."""
    return isinstance(message, _IN_STREAM) or (isinstance(message, Send) and message.bulk)
