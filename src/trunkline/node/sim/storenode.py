"""A node that runs the store alone."""

from __future__ import annotations

from collections.abc import Sequence

from trunkline.net.channels import Channel
from trunkline.net.simhost import Greeting, Outlet
from trunkline.store import flood
from trunkline.store.flood import Store

SYNC_SECONDS = 5.0
TTL_MS = 8_000  # short, so that refreshing and expiring happen within a run


class StoreNode:
    def __init__(self, host: str, outlet: Outlet, now: float) -> None:
        self.host, self.outlet = host, outlet
        self.store = Store(host, "fleet", SYNC_SECONDS)
        self.own: dict[str, bytes] = {}
        """What it set since it was started: the store is replicated memory."""

    def greeting(self) -> Greeting:
        return Greeting()

    def put(self, key: str, data: bytes, now: float) -> None:
        self.own[key] = data
        self._do(self.store.persist(key, data, now, TTL_MS))

    def link_up(self, peer: str, mine: Greeting, theirs: Greeting, now: float) -> None:
        self._do(self.store.peer_up(peer, now))

    def link_down(self, peer: str, now: float) -> None:
        self.store.peer_down(peer)

    def message(self, peer: str, channel: Channel, body: bytes, now: float) -> None:
        self._do(self.store.receive(peer, flood.CODEC.decode(body), now))

    def tick(self, now: float) -> None:
        self._do(self.store.tick(now))

    def _do(self, sends: Sequence[flood.Send]) -> None:
        for send in sends:
            self.outlet.send(send.peer, Channel.STORE, flood.CODEC.encode(send.message))
