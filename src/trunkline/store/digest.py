"""Range digests: which keys differ between two stores, found without listing them. Pure.

Keys fall into 4,096 leaves by a checksum of their name, 64 leaves to a range. A leaf's digest is the sum, modulo 2^64, of one
word per key; a range's is the sum of its leaves', the root's the sum of all. A word is hash × (2 × ttl version + 1): the hash
covers key, version, originator and bytes, and the product keeps two refreshes that were swapped between keys from cancelling
each other. So a change costs two additions, and equal roots mean equal stores up to one chance in 2^64.

With a million keys a leaf holds 244: the sums of one range and the headers of one leaf are all that one difference moves. The
entries themselves lie in the leaves. One large map would be copied whole now and then as it grows, and stop everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from trunkline.store.values import Value

WIDTH: Final = 64
LEAVES: Final = WIDTH * WIDTH
MASK: Final = 2**64 - 1

_ROW = Struct(f">{WIDTH}Q")
ROW_BYTES: Final = _ROW.size


class Entry(msgspec.Struct, gc=False):
    """A key's value as it is stored."""

    value: Value
    ends: float
    """When it expires, by this node's monotonic clock."""
    armed: int
    """Its span in the wheel."""
    word: int
    """What it adds to its leaf."""


@dataclass(slots=True)
class Leaf:
    sum: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)


def word(value: Value) -> int:
    return value.hash * (2 * value.ttl_version + 1)


class Digest:
    def __init__(self) -> None:
        self.by_index: dict[int, Leaf] = {}
        """The leaves that ever had a key."""

    def leaf_of(self, key: str) -> Leaf:
        """The key's leaf, made when it is the first there."""
        index = crc32(key.encode()) % LEAVES
        leaf = self.by_index.get(index)
        if leaf is None:
            leaf = self.by_index[index] = Leaf()
        return leaf

    def root(self) -> int:
        return sum(leaf.sum for leaf in self.by_index.values()) & MASK

    def ranges(self) -> bytes:
        sums = [0] * WIDTH
        for index, leaf in self.by_index.items():
            sums[index // WIDTH] += leaf.sum
        return _ROW.pack(*(total & MASK for total in sums))

    def leaves(self, range_index: int) -> bytes:
        first = range_index * WIDTH
        found = (self.by_index.get(index) for index in range(first, first + WIDTH))
        return _ROW.pack(*(0 if leaf is None else leaf.sum for leaf in found))

    def keys(self, leaves: Iterable[int]) -> list[str]:
        found = (self.by_index.get(index) for index in leaves)
        return [key for leaf in found if leaf is not None for key in leaf.entries]


def signature(values: Iterable[Value], before: int = 0) -> int:
    """One number over names, versions, originators and bytes, whatever the ttl; equal where the same is stored.

    It adds up: of many values it may be taken in portions, each with what came out `before`."""
    return (before + sum(value.hash for value in values)) & MASK


def differing(mine: bytes, theirs: bytes, first: int = 0) -> Sequence[int]:
    """Numbers, from `first` on, of the sums that are not the same."""
    return [first + n for n, (a, b) in enumerate(zip(_ROW.unpack(mine), _ROW.unpack(theirs), strict=True)) if a != b]
