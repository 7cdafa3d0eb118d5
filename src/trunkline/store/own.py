"""The keys a node keeps alive: set, persisted, cleared. Pure: it says what to write, the area writes it.

    set      written and refreshed, until somebody else writes the key
    persist  written, refreshed, and raised above whatever overrides it
    unset    written once more with other bytes, and left to expire
    clear    no longer refreshed; what is stored stays until its ttl ends

1. A key is refreshed at a quarter of its ttl, by a higher ttl version without its bytes.
2. Nothing is written at once: all that is due goes out together with the next `due`, a key at most once in THROTTLE seconds. So
   a key that is persisted and unset within one tick is never seen, and one that is unset and persisted stays as it is.
3. Against an override each further write waits longer, up to eight seconds: two nodes that persist one key do not make a storm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from trunkline.core.backoff import Backoff
from trunkline.store.expiry import NEVER, SPANS_PER_SECOND, Wheel
from trunkline.store.values import INFINITE, MAX_VERSION, Value, refresh_of, sealed

THROTTLE: Final = 0.1
FIRST_BACKOFF, LONGEST_BACKOFF = 0.064, 8.192
DUE_AT_ONCE: Final = 5_000


@dataclass
class Own:
    data: bytes
    ttl_ms: int
    persisted: bool
    floor: int
    """The lowest version to write it with."""
    backoff: Backoff
    write_at: float | None = None
    """None: what is stored is right."""
    written_at: float = -1.0
    refresh_at: float = 0.0
    version: int = 0
    """As it was last written."""
    armed: int = NEVER


@dataclass
class OwnKeys:
    node: str
    ttl_ms: int
    random: Callable[[], float]
    keys: dict[str, Own] = field(default_factory=dict)
    _unset: dict[str, bytes] = field(default_factory=dict)
    _wheel: Wheel = field(default_factory=Wheel)

    # -- wishes

    def keep(
        self, key: str, data: bytes, stored: Value | None, now: float, *,
        persisted: bool, ttl_ms: int | None = None, floor: int = 1,
    ) -> None:  # fmt: skip
        self._unset.pop(key, None)
        ttl_ms = ttl_ms or self.ttl_ms
        own = self.keys.get(key)
        if own is None or own.data != data or own.floor < floor or own.persisted != persisted:
            written_at = own.written_at if own is not None else -1.0
            last = own.version if own is not None else 0
            own = self.keys[key] = Own(
                data, ttl_ms, persisted, floor, self._fresh_backoff(), written_at=written_at, version=last
            )
            if self._is_right(own, stored):
                own.version, own.refresh_at = stored.version, now  # type: ignore[union-attr]
            else:
                own.write_at = max(now, written_at + THROTTLE)
        elif own.ttl_ms != ttl_ms:
            own.ttl_ms, own.refresh_at = ttl_ms, now
        self._arm(key, own)

    def clear(self, key: str) -> bool:
        self._unset.pop(key, None)
        return self.keys.pop(key, None) is not None

    def unset(self, key: str, data: bytes) -> None:
        self.keys.pop(key, None)
        self._unset[key] = data

    def _fresh_backoff(self) -> Backoff:
        return Backoff(FIRST_BACKOFF, LONGEST_BACKOFF, self.random)

    def _is_right(self, own: Own, stored: Value | None) -> bool:
        return (
            stored is not None
            and stored.originator == self.node
            and stored.data == own.data
            and not stored.erased
            and stored.version >= own.floor
        )

    # -- what others wrote

    def notice(self, key: str, stored: Value, now: float) -> None:
        """The key is now stored as somebody else brought it."""
        own = self.keys.get(key)
        if own is None or stored.version < own.version:
            return
        if self._is_right(own, stored):
            own.version, own.refresh_at = stored.version, now  # of an earlier life, perhaps with a higher ttl version
        elif own.persisted:
            if own.written_at >= 0 and now - own.written_at > LONGEST_BACKOFF:
                own.backoff.success()
            own.write_at = now + own.backoff.after_failure()
        else:
            del self.keys[key]
            return
        self._arm(key, own)

    # -- what is to be written

    def due(self, stored: Callable[[str], Value | None], now: float) -> dict[str, Value]:
        writes: dict[str, Value] = {}
        for key, data in self._unset.items():
            before = stored(key)
            if before is not None:
                writes[key] = sealed(key, before.version + 1, self.node, data, self.ttl_ms)
        self._unset.clear()
        for key, span in self._wheel.due(now, DUE_AT_ONCE):
            own = self.keys.get(key)
            if own is not None and own.armed == span:
                own.armed = NEVER
                value = self._write(key, own, stored(key), now)
                if value is not None:
                    writes[key] = value
                self._arm(key, own)
        return writes

    def _write(self, key: str, own: Own, stored: Value | None, now: float) -> Value | None:
        if stored is None and own.write_at is None:
            own.write_at = now  # it expired here: this process must have slept
        if own.write_at is not None:
            if own.write_at > now:
                return None
            above = stored.version if stored is not None else own.version
            if above >= MAX_VERSION:
                return None
            own.version = max(own.floor, above + 1)
            own.write_at, own.written_at = None, now
            own.refresh_at = self._next_refresh(own, now)
            return sealed(key, own.version, self.node, own.data, own.ttl_ms)
        if own.refresh_at > now or stored is None:
            return None
        own.refresh_at = self._next_refresh(own, now)
        return refresh_of(stored, own.ttl_ms)

    def _next_refresh(self, own: Own, now: float) -> float:
        return now + own.ttl_ms / 4000 if own.ttl_ms != INFINITE else inf

    def _arm(self, key: str, own: Own) -> None:
        at = own.refresh_at if own.write_at is None else own.write_at
        if at == inf:
            return
        span = max(NEVER + 1, int(at * SPANS_PER_SECOND))
        if own.armed == NEVER or span < own.armed:
            own.armed = span
            self._wheel.arm(key, span)
