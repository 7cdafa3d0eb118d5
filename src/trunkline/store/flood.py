"""Flooding: a change goes to every peer that is not yet on its path, at once or, where that cannot be, a little later. Pure.

1. A publication carries the nodes it has passed. It is sent to none of them. A path that is too long to go on begins anew: at
   worst a copy comes back, and what is known already goes no further.
2. A peer that is being synced, whose link is full, or that is not to be sent to yet (the rate limit), gets names of keys noted
   instead: one per key, however often it changes. When it can take them, what is stored then is sent.
3. At most `most_pending` names are noted per peer. Beyond, they are dropped, and a sync finds what the peer lacks.
4. Nothing is noted for an idle peer: its sync is still to come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from trunkline.core.bucket import Bucket, take
from trunkline.store.messages import MOST_HOPS, Publish, Send, portions
from trunkline.store.peers import Peer, PeerState
from trunkline.store.settings import Settings
from trunkline.store.table import Table
from trunkline.store.values import Value


class Flood:
    """Counts `rate_limited`: publications that had to wait for the rate limit, and `overruns`: times that too much waited."""

    def __init__(self, node: str, area: str, table: Table, settings: Settings, counters: Counter[str]) -> None:
        self._node, self._area, self._table, self._counters = node, area, table, counters
        self._rate, self._most = settings.flood_rate, settings.most_pending
        self._bucket: Bucket | None = None

    def _may_send(self, now: float) -> bool:
        if self._rate is None:
            return True
        self._bucket, wait = take(self._bucket, self._rate, now)
        return wait == 0.0

    def spread(self, taken: Mapping[str, Value], path: tuple[str, ...], peers: Iterable[Peer], now: float) -> list[Send]:
        passed = set(path)
        others = [peer for peer in peers if peer.state is not PeerState.IDLE and peer.name not in passed]
        if not others:
            return []
        onward = {key: out for key, value in taken.items() if (out := self._table.onward(key, value, now)) is not None}
        if not onward:
            return []
        free = [peer for peer in others if _is_free(peer)]
        later = [peer for peer in others if not _is_free(peer)]
        if free and not self._may_send(now):
            self._counters["rate_limited"] += 1
            free, later = [], others
        for peer in later:
            self.note(peer, onward)
        hops = (*path, self._node) if len(path) < MOST_HOPS else (self._node,)
        messages = [Publish(self._area, portion, hops) for portion in portions(onward.items())]
        return [Send(peer.name, message) for peer in free for message in messages]

    def note(self, peer: Peer, values: Mapping[str, Value]) -> None:
        """They are for the peer, and cannot go now."""
        if peer.again or peer.state is PeerState.IDLE:
            return
        pending = peer.pending
        for key, value in values.items():
            pending[key] = value.data is not None or pending.get(key, False)
        if len(pending) > self._most:
            pending.clear()
            peer.again = True
            self._counters["overruns"] += 1

    def drain(self, peers: Iterable[Peer], now: float) -> Iterator[Send]:
        """One message of what was noted to each peer that can take it."""
        waiting = [peer for peer in peers if peer.pending and peer.can_take]
        if waiting and self._may_send(now):
            for peer in waiting:
                yield from self._some(peer, now)

    def _some(self, peer: Peer, now: float) -> Iterator[Send]:
        noted = ((key, self._now_of(key, peer.pending[key], now)) for key in peer.pending)
        portion = next(portions((key, value) for key, value in noted if value is not None), {})
        last = next(reversed(portion), None)
        for key in list(peer.pending):
            del peer.pending[key]
            if key == last:
                break
        if portion:
            yield Send(peer.name, Publish(self._area, portion, (self._node,)))

    def _now_of(self, key: str, with_bytes: bool, now: float) -> Value | None:
        value = self._table.outgoing(key, now)
        if value is None or with_bytes:
            return value
        return Value(value.version, value.originator, None, value.ttl_ms, value.ttl_version, value.hash)


def _is_free(peer: Peer) -> bool:
    return peer.can_take and not peer.pending
