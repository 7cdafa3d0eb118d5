"""A client that watches keys: first what is there, then every change, without a gap. Pure.

1. A watch begins with all leaves of the digest there are; their keys and values are read when the client takes them, as they
   are then. What comes into a leaf meanwhile is a change.
2. Changes wait, one per key: a later one takes the place of an earlier one, and says how many it stands for. So a slow client
   sees fewer steps and always the last one, and a key that never rests keeps no other one waiting.
3. At most `most` keys wait. Beyond, they are dropped, the client is told how many changes it missed (`Missed`), and
   what is there now is shown from the beginning. So a client that never reads costs a bounded number of names.
4. Whatever a client was told of and is no longer there for it, it is told: expired, erased, or now of an originator it does not
   watch. A value that is about to end is not told, only its end; if a refresh saves it, it is told as a value.
5. A signal comes after the keys that changed before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from trunkline.store.filters import Filter
from trunkline.store.table import Merged, Table
from trunkline.store.values import Value

MOST_WAITING: Final = 10_000
MOST_SIGNALS: Final = 1_000
MOST_LOOKS: Final = 10_000  # some milliseconds, in a store where the filter matches few keys


class Kind(StrEnum):
    VALUE = "value"
    """A value that is new, or was there when the watch began."""
    TTL = "ttl"
    """The same value lives longer."""
    ERASED = "erased"
    """By somebody, or, without a value, for this client alone: the key has an originator now that it does not watch."""
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


@dataclass(eq=False)
class Watch:
    """`read` it through its area. `wake` is called whenever there is something after there was nothing."""

    filter: Filter
    with_ttl: bool = False
    wake: Callable[[], None] = lambda: None
    most: int = MOST_WAITING
    _leaves: deque[int] | None = None
    """Those that are still to be shown; None: all were."""
    _names: deque[str] = field(default_factory=deque)
    """The rest of the leaf that is being shown."""
    _waiting: dict[str | Signal, KeyEvent | Signal] = field(default_factory=dict)
    _keys: int = 0
    """How many of those are keys."""
    _missed: int = 0

    @property
    def is_empty(self) -> bool:
        return self._leaves is None and not self._waiting and not self._missed

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # -- from the store

    def restart(self, leaves: Iterable[int]) -> None:
        self._leaves, self._names = deque(leaves), deque()

    def tell(self, event: KeyEvent) -> None:
        if event.kind is Kind.TTL and not self.with_ttl:
            return
        if self._missed:
            self._missed += 1
            return
        was_empty = self.is_empty
        before = self._waiting.get(event.key)
        if before is None and self._keys >= self.most:
            self._drop_keys()
        else:
            self._keys += before is None
            self._waiting[event.key] = _after(before, event)
        self._wake_if(was_empty)

    def _drop_keys(self) -> None:
        events = self._waiting.values()
        self._missed = 1 + sum(1 + waiting.skipped for waiting in events if isinstance(waiting, KeyEvent))
        self._waiting = {waiting: waiting for waiting in events if isinstance(waiting, Signal)}
        self._keys = 0

    def signal(self, signal: Signal) -> None:
        """The same one once, when it came last; beyond the bound the oldest goes."""
        was_empty = self.is_empty
        self._waiting.pop(signal, None)
        if len(self._waiting) - self._keys >= MOST_SIGNALS:
            del self._waiting[next(waiting for waiting in self._waiting if isinstance(waiting, Signal))]
        self._waiting[signal] = signal
        self._wake_if(was_empty)

    def _wake_if(self, was_empty: bool) -> None:
        if was_empty and not self.is_empty:
            self.wake()

    # -- to the client

    def take(self, most: int, table: Table, now: float) -> list[WatchEvent]:
        """Nothing may come although there is more: then `wake` was called again."""
        events: list[WatchEvent] = []
        if self._missed:
            events.append(Missed(self._missed))
            self._missed = 0
            self.restart(table.digest.by_index)
        if self._leaves is not None:
            self._take_snapshot(self._leaves, events, most, table, now)
        while self._leaves is None and self._waiting and len(events) < most:
            event = self._waiting.pop(next(iter(self._waiting)))
            self._keys -= isinstance(event, KeyEvent)
            events.append(event)
        if not events and not self.is_empty:
            self.wake()
        return events

    def _take_snapshot(self, leaves: deque[int], events: list[WatchEvent], most: int, table: Table, now: float) -> None:
        looks = MOST_LOOKS
        while (self._names or leaves) and looks and len(events) < most:
            if not self._names:
                self._names.extend(table.digest.keys((leaves.popleft(),)))
                continue
            looks -= 1
            key = self._names.popleft()
            if not self.filter.may_match(key):
                continue
            value = table.shown(key, now)
            if value is not None and self.filter.matches(key, value):
                self._keys -= self._waiting.pop(key, None) is not None
                events.append(KeyEvent(Kind.VALUE, key, value))
        if not self._names and not leaves and len(events) < most:
            self._leaves = None
            events.append(Signal(SignalKind.SNAPSHOT_DONE))


def _after(before: KeyEvent | Signal | None, event: KeyEvent) -> KeyEvent:
    """A longer life does not hide that the value is new."""
    if not isinstance(before, KeyEvent):
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
        watch.restart(self._table.digest.by_index)
        self._watches.append(watch)
        watch.wake()

    def remove(self, watch: Watch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)

    def read(self, watch: Watch, most: int, now: float) -> list[WatchEvent]:
        return watch.take(most, self._table, now)

    def tell_of(self, merged: Merged, now: float) -> None:
        for key in merged.taken if self._watches else ():
            before = merged.overridden.get(key)
            value = self._table.entries[key].value
            event = self._event(key, key in merged.refreshed, now)
            for watch in self._watches:
                if watch.filter.matches(key, value):
                    if event is not None:
                        watch.tell(event)
                elif before is not None and watch.filter.matches_originator(key, before):
                    watch.tell(KeyEvent(Kind.ERASED, key))

    def _event(self, key: str, is_refresh: bool, now: float) -> KeyEvent | None:
        """None: there is nothing to tell of what was taken."""
        stored = self._table.entries[key].value
        if stored.erased:
            return None if is_refresh else KeyEvent(Kind.ERASED, key, stored)
        shown = self._table.shown(key, now)
        return None if shown is None else KeyEvent(Kind.TTL if is_refresh else Kind.VALUE, key, shown)

    def tell_expired(self, gone: Mapping[str, Value]) -> None:
        for key, value in gone.items() if self._watches else ():
            for watch in self._watches if not value.erased else ():
                if watch.filter.matches(key, value):
                    watch.tell(KeyEvent(Kind.EXPIRED, key))

    def signal(self, kind: SignalKind, peer: str = "") -> None:
        for watch in self._watches:
            watch.signal(Signal(kind, peer))
