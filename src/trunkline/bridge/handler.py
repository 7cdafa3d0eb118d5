"""What a handler is: it writes bundles of one type, of one site or of many, in a transaction that is not its own.

The DB workers decide what is written and when (`trunkline.bridge.apply`); a handler only knows how. It must write nothing that
did not change, must touch no row of a site it was not given, and raises `Invalid` for what it cannot read: then every site is
written by itself, and the one that cannot be is set aside. Between two statements it works no longer than a second or so, or
within `trunkline.db.awake`: else the server takes it for asleep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import psycopg

from trunkline.core.bundle import Version

if TYPE_CHECKING:
    from trunkline.bridge.types import BundleType


class Part(msgspec.Struct, frozen=True):
    """One bundle. `time` is its CloudEvent time, or ''."""

    id: str
    version: Version
    time: str
    data: bytes


class Work(msgspec.Struct, frozen=True):
    """What one site has: one part of a complete bundle, any number of the others, in the order they came."""

    site: str
    parts: tuple[Part, ...]


class Written(msgspec.Struct, frozen=True):
    """Rows that the bundles held, and rows that were inserted, changed or deleted for them."""

    received: int
    written: int


class Handler(Protocol):
    def write(self, conn: psycopg.Connection[Any], declared: BundleType, work: Sequence[Work]) -> Mapping[str, Written]:
        """By site, for each of `work`; a site appears in it once. The transaction stays open."""
