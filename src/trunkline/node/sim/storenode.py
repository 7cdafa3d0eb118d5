"""A node that runs the store alone, with clients that change keys and one that watches them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trunkline.core.bucket import Rate
from trunkline.net.channels import Channel
from trunkline.net.simhost import Greeting, Outlet
from trunkline.node.sim.history import EVER, Change, Verb
from trunkline.store.area import Area
from trunkline.store.filters import Filter
from trunkline.store.messages import CODEC, Send
from trunkline.store.settings import Settings
from trunkline.store.values import INFINITE, Value
from trunkline.store.watch import KeyEvent, Kind, Missed, Watch

READ_ALL = 100_000


@dataclass(frozen=True)
class Manner:
    """How the nodes of a universe are set."""

    settings: Settings
    watched: int = 10_000
    """Keys that wait for a watcher."""
    room: int = 10_000
    """Messages that a link takes between two ticks."""


# Short, so that refreshing, expiring and healing happen within a run.
AMPLE = Manner(Settings(ttl_ms=8_000, sync_seconds=5.0, answer_seconds=2.0, longest_backoff=4.0))
# So little that publications wait, waiting keys are dropped, links are full and watchers miss changes.
NARROW = Manner(
    Settings(
        ttl_ms=8_000, sync_seconds=5.0, answer_seconds=2.0, longest_backoff=4.0, flood_rate=Rate(4.0, 2.0), most_pending=3
    ),
    watched=3,
    room=4,
)


@dataclass(frozen=True)
class Wish:
    data: bytes
    persisted: bool


class StoreNode:
    def __init__(
        self, host: str, outlet: Outlet, now: float, wrote: Callable[[str, str, Value], None], manner: Manner = AMPLE
    ) -> None:
        self.host, self.outlet, self._wrote = host, outlet, wrote
        self.store = Area(host, "fleet", outlet.random.random, manner.settings)
        self.wishes: dict[str, Wish] = {}
        """What it keeps since it was started: the store is replicated memory."""
        self.seen: dict[str, Value] = {}
        """What its watcher knows."""
        self.missed = self.unsent = 0
        self._room, self._sent = manner.room, Counter[str]()
        self._updates_noted = 0
        self._watch = Watch(Filter(), with_ttl=True, most=manner.watched)
        self.store.watch(self._watch)
        self.store.peers_known(now)

    def greeting(self) -> Greeting:
        return Greeting()

    # -- clients

    def change(self, change: Change, now: float) -> None:
        _CHANGES[change.verb](self, change, now)
        self._note_written()

    def _put(self, change: Change, now: float) -> None:
        sends, _ = self.store.write(change.key, change.data, _ttl_ms(change) or self.store.settings.ttl_ms, now)
        self._do(sends, now)

    def _set(self, change: Change, now: float) -> None:
        self.wishes[change.key] = Wish(change.data, False)
        self.store.keep_set(change.key, change.data, now, _ttl_ms(change))

    def _persist(self, change: Change, now: float) -> None:
        self.wishes[change.key] = Wish(change.data, True)
        self.store.persist(change.key, change.data, now, _ttl_ms(change))

    def _unset(self, change: Change, now: float) -> None:
        self.wishes.pop(change.key, None)
        self.store.unset(change.key, change.data)

    def _clear(self, change: Change, now: float) -> None:
        self.wishes.pop(change.key, None)
        self.store.clear(change.key)

    def _erase(self, change: Change, now: float) -> None:
        self.wishes.pop(change.key, None)
        sends, _ = self.store.erase(change.key, now)
        self._do(sends, now)

    def keeps(self, key: str) -> Wish | None:
        """A key that was only set is kept until somebody else writes it."""
        wish = self.wishes.get(key)
        return wish if wish is not None and (wish.persisted or key in self.store.own.keys) else None

    def read(self, most: int, now: float) -> None:
        """Its watcher takes up to so many events and keeps to what they say."""
        for event in self.store.read(self._watch, most, now):
            match event:
                case Missed():
                    self.missed += 1
                    self.seen.clear()
                case KeyEvent(kind=Kind.ERASED | Kind.EXPIRED, key=key):
                    self.seen.pop(key, None)
                case KeyEvent(key=key, value=value) if value is not None:
                    self.seen[key] = value

    def read_all(self) -> None:
        self.read(READ_ALL, self.outlet.clock.monotonic())

    # -- the network

    def link_up(self, peer: str, mine: Greeting, theirs: Greeting, now: float) -> None:
        self._do(self.store.link_up(peer, now), now)

    def link_down(self, peer: str, now: float) -> None:
        self._sent.pop(peer, None)
        self._do(self.store.link_down(peer, now), now)

    def message(self, peer: str, channel: Channel, body: bytes, now: float) -> None:
        self._do(self.store.receive(peer, CODEC.decode(body), now), now)

    def tick(self, now: float) -> None:
        full = [peer for peer, count in self._sent.items() if count >= self._room]
        self._sent.clear()
        for peer in full:
            self._do(self.store.has_room(peer, now), now)
        self._do(self.store.tick(now), now)
        self._note_written()

    def _do(self, sends: Sequence[Send], now: float) -> None:
        for send in sends:
            if self._sent[send.peer] < self._room:
                self._sent[send.peer] += 1
                self.outlet.send(send.peer, Channel.STORE, CODEC.encode(send.message))
            else:
                self.unsent += 1
                self.store.not_sent(send.peer, send.message, now)

    def _note_written(self) -> None:
        """A node writes only when its client asks it to and when it ticks."""
        updates = self.store.counters["updated_key_vals"]
        if updates == self._updates_noted:
            return
        self._updates_noted = updates
        for key, entry in self.store.table.entries.items():
            if entry.value.originator == self.host:
                self._wrote(self.host, key, entry.value)


def _ttl_ms(change: Change) -> int | None:
    return INFINITE if change.seconds == EVER else round(change.seconds * 1000) or None


_CHANGES: dict[Verb, Callable[[StoreNode, Change, float], None]] = {
    Verb.PUT: StoreNode._put,
    Verb.SET: StoreNode._set,
    Verb.PERSIST: StoreNode._persist,
    Verb.UNSET: StoreNode._unset,
    Verb.CLEAR: StoreNode._clear,
    Verb.ERASE: StoreNode._erase,
}
