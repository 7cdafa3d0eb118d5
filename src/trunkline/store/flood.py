"""Flooding: a change goes to every peer that is not yet on its path, at once or, where that cannot be, a little later. Pure.

1. A publication carries the nodes it has passed. It is sent to none of them.
2. A peer that is not in step, whose link is full, or that is not to be sent to yet (the rate limit), gets names of keys noted
   instead: one per key, however often it changes. When it can take them, what is stored then is sent.
3. At most MOST_PENDING names are noted per peer. Beyond, they are dropped, and a sync finds what the peer lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from trunkline.core.bucket import Bucket, Rate, take
from trunkline.store.messages import Publish, Send, portions
from trunkline.store.peers import Peer, PeerState
from trunkline.store.table import Table
from trunkline.store.values import Value

MOST_PENDING: Final = 10_000


class Flood:
    def __init__(self, node: str, area: str, table: Table, rate: Rate | None) -> None:
        self._node, self._area, self._table, self._rate = node, area, table, rate
        self._bucket: Bucket | None = None
        self.suppressed = 0
        """Publications that had to wait for the rate limit."""
        self.overruns = 0

    def _may_send(self, now: float) -> bool:
        if self._rate is None:
            return True
        self._bucket, wait = take(self._bucket, self._rate, now)
        return wait == 0.0

    def spread(self, taken: Mapping[str, Value], path: tuple[str, ...], peers: Iterable[Peer], now: float) -> list[Send]:
        others = [peer for peer in peers if peer.linked and peer.name not in path]
        if not others:
            return []
        onward = {key: out for key, value in taken.items() if (out := self._table.onward(key, value, now)) is not None}
        if not onward:
            return []
        ready = [peer for peer in others if _can_take(peer) and not peer.pending]
        if ready and not self._may_send(now):
            self.suppressed += 1
            ready = []
        for peer in others:
            if peer not in ready:
                self._note(peer, onward)
        hops = (*path, self._node)
        messages = [Publish(self._area, portion, hops) for portion in portions(onward.items())]
        return [Send(peer.name, message) for peer in ready for message in messages]

    def note_again(self, peer: Peer, values: Mapping[str, Value]) -> None:
        """They were for the peer, and its link did not take them."""
        self._note(peer, values)

    def _note(self, peer: Peer, values: Mapping[str, Value]) -> None:
        if peer.again:
            return
        pending = peer.pending
        for key, value in values.items():
            pending[key] = value.data is not None or pending.get(key, False)
        if len(pending) > MOST_PENDING:
            pending.clear()
            peer.again = True
            self.overruns += 1

    def drain(self, peers: Iterable[Peer], now: float) -> Iterator[Send]:
        """One message of what was noted to each peer that can take it."""
        waiting = [peer for peer in peers if peer.pending and _can_take(peer)]
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


def _can_take(peer: Peer) -> bool:
    return peer.state is PeerState.INITIALIZED and not peer.blocked
