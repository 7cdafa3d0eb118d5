"""Values of the replicated store and the one rule by which two of them merge.

A value wins by, in this order: higher version, greater originator, greater bytes, higher ttl version. The order is total, so
merging is commutative, associative and idempotent, and stores that exchanged everything are equal. The ttl itself never
decides: it counts down at every holder, and only the originator raises it, by a higher ttl version.

A value without bytes is a refresh: it moves the ttl of exactly the version it names and nothing else.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

import msgspec

MAX_KEY = 256
MAX_VALUE = 64 * 1024  # the store is for hints and membership, and every node holds all of it


class Value(msgspec.Struct, frozen=True, array_like=True):
    version: int
    originator: str
    data: bytes | None
    ttl_ms: int
    ttl_version: int = 1

    def digest(self) -> bytes:
        h = hashlib.blake2b(digest_size=8)
        for part in (str(self.version).encode(), self.originator.encode(), self.data or b""):
            h.update(len(part).to_bytes(4, "big"))
            h.update(part)
        return h.digest()

    def rank(self) -> tuple[int, str, bytes, int]:
        return (self.version, self.originator, self.data or b"", self.ttl_version)


class Reason(StrEnum):
    """Why a value was not taken."""

    OLD = "old version"
    SAME = "no need to update"
    TTL = "ttl is not above 0"
    VERSION = "version is not above 0"
    SIZE = "key or value is too large"
    OWNER = "the key belongs to another originator"
    MISSING = "a refresh of what is not here"


class Outcome(StrEnum):
    REPLACED = "replaced"
    REFRESHED = "refreshed"


def owner_of(key: str) -> str | None:
    """node:<site>/<node> belongs to that node, link:<site> and site:<id> to any node of that site; others to nobody."""
    kind, colon, name = key.partition(":")
    if not colon:
        return None
    return {"node": name, "link": name + "/", "site": name + "/"}.get(kind)


def refusal(key: str, value: Value) -> Reason | None:
    owner = owner_of(key)
    checks = (
        (value.version <= 0 or value.ttl_version < 0, Reason.VERSION),
        (value.ttl_ms <= 0, Reason.TTL),
        (len(key) > MAX_KEY or len(value.data or b"") > MAX_VALUE, Reason.SIZE),
        (owner is not None and not (value.originator + "/").startswith(owner.rstrip("/") + "/"), Reason.OWNER),
    )
    return next((reason for wrong, reason in checks if wrong), None)


def merge(stored: Value | None, incoming: Value) -> Outcome | Reason:
    if incoming.data is None:
        return _refresh(stored, incoming)
    if stored is None or incoming.rank()[:3] > stored.rank()[:3]:
        return Outcome.REPLACED
    if incoming.rank()[:3] == stored.rank()[:3]:
        return Outcome.REFRESHED if incoming.ttl_version > stored.ttl_version else Reason.SAME
    return Reason.OLD if incoming.version < stored.version else Reason.SAME


def _refresh(stored: Value | None, incoming: Value) -> Outcome | Reason:
    if stored is None or (stored.version, stored.originator) != (incoming.version, incoming.originator):
        return Reason.MISSING
    return Outcome.REFRESHED if incoming.ttl_version > stored.ttl_version else Reason.SAME
