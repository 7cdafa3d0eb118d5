"""The replicated store of one node in one area, without I/O: messages and time go in, messages come out.

Theory of operation
-------------------
Every node of an area holds every key. A change floods (`flood`); a peer is brought into step by a sync when its link comes up,
whenever it is found to be inconsistent, and once per period in turn, so that whatever a lost message left different heals
(`sync`, `peers`). Own keys are kept alive (`own`); watches see what happens (`watch`).

1. A key changes only by `Table.take`, whoever brings it.
2. A publication is dropped by a node that finds itself on its path; its last hop must be the peer that sent it.
3. A refresh that comes straight from its originator and does not fit what is stored means that one of the two missed something:
   that peer is synced again, and everything else of the publication is taken as usual.
4. An answer counts only for the open question of the current sync.
5. The area is synced, once, when every peer is in step or has failed, and the signal comes after the keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from trunkline.core.errors import RemoteProtocolError
from trunkline.store.digest import LEAVES
from trunkline.store.flood import Flood
from trunkline.store.messages import (
    MOST_HOPS,
    MOST_RECEIVED,
    Answer,
    AskKeys,
    AskLeaves,
    AskRoot,
    Difference,
    Message,
    Publish,
    Question,
    Refused,
    Send,
    portions,
)
from trunkline.store.noted import Noted
from trunkline.store.own import OwnKeys
from trunkline.store.peers import Peer, PeerEvent, Peers, PeerState
from trunkline.store.settings import Settings
from trunkline.store.sync import Sync, answer
from trunkline.store.table import Merged, Table
from trunkline.store.values import INFINITE, MAX_TTL, Reason, Value, refresh_of, sealed
from trunkline.store.watch import Signal, SignalKind, Watch, Watches, WatchEvent

# An erased key of infinite ttl: longer than a node may be away and still bring it back.
ERASED_MS = 24 * 3600 * 1000
SHORTEST_ERASED_MS = 60_000

# Reasons of values that are here already, or in a better form: what was offered was of use, if not now.
_KNOWN = frozenset((Reason.NO_NEED_TO_UPDATE, Reason.OLD_VERSION))


class Area:
    """Keys that begin with one of `noted` are found by `matching` without a look at all others, and their changes by
    `changes`."""

    def __init__(
        self, node: str, name: str, random: Callable[[], float], settings: Settings | None = None, noted: tuple[str, ...] = ()
    ) -> None:
        self.node, self.name, self.settings = node, name, settings or Settings()
        s = self.settings
        self.table = Table(s.decrement_ms, s.near_ms)
        self.peers = Peers(s.first_backoff, s.longest_backoff, random)
        self.own = OwnKeys(node, s.ttl_ms, random)
        self.counters: Counter[str] = Counter()
        self.synced = False
        self.watches = Watches(self.table)
        self._flood = Flood(node, name, self.table, s, self.counters)
        self._noted = Noted(noted)
        self._next_comparison: float | None = None
        self._peers_known_at: float | None = None

    # -- clients

    def get(self, key: str, now: float) -> Value | None:
        return self.table.get(key, now)

    def shown(self, now: float) -> Iterator[tuple[str, Value]]:
        """Everything a dump shows, leaf by leaf: to copy a million names at once would stop everything else."""
        names = (key for index in range(LEAVES) for key in self.table.digest.keys((index,)))
        found = ((key, self.table.shown(key, now)) for key in names)
        return ((key, value) for key, value in found if value is not None)

    def put(self, values: Mapping[str, Value], now: float, path: tuple[str, ...] = ()) -> tuple[list[Send], dict[str, Reason]]:
        """Written once, kept alive by nobody; the reasons of those that were not taken."""
        if self.node in path:
            self.counters["looped_publications"] += 1
            return [], dict.fromkeys(values, Reason.LOOP)
        merged = self.table.take(values, now)
        return self._after(merged, path, now), merged.refused

    def write(self, key: str, data: bytes, ttl_ms: int, now: float) -> tuple[list[Send], Reason | None]:
        """As `put`, above whatever version is stored, by this node."""
        stored = self._stored(key)
        value = sealed(key, stored.version + 1 if stored else 1, self.node, data, ttl_ms)
        sends, refused = self.put({key: value}, now)
        return sends, refused.get(key)

    def refresh(self, key: str, ttl_ms: int, now: float) -> tuple[list[Send], Reason | None]:
        """A new ttl for what is stored."""
        stored = self._stored(key)
        if stored is None or self.get(key, now) is None:
            return [], Reason.INCONSISTENT
        sends, refused = self.put({key: refresh_of(stored, ttl_ms)}, now)
        return sends, refused.get(key)

    def erase(self, key: str, now: float) -> tuple[list[Send], Reason | None]:
        """Gone everywhere, and kept away for as long as anybody may still hold it."""
        self.own.clear(key)
        stored = self._stored(key)
        if stored is None or stored.erased:
            return [], Reason.NO_NEED_TO_UPDATE
        ttl_ms = ERASED_MS if stored.ttl_ms == INFINITE else min(MAX_TTL, max(SHORTEST_ERASED_MS, 2 * stored.ttl_ms))
        tombstone = sealed(key, stored.version + 1, self.node, b"", ttl_ms, erased=True)
        sends, refused = self.put({key: tombstone}, now)
        return sends, refused.get(key)

    def persist(self, key: str, data: bytes, now: float, ttl_ms: int | None = None, version: int = 1) -> None:
        """Keeps `key` at `data` for as long as this node lives, at `version` or above; written by the next tick."""
        self.own.keep(key, data, self._stored(key), now, persisted=True, ttl_ms=ttl_ms, floor=version)

    def keep_set(self, key: str, data: bytes, now: float, ttl_ms: int | None = None, version: int = 1) -> None:
        """Keeps `key` at `data` until somebody else writes it; written by the next tick."""
        self.own.keep(key, data, self._stored(key), now, persisted=False, ttl_ms=ttl_ms, floor=version)

    def unset(self, key: str, data: bytes) -> None:
        self.own.unset(key, data)

    def clear(self, key: str) -> None:
        """No longer this node's to keep alive; what is stored stays until its ttl ends."""
        self.own.clear(key)

    def _stored(self, key: str) -> Value | None:
        try:
            entry = self.table.entries.get(key)
        except UnicodeEncodeError:  # nothing can be stored under it
            return None
        return entry.value if entry is not None else None

    # -- watches

    def watch(self, watch: Watch) -> None:
        self.watches.add(watch)
        if self.synced:
            watch.signal(Signal(SignalKind.SYNCED))

    def unwatch(self, watch: Watch) -> None:
        self.watches.remove(watch)

    def read(self, watch: Watch, most: int, now: float) -> list[WatchEvent]:
        return self.watches.read(watch, most, now)

    # -- peers

    def peers_known(self, now: float) -> None:
        """All peers there are to begin with were added; perhaps none."""
        if self._peers_known_at is None:
            self._peers_known_at = now
        self._look_whether_synced(now)

    def add_peer(self, name: str, now: float, addresses: tuple[str, ...] = ()) -> None:
        self.peers.add(name, now, addresses)

    def delete_peer(self, name: str, now: float) -> bool:
        """False: there was none of that name. Its link, if it has one, is the caller's to close."""
        deleted = self.peers.delete(name) is not None
        self._look_whether_synced(now)
        return deleted

    def link_up(self, name: str, now: float) -> list[Send]:
        peer = self.peers.add(name, now, kept=False)
        peer.linked, peer.blocked, peer.retry_at = True, False, 0.0
        if self._next_comparison is None:
            self._next_comparison = now + self.settings.sync_seconds
        return self._start_syncs(now)

    def link_down(self, name: str, now: float, reason: str = "its link went down") -> list[Send]:
        peer = self.peers.by_name.get(name)
        if peer is None or not peer.linked:
            return []
        peer.linked = False
        self.peers.failed(peer, reason, now)
        if not peer.kept:
            self.peers.delete(name)
        self._look_whether_synced(now)
        return self._start_syncs(now)

    def not_sent(self, name: str, message: Message, now: float) -> None:
        """The link's queue is full. What was a publication waits; a question that was not asked is a failure."""
        peer = self.peers.by_name.get(name)
        if peer is None:
            return
        peer.blocked = True
        if isinstance(message, Publish):
            self._flood.note(peer, message.values)
        elif isinstance(message, Question) and peer.sync is not None and peer.sync.id == message.id:
            self._note_failure(peer, "its link is full", now)

    def has_room(self, name: str, now: float) -> list[Send]:
        """The link takes messages again."""
        peer = self.peers.by_name.get(name)
        if peer is None or not peer.blocked:
            return []
        peer.blocked = False
        return [*self._flood.drain((peer,), now), *self._start_syncs(now)]

    # -- messages

    def receive(self, name: str, message: Message, now: float) -> list[Send]:
        match message:
            case Publish():
                return self._on_publish(name, message, now)
            case AskRoot() | AskLeaves() | AskKeys():
                self.counters["questions_answered"] += 1
                return [Send(name, answer(message, self.table, now))]
            case _:
                return self._on_answer(name, message, now)

    def _on_publish(self, name: str, message: Publish, now: float) -> list[Send]:
        path, values = message.path, message.values
        if not path or path[-1] != name:
            raise RemoteProtocolError("publication", f"its last hop is not the sender {name}", "run an unmodified node")
        if len(values) > MOST_RECEIVED or len(path) > MOST_HOPS:
            raise RemoteProtocolError("publication", "it has too many values or hops", "run an unmodified node")
        if self.node in path:
            self.counters["looped_publications"] += 1
            return []
        self.counters["received_publications"] += 1
        self.counters["received_key_vals"] += len(values)
        merged = self.table.take(values, now)
        if not merged.taken:
            self.counters["received_redundant_publications"] += 1
        sends = self._after(merged, path, now)
        if self._is_inconsistent(name, message, merged):
            sends += self._sync_again(name, now)
        return sends

    def _is_inconsistent(self, name: str, message: Publish, merged: Merged) -> bool:
        unfit = (key for key, reason in merged.refused.items() if reason is Reason.INCONSISTENT)
        return any(message.values[key].originator == name for key in unfit)

    def _after(self, merged: Merged, path: tuple[str, ...], now: float, own: bool = False) -> list[Send]:
        """What follows from a merge, whoever caused it; `own`: what this node keeps alive."""
        for reason in merged.refused.values():
            self.counters[f"refused_{reason}"] += 1
        if not merged.taken:
            return []
        self.counters["updated_key_vals"] += len(merged.taken)
        self._noted.is_there(key for key in merged.taken if key not in merged.refreshed)
        for key in () if own or not self.own.keys else merged.taken:
            if key in self.own.keys:
                self.own.notice(key, self.table.entries[key].value, now)
        self.watches.tell_of(merged, now)
        return self._flood.spread(merged.taken, path, self.peers.by_name.values(), now)

    # -- syncing

    def _start_syncs(self, now: float) -> list[Send]:
        return [self._ask_root(peer, now) for peer in self.peers.ready(now)]

    def _ask_root(self, peer: Peer, now: float) -> Send:
        if peer.state is PeerState.IDLE:
            peer.step(PeerEvent.PEER_ADD, now)
            self.counters["full_syncs"] += 1
        peer.again = False
        peer.sync = Sync(self.name, self.peers.next_sync(), now + self.settings.answer_seconds, self.node > peer.name)
        return Send(peer.name, peer.sync.begin(self.table))

    def _sync_again(self, name: str, now: float) -> list[Send]:
        peer = self.peers.by_name.get(name)
        if peer is None:
            return []
        self.counters["inconsistencies"] += 1
        if peer.sync is not None:  # to begin it anew for every refresh might never end
            peer.again = True
            return []
        peer.step(PeerEvent.INCONSISTENCY_DETECTED, now)
        return self._start_syncs(now)

    def _on_answer(self, name: str, message: Answer, now: float) -> list[Send]:
        peer = self.peers.by_name.get(name)
        sync = peer.sync if peer is not None else None
        if peer is None or sync is None or sync.id != message.id:
            self.counters["late_answers"] += 1
            return []
        if isinstance(message, Refused):
            return self._failed(peer, f"it refuses: {message.reason[:200]}", now)
        sync.take(message, self.table)
        sends = self._on_difference(peer, sync, message, now) if isinstance(message, Difference) else []
        question = sync.next_question(self.table)
        if question is None:
            return sends + self._done(peer, sync, now)
        sync.deadline = now + self.settings.answer_seconds
        return [*sends, Send(name, question)]

    def _on_difference(self, peer: Peer, sync: Sync, message: Difference, now: float) -> list[Send]:
        self.counters["received_key_vals"] += len(message.values)
        merged = self.table.take(message.values, now)
        sends = self._after(merged, (peer.name,), now)
        if message.again and merged.refused and not merged.taken and _KNOWN.isdisjoint(merged.refused.values()):
            sync.leave_one()
        given = ((key, self.table.outgoing(key, now)) for key in message.wanted)
        messages = [Publish(self.name, p, (self.node,)) for p in portions((k, v) for k, v in given if v is not None)]
        sync.gave = sync.gave or bool(messages)
        return sends + [Send(peer.name, m) for m in messages]

    def _done(self, peer: Peer, sync: Sync, now: float) -> list[Send]:
        was_syncing = peer.state is PeerState.SYNCING
        self.peers.succeeded(peer, now)
        self.counters["finalized_syncs"] += sync.gave
        if was_syncing:
            self.counters["full_syncs_ok"] += 1
            self.watches.signal(SignalKind.PEER_SYNCED, peer.name)
        self._look_whether_synced(now)
        return [*self._flood.drain((peer,), now), *self._start_syncs(now)]

    def _failed(self, peer: Peer, reason: str, now: float) -> list[Send]:
        self._note_failure(peer, reason, now)
        return self._start_syncs(now)

    def _note_failure(self, peer: Peer, reason: str, now: float) -> None:
        self.counters["full_syncs_failed"] += 1
        self.peers.failed(peer, reason, now)
        self._look_whether_synced(now)

    def _look_whether_synced(self, now: float) -> None:
        if not self.synced and self._is_synced(now):
            self.synced = True
            self.watches.signal(SignalKind.SYNCED)

    def _is_synced(self, now: float) -> bool:
        begun, s = self._peers_known_at, self.settings
        if begun is None:
            return False
        if not self.peers.by_name:
            return now - begun >= (s.synced_seconds or 0.0)
        late = now - begun >= s.link_seconds
        return all(
            peer.state is PeerState.INITIALIZED or peer.failures or (late and not peer.linked)
            for peer in self.peers.by_name.values()
        )

    # -- time

    def tick(self, now: float) -> list[Send]:
        sends = self._write_own(now)
        self._expire(now)
        for peer in list(self.peers.by_name.values()):
            if peer.sync is not None and peer.sync.deadline <= now:
                sends += self._failed(peer, "it did not answer in time", now)
        sends += self._start_syncs(now)
        sends += self._compare(now)
        sends += self._flood.drain(self.peers.by_name.values(), now)
        self._look_whether_synced(now)
        return sends

    def _write_own(self, now: float) -> list[Send]:
        writes = self.own.due(self._stored, now)
        if not writes:
            return []
        return self._after(self.table.take(writes, now), (), now, own=True)

    def _expire(self, now: float) -> None:
        gone = self.table.expire(now)
        self.counters["expired_key_vals"] += len(gone)
        self._noted.is_gone(gone)
        self.watches.tell_expired(gone)

    def _compare(self, now: float) -> Iterable[Send]:
        """Once per period the digests of one peer in turn."""
        if self._next_comparison is None or now < self._next_comparison:
            return ()
        self._next_comparison = now + self.settings.sync_seconds
        if self.peers.running() >= self.peers.limit or (peer := self.peers.in_turn()) is None:
            return ()
        self.counters["comparisons"] += 1
        return (self._ask_root(peer, now),)

    # -- noted keys

    def changes(self) -> list[str]:
        """Noted keys whose value changed or went since the last call."""
        return self._noted.changes()

    def matching(self, prefix: str) -> dict[str, bytes]:
        """The bytes of the noted keys with this prefix."""
        found = ((key, self.table.entries[key].value) for key in self._noted.keys(prefix))
        return {key: value.data for key, value in found if value.data is not None and not value.erased}
