"""Frames over one link: two processes on this machine, TLS 1.3 between them, typed messages from end to end.

The sender encodes messages and hands them to the link in batches, as many on each data channel, and waits for room
when a channel's queue is long. The receiver cuts frames, checks and returns credit, decodes each message and calls the
handler of its type. A rate is messages handled over the sender's wall time, from the first `send` until the receiver's
word that it has handled the last; the receiver's sum over all of them is checked. Every message is a frame of its own.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from harness import Result, Size, growth, run
from trunkline.core.clock import SystemClock
from trunkline.core.codec import Codec
from trunkline.core.ids import NodeId
from trunkline.net.authority import issue, make_ca
from trunkline.net.channels import DATA, Channel
from trunkline.net.hello import OLDEST_WIRE, WIRE_VERSION, Hello
from trunkline.net.link import Link, Pace, shake_hands
from trunkline.net.stream import Stream
from trunkline.net.tls import client_context, server_context

GOAL = 800_000
MESSAGES = 3_000_000
PINGS = 5_000
BATCH = 50_000  # bytes handed to the link at once
BATCHES = 20  # different ones, encoded again and again
RUNS = 3
AHEAD = 512 * 1024  # the sender keeps about that much queued per channel
SENDER, RECEIVER = NodeId("leaf", "node-1"), NodeId("hub", "node-1")


class Reading(msgspec.Struct, frozen=True, array_like=True, tag="reading"):
    seq: int
    site: str
    meter: str
    at: float
    value: bytes


class Order(msgspec.Struct, frozen=True, array_like=True, tag="order"):
    """Say `Done` when that many readings were handled."""

    readings: int


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    sum_of_seqs: int


class Ping(msgspec.Struct, frozen=True, array_like=True, tag="ping"):
    number: int


CODEC: Codec[Reading | Order | Done | Ping] = Codec("benchmark message", Reading | Order | Done | Ping)


def reading(seq: int, size: int) -> Reading:
    """Its encoding has exactly `size` bytes."""
    bare = Reading(seq, "leaf-17", "meter-00042", 1_700_000_000.25, b"")
    padding = size - len(CODEC.encode(bare))
    filled = msgspec.structs.replace(bare, value=bytes(padding))
    return msgspec.structs.replace(bare, value=bytes(padding - (len(CODEC.encode(filled)) - size)))


class Desk:
    """One end: every message goes to the handler of its type."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.answers: asyncio.Queue[Done | Ping] = asyncio.Queue()
        self._handled = self._sum = 0
        self._ordered: int | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            Reading: self._on_reading,
            Order: self._on_order,
            Done: self.answers.put_nowait,
            Ping: self._on_ping,
        }
        for channel in DATA:
            link.handle(channel, self._on_bodies)

    def _on_bodies(self, bodies: list[bytes]) -> None:
        handlers = self._handlers
        for message in CODEC.decode_many(bodies):
            handlers[type(message)](message)

    def _on_reading(self, message: Reading) -> None:
        self._handled += 1
        self._sum += message.seq
        if self._handled == self._ordered:
            self._answer()

    def _on_order(self, message: Order) -> None:
        self._ordered = message.readings
        if self._handled == self._ordered:
            self._answer()

    def _answer(self) -> None:
        self.say(Done(self._sum))
        self._handled = self._sum = 0
        self._ordered = None

    def _on_ping(self, message: Ping) -> None:
        if self.link.outgoing:
            self.answers.put_nowait(message)
        else:
            self.say(message)

    def say(self, message: Order | Done | Ping) -> None:
        assert self.link.send(Channel.STORE, CODEC.encode(message))


# -- two processes and a link between them

