"""Rows of the table: (subscriber, source, via, depth), each with its whole path. Written by their subscriber alone."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from trunkline.core.codec import Codec


class Flag(StrEnum):
    ALL = "all"
    """The parent cannot choose what it sends: everything comes."""
    STALE = "stale"
    """The links it runs over are no longer in the store; it works, so it stays."""


class Row(msgspec.Struct, frozen=True):
    source: str
    via: str
    path: tuple[str, ...]
    """From the parent to the source, both included."""
    cost: int
    flags: tuple[Flag, ...] = ()

    @property
    def depth(self) -> int:
        return len(self.path)


class PublishedRows(msgspec.Struct, frozen=True):
    """Value of `rows:<site>`, for people, in fleets small enough."""

    incarnation: int
    rows: tuple[Row, ...]


PUBLISHED_ROWS: Codec[PublishedRows] = Codec("published rows", PublishedRows)
