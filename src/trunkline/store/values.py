"""Values of the replicated store, and the orders by which two of them are merged and compared. Pure.

Merging (`merge`): the higher version wins, then the greater originator, then an erased value, then the greater bytes, then the
higher ttl version. The order is total, so merging is commutative, associative and idempotent, and stores that exchanged
everything are equal. The ttl itself never decides: it counts down at every holder, and only a higher ttl version raises it.

A value without bytes is a refresh: it moves the ttl of exactly the value it names (version, originator and, when it has one,
hash) and nothing else. One that does not fit what is stored is an inconsistency: somebody missed something.

An erased value is a value: it wins by its version, floods, and leaves by its ttl. It keeps the key away from those who still
hold what was erased.

The hash covers the key too, so sums of hashes (`trunkline.store.digest`) tell which value belongs to which key. What comes
with a hash that does not fit is not taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum
from hashlib import blake2b
from struct import Struct, unpack
from typing import Final

import msgspec

from trunkline.core.errors import Invalid

INFINITE: Final = -(2**31)
"""A ttl in milliseconds that never ends."""
MAX_VERSION: Final = 2**64 - 1  # the widest integer of the wire format
MAX_TTL: Final = 2**50  # 35,000 years; in milliseconds still exact as a float
MAX_KEY: Final = 256
MAX_VALUE: Final = 64 * 1024  # the store is for hints and membership, and every node holds all of it

_FIELDS = Struct(">QIIB").pack
_WORD = 2**64 - 1
_NO_WORD = bytes(8)


class Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    version: int
    originator: str
    data: bytes | None
    """None: a refresh."""
    ttl_ms: int
    ttl_version: int = 0
    hash: int = 0
    """0: not given; only a refresh may come without."""
    erased: bool = False


class Header(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a sync tells of a value before the value itself."""

    version: int
    originator: str
    hash: int
    ttl_version: int


class Reason(StrEnum):
    """Why a value was not taken."""

    OLD_VERSION = "old_version"
    NO_NEED_TO_UPDATE = "no_need_to_update"
    INCONSISTENT = "inconsistent"
    INVALID_TTL = "invalid_ttl"
    INVALID_VERSION = "invalid_version"
    TOO_LARGE = "too_large"
    NOT_THE_OWNER = "not_the_owner"
    WRONG_HASH = "wrong_hash"
    LOOP = "loop"


class Outcome(Enum):
    REPLACED = "replaced"
    REFRESHED = "refreshed"


class Order(Enum):
    FIRST = "first"
    SECOND = "second"
    TIED = "tied"
    UNKNOWN = "unknown"


def hashes(values: Mapping[str, Value]) -> list[int]:
    """Of each value: 8 bytes of BLAKE2b over its fields, each with its length or of a fixed one; of a refresh: 0."""
    words, join = list[bytes](), b"".join
    for key, value in values.items():
        if (data := value.data) is None:
            words.append(_NO_WORD)
        else:
            name, originator = key.encode(), value.originator.encode()
            fields = _FIELDS(value.version & _WORD, len(name), len(originator), value.erased)
            words.append(blake2b(join((fields, name, originator, data)), digest_size=8).digest())
    return list(unpack(f">{len(words)}Q", join(words)))


def sealed(
    key: str, version: int, originator: str, data: bytes, ttl_ms: int, ttl_version: int = 0, erased: bool = False
) -> Value:
    """The value with its hash."""
    value = Value(version, originator, data, ttl_ms, ttl_version, 0, erased)
    try:
        return msgspec.structs.replace(value, hash=hashes({key: value})[0])
    except UnicodeEncodeError as error:
        raise Invalid(f"key {key[:80]!r}", f"it is not text: {error}", "give a name of whole characters") from None


def refresh_of(stored: Value, ttl_ms: int) -> Value:
    return Value(stored.version, stored.originator, None, ttl_ms, stored.ttl_version + 1, stored.hash)


# -- what may be stored at all


_BOUND = ("node:", "link:", "rows:", "site:")


def is_bound(key: str) -> bool:
    """Whether the key belongs to somebody."""
    return key.startswith(_BOUND)


def may_originate(key: str, originator: str) -> bool:
    """node:<site>/<node> belongs to that node; link:<site>, rows:<site> and site:<id> to any node of that site."""
    if not key.startswith(_BOUND):
        return True
    kind, _, owner = key.partition(":")
    return originator == owner if kind == "node" else originator.partition("/")[0] == owner