Use = Callable[[Desk], Coroutine[Any, Any, None]]
Pump = Callable[[Link, Channel, Iterable[list[Reading]]], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Place:
    folder: Path
    tls: bool

    def files(self, identity: NodeId) -> tuple[Path, Path, Path]:
        own = self.folder / identity.site
        return self.folder / "ca" / "ca.pem", own / "certificate.pem", own / "key.pem"


def hello(identity: NodeId) -> Hello:
    return Hello(WIRE_VERSION, OLDEST_WIRE, (), identity.site, identity.node, 1, 0, "log", (), {}, {}, True, ())


async def stay(desk: Desk) -> None:
    await asyncio.Event().wait()


async def live(stream: Stream, outgoing: bool, use: Use) -> None:
    mine, peer = (SENDER, RECEIVER) if outgoing else (RECEIVER, SENDER)
    theirs = await shake_hands(stream, peer, hello(mine), lambda _: None)
    link = Link(stream, peer, hello(mine), theirs, outgoing, Pace(0.5, SystemClock(), dict))
    desk = Desk(link)
    running = asyncio.create_task(link.run(lambda *_: None))
    using = asyncio.create_task(use(desk))
    await asyncio.wait((running, using), return_when=asyncio.FIRST_COMPLETED)
    using.cancel()
    link.close("measured")
    await running
    await link.finish(None)
    with suppress(asyncio.CancelledError):
        await using


async def receive(place: Place, ready: Connection) -> None:
    context = server_context(*place.files(RECEIVER)) if place.tls else None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        ready.send(listener.getsockname()[1])
        loop = asyncio.get_running_loop()
        accepted, _ = await loop.sock_accept(listener)
        _, stream = await loop.connect_accepted_socket(Stream, accepted, ssl=context)
        assert isinstance(stream, Stream)
        await live(stream, False, stay)


def receiver(place: Place, ready: Connection) -> None:
    asyncio.run(receive(place, ready))


def with_link(place: Place, use: Use) -> None:
    """Runs `use` at the sending end of a fresh link; the receiving end is a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    ready, theirs = spawn.Pipe()
    child = spawn.Process(target=receiver, args=(place, theirs))
    child.start()
    theirs.close()
    try:
        asyncio.run(dial(place, ready.recv(), use))
    finally:
        child.join(10)
        child.kill()


async def dial(place: Place, port: int, use: Use) -> None:
    context = client_context(*place.files(SENDER)) if place.tls else None
    _, stream = await asyncio.get_running_loop().create_connection(Stream, "127.0.0.1", port, ssl=context)
    await live(stream, True, use)


# -- what is measured


async def pump_batches(link: Link, channel: Channel, batches: Iterable[list[Reading]]) -> None:
    ample = DATA[channel].queue - AHEAD
    for batch in batches:
        bodies = CODEC.encode_many(batch)
        while bodies := bodies[link.send_many(channel, bodies) :]:
            await link.wait_room(channel, ample)
        await link.wait_room(channel, ample)


async def pump_singly(link: Link, channel: Channel, batches: Iterable[list[Reading]]) -> None:
    for batch in batches:
        for message in batch:
            assert link.send(channel, CODEC.encode(message))
        await link.wait_room(channel, DATA[channel].queue - AHEAD)


def rate(place: Place, size: int, count: int, pump: Pump = pump_batches) -> float:
    """Readings of `size` bytes per second, about `count` of them, half on each channel."""
    length = BATCH // size
    different = [
        [reading(first + n, size) for n in range(length)] for first in range(1_000_000, 2_000_000, 1_000_000 // BATCHES)
    ]
    batches = [different[n % BATCHES] for n in range(count // len(DATA) // length)]
    expected = Done(len(DATA) * sum(message.seq for batch in batches for message in batch))
    sent, took = len(DATA) * len(batches) * length, 0.0

    async def use(desk: Desk) -> None:
        nonlocal took
        begun = time.perf_counter()
        desk.say(Order(sent))
        async with asyncio.TaskGroup() as pumps:
            for channel in DATA:
                pumps.create_task(pump(desk.link, channel, batches))
        assert await desk.answers.get() == expected
        took = time.perf_counter() - begun

    with_link(place, use)
    return sent / took


def round_trips(place: Place, count: int) -> list[float]:
    """Milliseconds of each, one at a time on an idle link, in order of size."""
    took: list[float] = []

    async def use(desk: Desk) -> None:
        for number in range(count):
            begun = time.perf_counter()
            desk.say(Ping(number))
            assert await desk.answers.get() == Ping(number)
            took.append((time.perf_counter() - begun) * 1000)

    with_link(place, use)
    return sorted(took)


def measure(size: Size) -> list[Result]:
    count, turns, pings = (MESSAGES, RUNS, PINGS) if size is Size.FULL else (MESSAGES // 8, 1, PINGS // 5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_ca(folder / "ca", "benchmark")
        for identity in (SENDER, RECEIVER):
            issue(folder / "ca", folder / identity.site, identity)
        tls, plain = Place(folder, True), Place(folder, False)
        rate(tls, 100, count // 8)
        once = max(rate(tls, 100, count) for _ in range(turns))
        twice = max(rate(tls, 100, 2 * count) for _ in range(turns))
        bare = max(rate(plain, 100, count) for _ in range(turns))
        singly = rate(tls, 100, count // 4, pump_singly)
        kilo, many = rate(tls, 1024, count // 4), rate(tls, 16 * 1024, count // 40)
        trips = round_trips(tls, pings)
    return [
        Result("frames_per_s", round(once), "frames/s", GOAL),
        growth("frames", count / once, 2 * count / twice),
        Result("frames_without_tls_per_s", round(bare), "frames/s"),
        Result("frames_sent_singly_per_s", round(singly), "frames/s"),
        Result("frames_of_1_kib_mb_per_s", round(kilo * 1024 / 1e6), "MB/s"),
        Result("frames_of_16_kib_mb_per_s", round(many * 16384 / 1e6), "MB/s"),
        Result("round_trip_p50_ms", round(trips[len(trips) // 2], 3), "ms"),
        Result("round_trip_p99_ms", round(trips[len(trips) * 99 // 100], 3), "ms"),
    ]


if __name__ == "__main__":
    run("net", measure)
