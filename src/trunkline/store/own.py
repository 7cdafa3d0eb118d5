"""The keys a node keeps alive: set, persisted, cleared. Pure: it says what to write, the area writes it.

    set      written and refreshed, until somebody else writes the key
    persist  written, refreshed, and raised above whatever overrides it
    unset    written once more with other bytes, and left to expire
    clear    no longer refreshed; what is stored stays until its ttl ends

1. A key is refreshed at a quarter of its ttl, by a higher ttl version without its bytes. Only a value that is right is; another
   one, or none, is written over.
2. Nothing is written at once: all that is due goes out together with the next `due`, a key at most once in THROTTLE seconds. So
   a key that is persisted and unset within one tick is never seen, and one that is unset and persisted stays as it is.
3. Against an override each further write waits longer, up to eight seconds, until none came for twice as long: two nodes that
   persist one key do not make a storm. A write that waits is not put off by further overrides: it goes above the last one.
4. What no store would take is refused here, before anybody counts on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from trunkline.core.backoff import Backoff
from trunkline.core.errors import Invalid
from trunkline.store.expiry import NEVER, SPANS_PER_SECOND, Wheel
from trunkline.store.values import INFINITE, MAX_VERSION, Value, refresh_of, refusal, sealed

THROTTLE: Final = 0.1
FIRST_BACKOFF, LONGEST_BACKOFF = 0.064, 8.192
QUIET: Final = 2 * LONGEST_BACKOFF
DUE_AT_ONCE: Final = 1_000  # to write that many takes about ten milliseconds; the rest of a crowd is due a tick later


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
    written_at: float = -inf
    refresh_at: float = 0.0
    version: int = 0
    """As it was last written."""
    armed: int = NEVER

    @property
    def at(self) -> float:
        """When something is to be done for it."""
        return self.refresh_at if self.write_at is None else self.write_at


@dataclass
class OwnKeys:
    node: str
    ttl_ms: int
    random: Callable[[], float]
    keys: dict[str, Own] = field(default_factory=dict)
    _unset: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    _wheel: Wheel = field(default_factory=Wheel)

    # -- wishes

    def keep(
        self, key: str, data: bytes, stored: Value | None, now: float, *,
        persisted: bool, ttl_ms: int | None = None, floor: int = 1,
    ) -> None:  # fmt: skip
        ttl_ms = self.ttl_ms if ttl_ms is None else ttl_ms
        self._check(key, data, ttl_ms, floor)
        self._unset.pop(key, None)
        self._renew_if_worn()
        own = self.keys.get(key)
        if own is None or own.data != data or own.floor < floor or own.persisted != persisted:
            own = self.keys[key] = self._after(own, data, ttl_ms, persisted, floor)
            if self._is_right(own, stored):
                own.version, own.refresh_at = stored.version, now  # type: ignore[union-attr]
            else:
                own.write_at = max(now, own.written_at + THROTTLE)
        elif own.ttl_ms != ttl_ms:
            own.ttl_ms, own.refresh_at = ttl_ms, now
        self._arm(key, own)

    def _after(self, before: Own | None, data: bytes, ttl_ms: int, persisted: bool, floor: int) -> Own:
        if before is None:
            return Own(data, ttl_ms, persisted, floor, Backoff(FIRST_BACKOFF, LONGEST_BACKOFF, self.random))
        return replace(before, data=data, ttl_ms=ttl_ms, persisted=persisted, floor=floor, write_at=None)

    def clear(self, key: str) -> bool:
        self._unset.pop(key, None)
        return self._let_go(key) is not None

    def unset(self, key: str, data: bytes) -> None:
        self._check(key, data, self.ttl_ms, 1)
        own = self._let_go(key)
        _, ttl_ms = self._unset.get(key, (data, self.ttl_ms))
        self._unset[key] = data, ttl_ms if own is None else own.ttl_ms

    def _let_go(self, key: str) -> Own | None:
        own = self.keys.pop(key, None)
        self._wheel.left_behind += own is not None and own.armed != NEVER
        return own

    def _check(self, key: str, data: bytes, ttl_ms: int, floor: int) -> None:
        reason = refusal(key, sealed(key, max(1, floor), self.node, data, ttl_ms))
        if reason is not None:
            raise Invalid(f"key {key[:80]!r}", f"no store would take it: {reason}", "mend what the reason names")

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
        if own is None:
            return
        if self._is_right(own, stored):  # of an earlier life, or refreshed by somebody else, perhaps for a shorter time
            soon = inf if stored.ttl_ms == INFINITE else now + stored.ttl_ms / 4000
            own.refresh_at = min(own.refresh_at, soon) if own.write_at is None else now
            own.version, own.write_at = stored.version, None
        elif own.write_at is not None:
            return
        elif own.persisted:
            if now - own.written_at > QUIET:
                own.backoff.success()
            own.write_at = now + own.backoff.after_failure()
        else:
            self._let_go(key)
            return
        self._arm(key, own)

    # -- what is to be written

    def due(self, stored: Callable[[str], Value | None], now: float) -> dict[str, Value]:
        self._renew_if_worn()
        writes = self._due_unset(stored)
        due = ((key, span) for span, keys in self._wheel.due(now, DUE_AT_ONCE) for key in keys)
        for key, span in due:
            own = self.keys.get(key)
            if own is None or own.armed != span:
                self._wheel.left_behind -= 1
                continue
            own.armed = NEVER
            value = self._write(key, own, stored(key), now)
            if value is not None:
                writes[key] = value
            self._arm(key, own)
        return writes

    def _due_unset(self, stored: Callable[[str], Value | None]) -> dict[str, Value]:
        unset, self._unset = self._unset, {}
        found = ((key, stored(key), data, ttl_ms) for key, (data, ttl_ms) in unset.items())
        return {
            key: sealed(key, before.version + 1, self.node, data, ttl_ms)
            for key, before, data, ttl_ms in found
            if before is not None and not before.erased
        }

    def _write(self, key: str, own: Own, stored: Value | None, now: float) -> Value | None:
        if own.at > now:
            return None
        if own.write_at is None and stored is not None and self._can_refresh(own, stored, now):
            own.refresh_at = _next_refresh(own, now)
            return refresh_of(stored, own.ttl_ms)
        above = max(own.version, 0 if stored is None else stored.version)
        if above >= MAX_VERSION:
            own.write_at = now + LONGEST_BACKOFF
            return None
        own.version = max(own.floor, above + 1)
        own.write_at, own.written_at = None, now
        own.refresh_at = _next_refresh(own, now)
        return sealed(key, own.version, self.node, own.data, own.ttl_ms)

    def _can_refresh(self, own: Own, stored: Value, now: float) -> bool:
        """Not if it has ended: then this process slept, and others no longer have its bytes."""
        ended = own.ttl_ms != INFINITE and now - own.refresh_at >= own.ttl_ms * 3 / 4000
        return not ended and self._is_right(own, stored) and stored.ttl_version < MAX_VERSION

    # -- when

    def _arm(self, key: str, own: Own) -> None:
        span = NEVER if own.at == inf else int(own.at * SPANS_PER_SECOND)
        if span < own.armed:
            self._wheel.left_behind += own.armed != NEVER
            own.armed = span
            self._wheel.arm(key, span)

    def _renew_if_worn(self) -> None:
        if self._wheel.is_worn(len(self.keys)):
            self._wheel.renew((key, own.armed) for key, own in self.keys.items())

    def armed(self) -> int:
        """How many places the wheel holds."""
        return len(self._wheel)


def _next_refresh(own: Own, now: float) -> float:
    return now + own.ttl_ms / 4000 if own.ttl_ms != INFINITE else inf
