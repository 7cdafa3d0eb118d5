"""What stores say to each other, on the STORE channel of a link.

A sync is a row of questions of one side, each with its answer; the side that answers keeps nothing of it:

    AskRoot      my root            Same, or Ranges: the sums of all my ranges
    AskLeaves    ranges             Leaves: the sums of their leaves
    AskKeys      leaves, headers    Difference: values that are better here, keys that are better there, leaves to ask again

then the values that the other side wants follow as a publication. `id` names the sync and is repeated in its answers: an
answer to anything else than the open question has no effect. Refused answers a sync in an area that is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from trunkline.core.codec import Codec
from trunkline.store.values import Header, Value

# Some milliseconds of work for the receiver's event loop, and far below a frame's bound.
MOST_VALUES: Final = 1_000
MOST_BYTES: Final = 256 * 1024
# Sent by a peer that keeps to the two above, with one value over the bytes; anything larger is not of ours.
MOST_RECEIVED: Final = 4 * MOST_VALUES
MOST_HOPS: Final = 1_024  # twice the longest way in a ring of a thousand nodes


class Publish(msgspec.Struct, frozen=True, array_like=True, tag="pub"):
    area: str
    values: dict[str, Value]
    path: tuple[str, ...]
    """Nodes that have it, the originating one first, the sender last."""


class AskRoot(msgspec.Struct, frozen=True, array_like=True, tag="root?"):
    area: str
    id: int
    root: int


class AskLeaves(msgspec.Struct, frozen=True, array_like=True, tag="leaves?"):
    area: str
    id: int
    ranges: tuple[int, ...]


class AskKeys(msgspec.Struct, frozen=True, array_like=True, tag="keys?"):
    area: str
    id: int
    leaves: tuple[int, ...]
    headers: dict[str, Header]


class Same(msgspec.Struct, frozen=True, array_like=True, tag="same"):
    area: str
    id: int


class Ranges(msgspec.Struct, frozen=True, array_like=True, tag="ranges"):
    area: str
    id: int
    sums: bytes


class Leaves(msgspec.Struct, frozen=True, array_like=True, tag="leaves"):
    area: str
    id: int
    sums: dict[int, bytes]


class Difference(msgspec.Struct, frozen=True, array_like=True, tag="diff"):
    area: str
    id: int
    values: dict[str, Value]
    wanted: tuple[str, ...]
    again: tuple[int, ...]
    """Leaves of which more is to be had."""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="no"):
    area: str
    id: int
    reason: str


Question = AskRoot | AskLeaves | AskKeys
Answer = Same | Ranges | Leaves | Difference | Refused
Message = Publish | Question | Answer
CODEC: Codec[Message] = Codec("store message", Message)


class Send(msgspec.Struct, frozen=True):
    """Hand this to the link of that peer."""

    peer: str
    message: Message


def size_of(key: str, value: Value) -> int:
    return len(key) + len(value.originator) + len(value.data or b"") + 32


def portions(values: Iterable[tuple[str, Value]]) -> Iterator[dict[str, Value]]:
    """As many as fit one message each."""
    portion: dict[str, Value] = {}
    size = 0
    for key, value in values:
        portion[key] = value
        size += size_of(key, value)
        if size >= MOST_BYTES or len(portion) >= MOST_VALUES:
            yield portion
            portion, size = {}, 0
    if portion:
        yield portion
