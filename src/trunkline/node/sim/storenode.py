"""A node that runs the store alone."""

from __future__ import annotations

from collections.abc import Sequence

from trunkline.net.channels import Channel
from trunkline.net.simhost import Greeting, Outlet
from trunkline.store.area import Area
from trunkline.store.messages import CODEC, Send
from trunkline.store.settings import Settings

# Short, so that refreshing, expiring and healing happen within a run.
SETTINGS = Settings(ttl_ms=8_000, sync_seconds=5.0, answer_seconds=2.0, longest_backoff=4.0)


class StoreNode:
    def __init__(self, host: str, outlet: Outlet, now: float) -> None:
        self.host, self.outlet = host, outlet
        self.store = Area(host, "fleet", outlet.random.random, SETTINGS)
        self.own: dict[str, bytes] = {}
        """What it set since it was started: the store is replicated memory."""

    def greeting(self) -> Greeting:
        return Greeting()

    def put(self, key: str, data: bytes, now: float) -> None:
        self.own[key] = data
        self.store.persist(key, data, now)

    def link_up(self, peer: str, mine: Greeting, theirs: Greeting, now: float) -> None:
        self._do(self.store.link_up(peer, now))

    def link_down(self, peer: str, now: float) -> None:
        self._do(self.store.link_down(peer, now))

    def message(self, peer: str, channel: Channel, body: bytes, now: float) -> None:
        self._do(self.store.receive(peer, CODEC.decode(body), now))

    def tick(self, now: float) -> None:
        self._do(self.store.tick(now))

    def _do(self, sends: Sequence[Send]) -> None:
        for send in sends:
            self.outlet.send(send.peer, Channel.STORE, CODEC.encode(send.message))
