"""The replicated store of one node in one area, without I/O: messages and time go in, messages come out.

Theory of operation
-------------------
Every node holds every key. A change floods: whoever takes a value passes it on to all peers that are not yet on its path.
A new peer is synced in three steps: A sends its digests, B answers with what A lacks and names what B lacks, A sends that.
Once per period the same sync runs with one peer in turn, so that whatever a lost message left different heals.

1. A key changes only by `merge`, whoever brings it.
2. A publication is sent to no node on its path, and dropped by one that finds itself there.
3. A ttl is forwarded as the time that remains, less one millisecond, so no cycle keeps a dead key alive.
4. Own keys are persisted: refreshed at a quarter of their ttl, and raised above whatever overrides them.
5. Anything refused leaves the rest of its publication untouched.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from trunkline.core.codec import Codec
from trunkline.core.errors import RemoteProtocolError
from trunkline.store.values import Outcome, Reason, Value, merge, refusal

TTL_MS = 300_000
SYNC_SECONDS = 30.0


class Digest(msgspec.Struct, frozen=True, array_like=True):
    version: int
    originator: str
    hash: bytes
    ttl_version: int


class Publish(msgspec.Struct, frozen=True, array_like=True, tag="pub"):
    area: str
    values: dict[str, Value]
    path: tuple[str, ...]


class SyncRequest(msgspec.Struct, frozen=True, array_like=True, tag="sync?"):
    area: str
    digests: dict[str, Digest]


class SyncReply(msgspec.Struct, frozen=True, array_like=True, tag="sync!"):
    area: str
    values: dict[str, Value]
    wanted: tuple[str, ...]


StoreMessage = Publish | SyncRequest | SyncReply
CODEC: Codec[StoreMessage] = Codec("store message", StoreMessage)


@dataclass(frozen=True)
class Send:
    peer: str
    message: StoreMessage


@dataclass
class _Own:
    data: bytes
    ttl_ms: int
    refresh_at: float


@dataclass
class Store:
    node: str
    area: str
    sync_seconds: float = SYNC_SECONDS
    values: dict[str, Value] = field(default_factory=dict)
    peers: dict[str, None] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    _expires: dict[str, float] = field(default_factory=dict)
    _expiry_heap: list[tuple[float, str]] = field(default_factory=list)
    _own: dict[str, _Own] = field(default_factory=dict)
    _changed: dict[str, None] = field(default_factory=dict)
    _next_sync: float = 0.0

    # -- peers

    def peer_up(self, peer: str, now: float) -> list[Send]:
        self.peers[peer] = None
        self._next_sync = max(self._next_sync, now + self.sync_seconds)
        return [Send(peer, self._sync_request())]

    def peer_down(self, peer: str) -> None:
        self.peers.pop(peer, None)

    # -- own keys

    def persist(self, key: str, data: bytes, now: float, ttl_ms: int = TTL_MS, version: int = 1) -> list[Send]:
        """Keeps `key` at `data` for as long as this node lives, at `version` or above."""
        stored = self.values.get(key)
        if stored is not None and stored.originator == self.node and stored.data == data and stored.version >= version:
            self._own[key] = _Own(data, ttl_ms, now + ttl_ms / 4000)
            return []
        above = stored.version + 1 if stored is not None else 1
        return self._set_own(key, data, ttl_ms, max(version, above), now)

    def let_go(self, key: str) -> None:
        """The key is no longer this node's to persist; what is stored of it stays."""
        self._own.pop(key, None)

    def _set_own(self, key: str, data: bytes, ttl_ms: int, version: int, now: float) -> list[Send]:
        self._own[key] = _Own(data, ttl_ms, now + ttl_ms / 4000)
        return self._take({key: Value(version, self.node, data, ttl_ms)}, (), now)

    # -- messages

    def receive(self, peer: str, message: StoreMessage, now: float) -> list[Send]:
        if message.area != self.area:
            raise RemoteProtocolError("store message", f"area {message.area!r} is not ours", f"join area {self.area}")
        match message:
            case Publish():
                return self._on_publish(peer, message, now)
            case SyncRequest():
                return self._on_sync_request(peer, message, now)
            case SyncReply():
                sends = self._take(message.values, (peer,), now)
                return sends + self._send_values(peer, message.wanted, now)

    def _on_publish(self, peer: str, message: Publish, now: float) -> list[Send]:
        if self.node in message.path:
            self.counters["looped"] += 1
            return []
        if not message.path or message.path[-1] != peer:
            raise RemoteProtocolError("publication", f"its last hop is not the sender {peer}", "run an unmodified node")
        return self._take(message.values, message.path, now)

    def _on_sync_request(self, peer: str, message: SyncRequest, now: float) -> list[Send]:
        theirs = message.digests
        give = [key for key in self.values if key not in theirs or self._ahead(key, theirs[key])]
        wanted = tuple(key for key, digest in theirs.items() if key not in self.values or self._behind(key, digest))
        return [Send(peer, SyncReply(self.area, self._outgoing(give, now), wanted))]

    def _ahead(self, key: str, theirs: Digest) -> bool:
        mine = _digest(self.values[key])
        return mine.hash != theirs.hash or mine.ttl_version > theirs.ttl_version

    def _behind(self, key: str, theirs: Digest) -> bool:
        mine = _digest(self.values[key])
        return mine.hash != theirs.hash or mine.ttl_version < theirs.ttl_version

    def _sync_request(self) -> SyncRequest:
        return SyncRequest(self.area, {key: _digest(value) for key, value in self.values.items()})

    def _send_values(self, peer: str, keys: Iterable[str], now: float) -> list[Send]:
        values = self._outgoing(keys, now)
        return [Send(peer, Publish(self.area, values, (self.node,)))] if values else []

    def _outgoing(self, keys: Iterable[str], now: float) -> dict[str, Value]:
        """Values as they leave this node: with what remains of their ttl."""
        out = {}
        for key in keys:
            value = self.values.get(key)
            left = int((self._expires.get(key, 0.0) - now) * 1000) - 1
            if value is not None and left > 0:
                out[key] = msgspec.structs.replace(value, ttl_ms=left)
        return out

    # -- merge and flood

    def _take(self, incoming: dict[str, Value], path: tuple[str, ...], now: float) -> list[Send]:
        passed_on: dict[str, Value] = {}
        sends: list[Send] = []
        for key, value in incoming.items():
            outcome = refusal(key, value) or merge(self.values.get(key), value)
            if isinstance(outcome, Reason):
                self.counters[outcome.name.lower()] += 1
                continue
            self._keep(key, value, outcome, now)
            passed_on[key] = value
            own = self._own.get(key)
            if path and own is not None and self.values[key].data != own.data:
                sends += self._set_own(key, own.data, own.ttl_ms, value.version + 1, now)
        return self._flood(passed_on, path, now) + sends

    def _keep(self, key: str, value: Value, outcome: Outcome, now: float) -> None:
        if outcome is Outcome.REPLACED:
            self.values[key] = value
            self._changed[key] = None
        else:
            stored = self.values[key]
            self.values[key] = msgspec.structs.replace(stored, ttl_ms=value.ttl_ms, ttl_version=value.ttl_version)
        self._expires[key] = now + value.ttl_ms / 1000
        heapq.heappush(self._expiry_heap, (self._expires[key], key))
        self.counters[str(outcome)] += 1

    def _flood(self, values: dict[str, Value], path: tuple[str, ...], now: float) -> list[Send]:
        outgoing = {}
        for key, value in values.items():
            left = min(value.ttl_ms, int((self._expires[key] - now) * 1000)) - 1
            if left > 0:
                outgoing[key] = msgspec.structs.replace(value, ttl_ms=left)
        if not outgoing:
            return []
        message = Publish(self.area, outgoing, (*path, self.node))
        return [Send(peer, message) for peer in self.peers if peer not in path]

    # -- time

    def tick(self, now: float) -> list[Send]:
        return self._refresh(now) + self._expire(now) + self._anti_entropy(now)

    def _refresh(self, now: float) -> list[Send]:
        due = [key for key, own in self._own.items() if own.refresh_at <= now]
        sends: list[Send] = []
        for key in due:
            own, stored = self._own[key], self.values.get(key)
            if stored is None:
                sends += self._set_own(key, own.data, own.ttl_ms, 1, now)
                continue
            own.refresh_at = now + own.ttl_ms / 4000
            refresh = Value(stored.version, self.node, None, own.ttl_ms, stored.ttl_version + 1)
            sends += self._take({key: refresh}, (), now)
        return sends

    def _expire(self, now: float) -> list[Send]:
        while self._expiry_heap and self._expiry_heap[0][0] <= now:
            _, key = heapq.heappop(self._expiry_heap)
            if self._expires.get(key, now + 1) <= now:
                del self._expires[key]
                del self.values[key]
                self._changed[key] = None
                self.counters["expired"] += 1
        return []

    def _anti_entropy(self, now: float) -> list[Send]:
        if not self.peers or now < self._next_sync:
            return []
        self._next_sync = now + self.sync_seconds
        peer = next(iter(self.peers))
        self.peers[peer] = self.peers.pop(peer)  # the next period asks the next peer
        self.counters["anti_entropy"] += 1
        return [Send(peer, self._sync_request())]

    # -- reading

    def changes(self) -> list[str]:
        """Keys whose value changed or went since the last call."""
        changed, self._changed = list(self._changed), {}
        return changed

    def matching(self, prefix: str) -> dict[str, bytes]:
        return {k: v.data for k, v in self.values.items() if k.startswith(prefix) and v.data is not None}


def _digest(value: Value) -> Digest:
    return Digest(value.version, value.originator, value.digest(), value.ttl_version)
