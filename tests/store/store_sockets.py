"""Whole stores on real sockets: endpoints with certificates over loopback, all in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from random import Random

from trunkline.core.clock import SystemClock
from trunkline.core.config import TlsConfig
from trunkline.core.ids import NodeId
from trunkline.net.authority import issue, make_ca
from trunkline.net.channels import Channel
from trunkline.net.endpoint import Endpoint, Target
from trunkline.net.hello import OLDEST_WIRE, WIRE_VERSION, Hello
from trunkline.net.link import Link
from trunkline.store.area import Area
from trunkline.store.messages import CODEC, Message, Publish, Send
from trunkline.store.peers import Peer, PeerState
from trunkline.store.settings import Settings
from trunkline.store.store import Store
from trunkline.store.values import sealed

TICK = 0.02
HEARTBEAT = 0.5
QUICK = Settings(first_backoff=0.1, longest_backoff=2.0, answer_seconds=5.0)


async def until(holds: Callable[[], object], within: float = 20.0) -> None:
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class SocketNode:
    """A store behind an endpoint, as a node has it."""

    def __init__(self, identity: NodeId, tls: TlsConfig, settings: Settings, areas: tuple[str, ...]) -> None:
        random = Random(str(identity)).random
        self.identity, self.address = identity, ""
        self.store = Store(identity, random, settings, areas)
        self.endpoint = Endpoint(identity, tls, self._hello, self, HEARTBEAT, SystemClock(), random)
        self.received: list[tuple[float, str, Message]] = []
        """When it came, from whom, what; with `remember` only."""
        self.remember = True
        self.takes_peers = True
        self.sent = self.heard = 0
        self.sent_bytes: Counter[str] = Counter()
        self.held: dict[str, list[bytes]] = {}
        """What these peers say is not heard before `release`."""
        self._waiting: dict[str, asyncio.Task[None]] = {}

    @property
    def name(self) -> str:
        return str(self.identity)

    @property
    def fleet(self) -> Area:
        return self.store.fleet

    @property
    def now(self) -> float:
        return time.monotonic()

    def peer(self, other: SocketNode, area: str = "fleet") -> Peer | None:
        return self.store.area(area).peers.by_name.get(other.name)

    def is_in_step(self, other: SocketNode, area: str = "fleet") -> bool:
        peer = self.peer(other, area)
        return peer is not None and peer.state is PeerState.INITIALIZED

    def put(self, key: str, data: bytes, version: int = 1, ttl_ms: int = 300_000, area: str = "fleet", **more: str) -> None:
        value = sealed(key, version, more.get("originator", self.name), data, ttl_ms)
        sends, refused = self.store.area(area).put({key: value}, self.now)
        assert not refused, refused
        self.say(sends)

    def data(self, key: str, area: str = "fleet") -> bytes | None:
        value = self.store.area(area).get(key, self.now)
        return None if value is None else value.data

    # -- what the endpoint tells

    def link_up(self, link: Link) -> None:
        if self.takes_peers:
            self.say(self.store.link_up(link.peer, self.now))

    def link_down(self, link: Link, reason: str) -> None:
        self.say(self.store.link_down(link.peer, self.now))

    def message(self, link: Link, channel: Channel, body: bytes) -> None:
        assert channel is Channel.STORE
        if str(link.peer) in self.held:
            self.held[str(link.peer)].append(body)
        else:
            self._take(link.peer, body)

    def release(self, other: SocketNode) -> None:
        for body in self.held.pop(other.name):
            self._take(other.identity, body)

    def _take(self, peer: NodeId, body: bytes) -> None:
        message = CODEC.decode(body)
        self.heard += 1
        if self.remember:
            self.received.append((self.now, str(peer), message))
        self.say(self.store.receive(peer, message, self.now))

    def publications(self) -> list[Publish]:
        return [message for _, _, message in self.received if isinstance(message, Publish)]

    # -- what the store says

    def say(self, sends: Iterable[Send]) -> None:
        bodies: dict[int, bytes] = {}
        kept = list(sends)
        links = self.endpoint.links()
        for send in kept:
            if id(send.message) not in bodies:
                bodies[id(send.message)] = CODEC.encode(send.message)
            peer, body = NodeId.parse(send.peer), bodies[id(send.message)]
            link = links.get(peer)
            if link is not None and link.send(Channel.STORE, body):
                self.sent += 1
                self.sent_bytes[send.peer] += len(body)
            elif link is not None:
                self.store.not_sent(peer, send.message, self.now)
                if send.peer not in self._waiting:
                    self._waiting[send.peer] = asyncio.create_task(self._room(link))

    async def _room(self, link: Link) -> None:
        has_room = await link.wait_room(Channel.STORE, 1024 * 1024)
        del self._waiting[str(link.peer)]
        if has_room:
            self.say(self.store.has_room(link.peer, self.now))

    async def live(self) -> None:
        while True:
            self.say(self.store.tick(self.now))
            await asyncio.sleep(TICK)

    async def stop(self) -> None:
        for task in list(self._waiting.values()):
            task.cancel()
        await asyncio.gather(*self._waiting.values(), return_exceptions=True)
        await self.endpoint.stop()

    def _hello(self, peer: NodeId) -> Hello:
        return Hello(
            wire=WIRE_VERSION, oldest=OLDEST_WIRE, capabilities=("store",), site=self.identity.site, node=self.identity.node,
            incarnation=1, known_incarnation=0, log_id="", neighbours=(), heads={}, applied={}, carries=False, addresses=(),
        )  # fmt: skip


class SocketFleet:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nodes: list[SocketNode] = []
        self._lives: list[asyncio.Task[None]] = []
        self._targets: dict[str, dict[str, Target]] = {}
        make_ca(folder / "ca", "fleet")

    async def node(self, name: str, settings: Settings = QUICK, areas: tuple[str, ...] = ()) -> SocketNode:
        identity = NodeId.parse(name)
        out = self._folder / name
        issue(self._folder / "ca", out, identity)
        tls = TlsConfig(ca=self._folder / "ca" / "ca.pem", certificate=out / "certificate.pem", key=out / "key.pem")
        node = SocketNode(identity, tls, settings, areas)
        node.address = await node.endpoint.start("127.0.0.1:0")
        self._nodes.append(node)
        self._lives.append(asyncio.create_task(node.live()))
        return node

    async def nodes(self, *names: str, settings: Settings = QUICK) -> list[SocketNode]:
        return [await self.node(name, settings) for name in names]

    def dial(self, one: SocketNode, other: SocketNode) -> None:
        targets = self._targets.setdefault(one.name, {})
        targets[other.name] = Target((other.address,))
        one.endpoint.set_targets(targets)

    async def link(self, *pairs: tuple[SocketNode, SocketNode]) -> None:
        """They are in step with each other."""
        for one, other in pairs:
            self.dial(one, other)
        for one, other in pairs:
            await until(lambda one=one, other=other: one.is_in_step(other) and other.is_in_step(one))  # type: ignore[misc]

    def cut(self, one: SocketNode, other: SocketNode) -> None:
        """The connection breaks, and neither side dials again."""
        for here, there in ((one, other), (other, one)):
            self._targets.setdefault(here.name, {}).pop(there.name, None)
            here.endpoint.set_targets(self._targets[here.name])
        one.endpoint.links()[other.identity].close("cut by the test")

    async def stop(self) -> None:
        for life in self._lives:
            life.cancel()
        ended = await asyncio.gather(*self._lives, return_exceptions=True)
        for node in self._nodes:
            await node.stop()
        assert [end for end in ended if not isinstance(end, asyncio.CancelledError)] == []


@contextlib.asynccontextmanager
async def watchdog() -> AsyncIterator[list[float]]:
    """How long each turn of the event loop took beyond its sleep, in seconds."""
    turns: list[float] = []

    async def look() -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0)
            turns.append(time.monotonic() - begun)

    task = asyncio.create_task(look())
    try:
        yield turns
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