def refusals(values: Mapping[str, Value]) -> dict[str, Reason]:
    """Those that may not be stored, whatever is; the hash apart."""
    return {
        key: reason
        for key, v in values.items()
        if (data := v.data) is None
        or key[4:5] == ":"  # perhaps bound: a look at half the price of `startswith`
        or not 0 < v.ttl_ms <= MAX_TTL
        or not 0 < v.version <= MAX_VERSION
        or not 0 <= v.ttl_version <= MAX_VERSION
        or len(data) > MAX_VALUE
        or not 0 < len(key) <= MAX_KEY
        or len(v.originator) > MAX_KEY
        if (reason := refusal(key, v)) is not None
    }


def refusal(key: str, value: Value) -> Reason | None:
    if not 0 < value.ttl_ms <= MAX_TTL and value.ttl_ms != INFINITE:
        return Reason.INVALID_TTL
    if value.data is not None and value.version <= 0:
        return Reason.OLD_VERSION
    if value.version > MAX_VERSION or not 0 <= value.ttl_version <= MAX_VERSION:
        return Reason.INVALID_VERSION
    if not 0 < len(key) <= MAX_KEY or len(value.data or b"") > MAX_VALUE or len(value.originator) > MAX_KEY:
        return Reason.TOO_LARGE
    return None if may_originate(key, value.originator) else Reason.NOT_THE_OWNER


# -- merging


def merge(stored: Value | None, incoming: Value) -> Outcome | Reason:
    if incoming.data is None:
        return _refresh(stored, incoming)
    if stored is None or incoming.version > stored.version:
        return Outcome.REPLACED
    if incoming.version < stored.version:
        return Reason.OLD_VERSION
    if incoming.originator != stored.originator:
        wins = incoming.originator > stored.originator
    elif incoming.erased != stored.erased:
        wins = incoming.erased
    elif incoming.data != stored.data:
        wins = incoming.data > (stored.data or b"")
    else:
        return Outcome.REFRESHED if incoming.ttl_version > stored.ttl_version else Reason.NO_NEED_TO_UPDATE
    return Outcome.REPLACED if wins else Reason.NO_NEED_TO_UPDATE


def _refresh(stored: Value | None, incoming: Value) -> Outcome | Reason:
    if stored is None or stored.version != incoming.version or stored.originator != incoming.originator:
        return Reason.INCONSISTENT
    if incoming.hash and incoming.hash != stored.hash:
        return Reason.INCONSISTENT
    return Outcome.REFRESHED if incoming.ttl_version > stored.ttl_version else Reason.NO_NEED_TO_UPDATE


# -- comparing


def compare(first: Value | Header, second: Value | Header) -> Order:
    """Which of the two a sync must send. UNKNOWN: the hashes or bytes that would tell are not there; send both ways."""
    if first.version != second.version:
        return Order.FIRST if first.version > second.version else Order.SECOND
    if first.originator != second.originator:
        return Order.FIRST if first.originator > second.originator else Order.SECOND
    if first.hash and first.hash == second.hash:
        if first.ttl_version == second.ttl_version:
            return Order.TIED
        return Order.FIRST if first.ttl_version > second.ttl_version else Order.SECOND
    if isinstance(first, Header) or isinstance(second, Header) or first.data is None or second.data is None:
        return Order.UNKNOWN
    mine, other = (first.erased, first.data), (second.erased, second.data)
    if mine == other:
        return Order.TIED
    return Order.FIRST if mine > other else Order.SECOND


def difference(
    mine: Mapping[str, Value | Header], theirs: Mapping[str, Value | Header], keys: Iterable[str] | None = None
) -> tuple[list[str], list[str]]:
    """Keys to give and keys to want, of `keys` (all of mine, unless told) and all of theirs."""
    give, want, shared = list[str](), list[str](), len(theirs)
    for key, other in theirs.items():
        own = mine.get(key)
        if own is None:
            want.append(key)
            shared -= 1
        elif own.hash != other.hash or own.ttl_version != other.ttl_version or not own.hash:
            order = compare(own, other)
            if order is Order.FIRST or order is Order.UNKNOWN:
                give.append(key)
            if order is Order.SECOND or order is Order.UNKNOWN:
                want.append(key)
    if keys is None and shared == len(mine):
        return give, want
    names = mine.keys() if keys is None else dict.fromkeys(keys)
    return [key for key in names if key not in theirs] + give, want
