"""What the API knows of a node's replicated store.

A value is shown as {"version", "originator", "ttl_ms" (null: for ever), "ttl_version", "hash" (16 hex digits), "bytes"} and,
where its bytes are asked for, "text" if they are UTF-8 and "base64" otherwise. A reason is the value of a
`trunkline.store.values.Reason`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Shown = dict[str, Any]
Reasons = dict[str, str]
"""key → why it was not taken; those that were are not named."""


@dataclass(frozen=True)
class Query:
    """As `trunkline.store.filters.filter_of` reads it."""

    prefixes: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    originators: tuple[str, ...] = ()
    every: bool = False


@dataclass(frozen=True)
class Put:
    data: bytes
    ttl_ms: int | None = None
    """None: for ever; of a key that is kept: the node's default."""
    version: int | None = None
    """None: one above what is stored."""
    keep: str = "no"
    """no: written once. set: refreshed until somebody else writes it. persist: also raised above whatever overrides it."""


class OpenWatch(Protocol):
    def read(self, most: int) -> list[dict[str, Any]]:
        """What there is now, perhaps nothing: {"event": "value" | "ttl" | "erased" | "expired", "key", "skipped", …value},
        {"event": "missed", "changes"}, {"event": "snapshot_done" | "peer_synced" | "synced", "peer"}."""

    def close(self) -> None: ...


class StoreView(Protocol):
    """All of these may block, and may raise `TrunklineError`; `Invalid` for an area this node is not in."""

    def areas(self) -> dict[str, Shown]:
        """Of each area: keys, bytes, peers, initialized peers, synced, watches, and its counters."""

    def get(self, area: str, key: str) -> Shown | None:
        """With its bytes."""

    def dump(self, area: str, query: Query, values: bool, after: str = "", most: int | None = None) -> dict[str, Shown]:
        """`values`: with bytes. In the order of the keys. Asked in portions, so that the node goes on meanwhile.

        `after`: only keys behind that one. `most`: only the first ones; without it all are held at once."""

    def own(self, area: str) -> dict[str, Shown]:
        """Keys this node keeps alive: {"keep": "set" | "persist", "version", "ttl_ms", "bytes"}."""

    def put(self, area: str, puts: Mapping[str, Put]) -> Reasons:
        """A bound key (node:, link:, rows:, site:) is refused with not_the_owner: only nodes write those."""

    def refresh(self, area: str, ttls: Mapping[str, int | None]) -> Reasons: ...

    def clear(self, area: str, keys: Sequence[str]) -> Reasons:
        """No longer kept alive by this node."""

    def erase(self, area: str, keys: Sequence[str]) -> Reasons: ...

    def signature(self, area: str, query: Query) -> str:
        """16 hex digits over names and values of the keys; the same at every node that has the same, whatever their ttl."""

    def peers(self, area: str) -> dict[str, Shown]:
        """{"state", "seconds" in it, "flaps", "failures", "reason", "linked", "addresses", "pending"}"""

    def add_peer(self, area: str, name: str, addresses: Sequence[str]) -> None:
        """Adds it or changes its addresses; it is dialled."""

    def delete_peer(self, area: str, name: str) -> bool:
        """False: there was none. It is no longer dialled."""

    def watch(self, area: str, query: Query, ttl: bool, wake: Callable[[], None]) -> OpenWatch:
        """`wake` is called from another thread when there is something to read after there was nothing."""
