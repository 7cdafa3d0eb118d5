"""Real endpoints on loopback with real certificates, and a raw TLS client to misbehave with."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trunkline.core.clock import SystemClock
from trunkline.core.config import TlsConfig
from trunkline.core.ids import NodeId
from trunkline.net.authority import issue, make_ca
from trunkline.net.channels import Channel
from trunkline.net.endpoint import Endpoint, Target
from trunkline.net.hello import OLDEST_WIRE, WIRE_VERSION, Bye, Control, Heartbeat, Hello, decode_control
from trunkline.net.link import Link
from trunkline.net.stream import Stream, accept_stream, dial_stream
from trunkline.net.tls import client_context, server_context

HEARTBEAT = 0.2


def make_hello(identity: NodeId, **changes: Any) -> Hello:
    fields: dict[str, Any] = {
        "wire": WIRE_VERSION,
        "oldest": OLDEST_WIRE,
        "capabilities": (),
        "site": identity.site,
        "node": identity.node,
        "incarnation": 1,
        "known_incarnation": 0,
        "log_id": f"log-{identity.site}",
        "neighbours": (),
        "heads": {identity.site: 5},
        "applied": {},
        "carries": False,
        "addresses": (),
    }
    return Hello(**{**fields, **changes})


async def eventually(condition: Callable[[], object], within: float = 10.0) -> None:
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class Recorder:
    """Keeps what an endpoint tells."""

    def __init__(self) -> None:
        self.ups: list[Link] = []
        self.downs: list[tuple[Link, str]] = []
        self.messages: list[tuple[NodeId, Channel, bytes]] = []
        self.on_message: Callable[[Link, Channel, bytes], None] | None = None

    def link_up(self, link: Link) -> None:
        self.ups.append(link)

    def link_down(self, link: Link, reason: str) -> None:
        self.downs.append((link, reason))

    def message(self, link: Link, channel: Channel, body: bytes) -> None:
        self.messages.append((link.peer, channel, body))
        if self.on_message is not None:
            self.on_message(link, channel, body)


@dataclass
class Member:
    identity: NodeId
    endpoint: Endpoint
    events: Recorder
    address: str
    hello: dict[str, Any] = field(default_factory=dict)
    asked: list[NodeId] = field(default_factory=list)  # for whom HELLO was made
    beats: list[NodeId] = field(default_factory=list)  # one item for each heartbeat that was made

    def link(self, peer: NodeId) -> Link | None:
        return self.endpoint.links().get(peer)


def to(*members: Member) -> dict[str, Target]:
    return {f"to {member.identity}": Target((member.address,)) for member in members}


async def linked(one: Member, other: Member) -> None:
    await eventually(lambda: one.link(other.identity) and other.link(one.identity))


async def exchange(one: Member, other: Member, word: bytes) -> None:
    for sender, receiver in ((one, other), (other, one)):
        link = sender.link(receiver.identity)
        assert link is not None
        assert link.send(Channel.TRUNK, word)
    await eventually(lambda: (one.identity, Channel.TRUNK, word) in other.events.messages)
    await eventually(lambda: (other.identity, Channel.TRUNK, word) in one.events.messages)


class Authority:
    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder / name
        make_ca(self._folder, name)

    def tls(self, identity: NodeId) -> TlsConfig:
        out = self._folder / identity.site / identity.node
        if not out.exists():
            issue(self._folder, out, identity)
        return TlsConfig(ca=self._folder / "ca.pem", certificate=out / "certificate.pem", key=out / "key.pem")


class RawPeer:
    """A certified client that says exactly what a test wants said."""

    def __init__(self, stream: Stream, identity: NodeId) -> None:
        self.stream = stream
        self.identity = identity

    async def control(self) -> Control | None:
        """The next control message; None when the connection is closed. Other channels are skipped."""
        while (frame := await self.stream.receive_one()) is not None:
            if frame[0] is Channel.CONTROL:
                return decode_control(frame[1])
        return None

    async def until_closed(self) -> Bye | None:
        """The last goodbye, if there was one, once the connection is closed."""
        goodbye: Bye | None = None
        with contextlib.suppress(OSError):
            while (message := await self.control()) is not None:
                goodbye = message if isinstance(message, Bye) else goodbye
        return goodbye

    async def shake_hands(self, **changes: Any) -> Hello:
        self.stream.say(make_hello(self.identity, **changes))
        theirs = await self.control()
        assert isinstance(theirs, Hello)
        self.stream.say(Heartbeat({}))
        assert isinstance(await self.control(), Heartbeat)
        return theirs

    async def refused(self, **changes: Any) -> Bye:
        self.stream.say(make_hello(self.identity, **changes))
        assert isinstance(await self.control(), Hello)
        goodbye = await self.control()
        assert isinstance(goodbye, Bye)
        assert await self.until_closed() is None
        return goodbye


class Wire:
    """A stretch of network before a member's address.

    It counts connections, can go dead without closing them, and delays each piece by up to `jitter` seconds.
    """

    def __init__(self, to: str, jitter: float) -> None:
        self.address = ""
        self.connections = 0
        self._to = to
        self._jitter = jitter
        self._random = random.Random(to)
        self._alive = asyncio.Event()
        self._alive.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    def cut(self) -> None:
        self._alive.clear()

    def heal(self) -> None:
        self._alive.set()

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._to.rsplit(":", 1)
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            writers.append(far_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, far_writer))
                both.create_task(self._copy(far_reader, writer))
        except* OSError:
            pass
        finally:
            for each in writers:
                each.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await asyncio.sleep(self._random.random() * self._jitter)
            await self._alive.wait()
            writer.write(data)
        raise ConnectionResetError


class Fleet:
    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder, "fleet-ca")
        self.stranger = Authority(folder, "stranger-ca")
        self._members: list[Member] = []
        self._streams: list[Stream] = []
        self._wires: list[Wire] = []

    async def member(
        self, identity: NodeId, listen: str = "127.0.0.1:0", tls: TlsConfig | None = None, **options: Any
    ) -> Member:
        changes: dict[str, Any] = options.pop("hello", {})
        events = Recorder()
        asked: list[NodeId] = []
        beats: list[NodeId] = []

        def hello(peer: NodeId) -> Hello:
            asked.append(peer)
            return make_hello(identity, **changes)

        def heads() -> dict[str, int]:
            beats.append(identity)
            return make_hello(identity, **changes).heads

        endpoint = Endpoint(
            identity,
            tls or self.authority.tls(identity),
            hello,
            events,
            options.pop("heartbeat", HEARTBEAT),
            options.pop("clock", SystemClock()),
            random.Random(identity.site).random,
            heads=heads,
            **options,
        )
        member = Member(identity, endpoint, events, "", changes, asked, beats)
        self._members.append(member)
        member.address = await endpoint.start(listen)
        return member

    async def raw(self, address: str, identity: NodeId) -> RawPeer:
        tls = self.authority.tls(identity)
        stream = await dial_stream(address, client_context(tls.ca, tls.certificate, tls.key))
        self._streams.append(stream)
        return RawPeer(stream, identity)

    async def raw_listener(self, identity: NodeId) -> tuple[str, asyncio.Task[RawPeer]]:
        """Where it listens, and the first connection that comes there."""
        tls, listener = self.authority.tls(identity), socket.create_server(("127.0.0.1", 0))
        host, port = listener.getsockname()
        listener.setblocking(False)

        async def accept() -> RawPeer:
            with listener:
                accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
            stream = await accept_stream(accepted, server_context(tls.ca, tls.certificate, tls.key))
            self._streams.append(stream)
            return RawPeer(stream, identity)

        return f"{host}:{port}", asyncio.create_task(accept())

    async def wire(self, member: Member, jitter: float = 0.0) -> Wire:
        wire = Wire(member.address, jitter)
        self._wires.append(wire)
        await wire.start()
        return wire

    async def close(self) -> None:
        for wire in self._wires:
            await wire.stop()
        for stream in self._streams:
            await stream.abort()
        for member in self._members:
            await member.endpoint.stop()
