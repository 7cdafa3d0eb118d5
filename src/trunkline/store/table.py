"""The keys of one area: what is stored, until when, and its digest. Pure.

1. A key changes only by `take`, whoever brings it, and leaves only by `expire`.
2. Whatever is refused leaves the rest of what came with it untouched.
3. A value leaves this node (`outgoing`) with what remains of its ttl less a decrement, so no cycle keeps a dead key alive; one
   that is about to end (`near_ms`) does not leave any more, nor is it shown, for it would be gone on arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from zlib import crc32

from trunkline.store.digest import LEAVES, MASK, Digest, Entry, Leaf
from trunkline.store.expiry import NEVER, Wheel, span_of
from trunkline.store.values import INFINITE, Header, Outcome, Reason, Value, hashes, merge, refusals

# To drop that many takes about ten milliseconds; the rest of a crowd is due a tick later, and seen by nobody meanwhile.
EXPIRE_AT_ONCE = 2_000


@dataclass(slots=True)
class Merged:
    """What became of a publication."""

    taken: dict[str, Value] = field(default_factory=dict)
    """As it came."""
    refreshed: set[str] = field(default_factory=set)
    """Those of them whose ttl alone moved, of a value that was shown before."""
    overridden: dict[str, str] = field(default_factory=dict)
    """The originator before, of those that have another one now."""
    refused: dict[str, Reason] = field(default_factory=dict)


class Entries(Mapping[str, Entry]):
    """All entries, leaf by leaf."""

    def __init__(self, leaves: Mapping[int, Leaf]) -> None:
        self._leaves = leaves
        self.count = 0

    def get(self, key: str, default: None = None) -> Entry | None:  # type: ignore[override]
        leaf = self._leaves.get(crc32(key.encode()) % LEAVES)
        return leaf.entries.get(key) if leaf is not None else default

    def __getitem__(self, key: str) -> Entry:
        return self._leaves[crc32(key.encode()) % LEAVES].entries[key]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return (key for leaf in self._leaves.values() for key in leaf.entries)

    def __len__(self) -> int:
        return self.count


class Table:
    def __init__(self, decrement_ms: int = 1, near_ms: int = 500) -> None:
        self.digest = Digest()
        self.entries = Entries(self.digest.by_index)
        self._decrement, self._near = decrement_ms, near_ms
        self._hidden = (near_ms + decrement_ms + 1) / 1000
        self._wheel = Wheel()
        self.bytes = 0
        """Of all values."""

    def __len__(self) -> int:
        return self.entries.count

    # -- changing

    def take(self, values: Mapping[str, Value], now: float) -> Merged:
        """The hot path of the store: what most values need stands here, the rest in functions."""
        merged, leaves = Merged(refused=refusals(values)), self.digest.by_index
        refused = merged.refused
        allowed = {key: value for key, value in values.items() if key not in refused} if refused else values
        ttl_ms, ends, span, armed, added, grown = 0, 0.0, 0, list[str](), 0, 0
        for (key, value), hashed in zip(allowed.items(), hashes(allowed), strict=True):
            data = value.data
            if data is not None and hashed != value.hash:
                refused[key] = Reason.WRONG_HASH
                continue
            leaf = leaves.get(crc32(key.encode()) % LEAVES) or self.digest.leaf_of(key)
            entry = leaf.entries.get(key)
            if entry is not None:
                old = entry.value
                if data is None or value.version <= old.version:
                    outcome = merge(old if data is None or entry.ends > now else None, value)
                    if outcome is Outcome.REFRESHED:
                        if entry.ends - now >= self._hidden:
                            merged.refreshed.add(key)
                        value = _with_ttl(old, value.ttl_ms, value.ttl_version)
                    elif isinstance(outcome, Reason):
                        refused[key] = outcome
                        continue
            elif data is None:
                refused[key] = Reason.INCONSISTENT
                continue
            if value.ttl_ms != ttl_ms:
                ttl_ms, armed = value.ttl_ms, []
                ends = inf if ttl_ms == INFINITE else now + ttl_ms / 1000
                span = NEVER if ttl_ms == INFINITE else span_of(ends)
            word = value.hash * (2 * value.ttl_version + 1)
            if entry is None:
                leaf.sum = (leaf.sum + word) & MASK
                leaf.entries[key] = Entry(value, ends, span, word)
                added += 1
                grown += len(data or b"")
            else:
                leaf.sum = (leaf.sum + word - entry.word) & MASK
                entry.value, entry.ends, entry.word = value, ends, word
                if data is not None:
                    grown += len(data) - len(old.data or b"")
                if old.originator != value.originator:
                    merged.overridden[key] = old.originator
                if span >= entry.armed:
                    continue
                self._wheel.left_behind += entry.armed != NEVER
                entry.armed = span
            if span != NEVER:
                armed = armed or self._wheel.span(span)
                armed.append(key)
        self.entries.count += added
        self.bytes += grown
        merged.taken = {k: v for k, v in values.items() if k not in refused} if refused else dict(values)
        if self._wheel.is_worn(self.entries.count):
            self._wheel.renew((key, entry.armed) for key, entry in self.entries.items())
        return merged

    def expire(self, now: float) -> dict[str, Value]:
        """What is gone now, as it was."""
        gone: dict[str, Value] = {}
        for span, keys in self._wheel.due(now, EXPIRE_AT_ONCE):
            for key in keys:
                self._end(key, span, now, gone)
        return gone

    def _end(self, key: str, span: int, now: float, gone: dict[str, Value]) -> None:
        entry = self.entries.get(key)
        if entry is None or entry.armed != span:
            self._wheel.left_behind -= 1
        elif entry.ends <= now:
            self._drop(key, entry)
            gone[key] = entry.value
        else:
            entry.armed = NEVER if entry.ends == inf else span_of(entry.ends)
            if entry.armed != NEVER:
                self._wheel.arm(key, entry.armed)

    def _drop(self, key: str, entry: Entry) -> None:
        leaf = self.digest.leaf_of(key)
        del leaf.entries[key]
        self.entries.count -= 1
        self.bytes -= len(entry.value.data or b"")
        leaf.sum = (leaf.sum - entry.word) & MASK

    # -- reading

    def get(self, key: str, now: float) -> Value | None:
        """What a reader sees: neither what was erased nor what would not survive a hop."""
        entry = self.entries.get(key)
        if entry is None or entry.value.erased:
            return None
        left = self._left(entry, now)
        return None if left <= 0 and left != INFINITE else _with_ttl(entry.value, left, entry.value.ttl_version)

    def _left(self, entry: Entry, now: float) -> int:
        return INFINITE if entry.ends == inf else int((entry.ends - now) * 1000) - self._decrement

    def shown(self, key: str, now: float) -> Value | None:
        """What a dump or a subscriber sees: not what is about to end."""
        value = self.outgoing(key, now)
        return None if value is None or value.erased else value

    def outgoing(self, key: str, now: float) -> Value | None:
        entry = self.entries.get(key)
        if entry is None:
            return None
        left = self._left(entry, now)
        if left < self._near and left != INFINITE:
            return None
        value = entry.value
        return Value(value.version, value.originator, value.data, left, value.ttl_version, value.hash, value.erased)

    def onward(self, key: str, value: Value, now: float) -> Value | None:
        """A value that was just taken, as it is passed on: with its bytes only if it came with them."""
        left = self._left(self.entries[key], now)
        if left < self._near and left != INFINITE:
            return None
        return Value(value.version, value.originator, value.data, left, value.ttl_version, value.hash, value.erased)

    def headers(self, keys: Iterable[str]) -> dict[str, Header]:
        found = ((key, self.entries[key].value) for key in keys)
        return {key: Header(v.version, v.originator, v.hash, v.ttl_version) for key, v in found}

    def values(self) -> Iterator[tuple[str, Value]]:
        """As stored; for checks and small stores."""
        return ((key, entry.value) for key, entry in self.entries.items())

    def armed(self) -> int:
        """How many places the wheel holds."""
        return len(self._wheel)


def _with_ttl(value: Value, ttl_ms: int, ttl_version: int) -> Value:
    return Value(value.version, value.originator, value.data, ttl_ms, ttl_version, value.hash, value.erased)
