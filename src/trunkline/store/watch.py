"""A client that watches keys: first what is there, then every change, without a gap. Pure.

1. A watch begins with the names of all keys there are; their values are read when the client takes them, as they are then.
2. Changes wait, one per key: a later one takes the place of an earlier one, and says how many it stands for. So a slow client
   sees fewer steps and always the last one.
3. At most `MOST_WAITING` keys wait. Beyond, they are dropped, the client is told how many changes it missed (`Missed`), and
   what is there now is shown from the beginning. So a client that never reads costs a bounded number of names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from trunkline.store.filters import Filter
from trunkline.store.table import Merged, Table
from trunkline.store.values import Value

MOST_WAITING: Final = 10_000
MOST_SIGNALS: Final = 1_000


class Kind(StrEnum):
    VALUE = "value"
    """A value that is new, or was there when the watch began."""
    TTL = "ttl"
    """The same value lives longer."""
    ERASED = "erased"
    EXPIRED = "expired"


class SignalKind(StrEnum):
    SNAPSHOT_DONE = "snapshot_done"
    """What was there when the watch began has been told; changes follow."""
    PEER_SYNCED = "peer_synced"
    SYNCED = "synced"
    """The whole area, for the first time since the node started."""


@dataclass(frozen=True)
class Signal:
    kind: SignalKind
    peer: str = ""


@dataclass(frozen=True)
class KeyEvent:
    kind: Kind
    key: str
    value: Value | None = None
    """With what remains of its ttl."""
    skipped: int = 0
    """Changes of this key since the client last saw it that this one stands for."""


@dataclass(frozen=True)
class Missed:
    """So many changes were dropped: everything there is follows anew."""

    changes: int


WatchEvent = KeyEvent | Missed | Signal


@dataclass
class Watch:
    """`read` it through its area. `wake` is called whenever there is something after there was nothing."""

    filter: Filter
    with_ttl: bool = False
    wake: Callable[[], None] = lambda: None
    _todo: deque[str] | None = None
    _waiting: dict[str, KeyEvent] = field(default_factory=dict)
    _signals: deque[Signal] = field(default_factory=lambda: deque(maxlen=MOST_SIGNALS))
    _missed: int = 0

    @property
    def is_empty(self) -> bool:
        return self._todo is None and not self._waiting and not self._signals and not self._missed

    # -- from the store

    def restart(self, keys: Iterable[str]) -> None:
        self._todo = deque(key for key in keys if self.filter.matches_key(key) or self.filter.originators)

    def tell(self, event: KeyEvent) -> None:
        if event.kind is Kind.TTL and not self.with_ttl:
            return
        if self._missed:
            self._missed += 1
            return
        was_empty = self.is_empty
        before = self._waiting.pop(event.key, None)
        if before is None and len(self._waiting) >= MOST_WAITING:
            self._missed = 1 + sum(1 + waiting.skipped for waiting in self._waiting.values())
            self._waiting.clear()
        else:
            self._waiting[event.key] = _after(before, event)
        self._wake_if(was_empty)

    def signal(self, signal: Signal) -> None:
        was_empty = self.is_empty
        self._signals.append(signal)
        self._wake_if(was_empty)

    def _wake_if(self, was_empty: bool) -> None:
        if was_empty and not self.is_empty:
            self.wake()

    # -- to the client

    def take(self, most: int, shown: Callable[[str], Value | None], all_keys: Callable[[], Iterable[str]]) -> list[WatchEvent]:
        """`shown` is what may be seen of a key now."""
        events: list[WatchEvent] = []
        if self._missed:
            events.append(Missed(self._missed))
            self._missed = 0
            self.restart(all_keys())
        if self._todo is not None:
            self._take_snapshot(events, most, shown)
        while self._todo is None and self._waiting and len(events) < most:
            events.append(self._waiting.pop(next(iter(self._waiting))))
        if self._todo is None and not self._waiting:
            events += self._signals
            self._signals.clear()
        return events

    def _take_snapshot(self, events: list[WatchEvent], most: int, shown: Callable[[str], Value | None]) -> None:
        todo = self._todo
        assert todo is not None
        while todo and len(events) < most:
            key = todo.popleft()
            value = shown(key)
            if value is not None and self.filter.matches(key, value):
                self._waiting.pop(key, None)
                events.append(KeyEvent(Kind.VALUE, key, value))
        if not todo:
            self._todo = None
            events.append(Signal(SignalKind.SNAPSHOT_DONE))


def _after(before: KeyEvent | None, event: KeyEvent) -> KeyEvent:
    """A longer life does not hide that the value is new."""
    if before is None:
        return event
    kind = before.kind if event.kind is Kind.TTL and before.kind is Kind.VALUE else event.kind
    return KeyEvent(kind, event.key, event.value, before.skipped + 1)


class Watches:
    """All watches of one area."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._watches: list[Watch] = []

    def __len__(self) -> int:
        return len(self._watches)

    def add(self, watch: Watch) -> None:
        watch.restart(self._table.entries)
        self._watches.append(watch)
        watch.wake()

    def remove(self, watch: Watch) -> None:
        self._watches.remove(watch)

    def read(self, watch: Watch, most: int, now: float) -> list[WatchEvent]:
        return watch.take(most, lambda key: self._table.shown(key, now), lambda: self._table.entries)

    def tell_of(self, merged: Merged, now: float) -> None:
        for key in merged.taken if self._watches else ():
            value = self._table.outgoing(key, now)
            if value is None:
                continue
            kind = Kind.TTL if key in merged.refreshed else Kind.ERASED if value.erased else Kind.VALUE
            for watch in self._watches:
                if watch.filter.matches(key, value):
                    watch.tell(KeyEvent(kind, key, value))

    def tell_expired(self, keys: Iterable[str]) -> None:
        for key in keys if self._watches else ():
            for watch in self._watches:
                if watch.filter.matches_key(key):
                    watch.tell(KeyEvent(Kind.EXPIRED, key))

    def signal(self, kind: SignalKind, peer: str = "") -> None:
        for watch in self._watches:
            watch.signal(Signal(kind, peer))
