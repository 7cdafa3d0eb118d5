"""A link: one established connection between two nodes, from the accepted HELLOs to its end.

1. `shake_hands` follows rule 1 of `trunkline.net.hello`; a `Link` exists only after it.
2. `send` never waits. What waits to be written is bounded by SEND_LIMIT, the transport's buffer included; a full queue
   is told to the caller (False), who knows whether to drop, to mark the peer as lagging or to try later.
3. Control messages go before queued data and do not count against the limit; at most one heartbeat waits.
4. Any byte of the peer is a sign of life. Silence of SILENT_HEARTBEATS closes the link, unless this process itself was
   stopped for longer than a heartbeat: then the peer's bytes may still lie in the socket, and it gets another round.
5. After `close`, no message of the peer is delivered any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from trunkline.core.clock import Clock
from trunkline.core.errors import LocalProtocolError, RemoteProtocolError, Retryable
from trunkline.core.ids import NodeId
from trunkline.net.channels import Channel
from trunkline.net.frames import MAX_FRAME, encode_frame
from trunkline.net.hello import (
    Bye,
    Control,
    Heartbeat,
    Hello,
    Rank,
    carries_records,
    check_identity,
    decode_control,
    encode_control,
    negotiate,
    rank,
)
from trunkline.net.stream import Stream

# Two of the largest frames: one on its way to the socket, one to follow. More would only add delay behind a slow
# peer; a node with 100 links is bounded at 1.6 GB in the worst case and holds next to nothing in the usual one.
SEND_LIMIT = 2 * MAX_FRAME
WRITE_BATCH = 256 * 1024  # frames joined into one write: few system calls, and the queue's bound stays meaningful
SILENT_HEARTBEATS = 4

Deliver = Callable[["Link", Channel, bytes], None]
_Kind = TypeVar("_Kind", Hello, Heartbeat)


class Refused(Retryable):
    """The peer does not want this connection now."""


@dataclass(frozen=True)
class Pace:
    heartbeat: float
    clock: Clock
    heads: Callable[[], dict[str, int]]


async def shake_hands(stream: Stream, peer: NodeId, mine: Hello, admit: Callable[[Hello], None]) -> Hello:
    """Their HELLO, accepted by both sides. `admit` may raise to refuse it after it was found well-formed."""
    stream.say(mine)
    theirs = await _expect(stream, Hello)
    check_identity(theirs, peer)
    negotiate(mine, theirs)
    admit(theirs)
    stream.say(Heartbeat(mine.heads))
    await _expect(stream, Heartbeat)
    return theirs


async def _expect(stream: Stream, kind: type[_Kind]) -> _Kind:
    frame = await stream.receive_one()
    if frame is None:
        raise Refused("handshake", "the peer closed the connection", "see the peer's log")
    channel, body = frame
    message = decode_control(body) if channel is Channel.CONTROL else None
    if isinstance(message, Bye):
        raise Refused("handshake", f"the peer refused: {message.reason}", message.next_step)
    if not isinstance(message, kind):
        got = channel.name if message is None else type(message).__name__
        raise RemoteProtocolError("handshake", f"{got} came before {kind.__name__}", "send HELLO, then HEARTBEAT")
    return message


class Link:
    def __init__(self, stream: Stream, peer: NodeId, mine: Hello, theirs: Hello, outgoing: bool, pace: Pace) -> None:
        self.peer = peer
        self.mine = mine
        self.hello = theirs
        self.wire = negotiate(mine, theirs)
        self.carries = carries_records(mine, theirs)
        self.outgoing = outgoing
        self.heads = dict(theirs.heads)
        self.queued_bytes = 0
        self._stream = stream
        self._pace = pace
        self._control: deque[bytes] = deque()
        self._data: deque[bytes] = deque()
        self._work = asyncio.Event()
        self._closing: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._heard = pace.clock.monotonic()

    @property
    def rank(self) -> Rank:
        return rank(self.mine, self.hello, self.outgoing)

    @property
    def sent_bytes(self) -> int:
        return self._stream.sent_bytes

    @property
    def sent_frames(self) -> int:
        return self._stream.sent_frames

    @property
    def received_bytes(self) -> int:
        return self._stream.received_bytes

    @property
    def received_frames(self) -> int:
        return self._stream.received_frames

    def send(self, channel: Channel, body: bytes) -> bool:
        """False: the queue is full, or the link is closing, and nothing was taken."""
        if channel is Channel.CONTROL:
            raise LocalProtocolError("control message", "the link itself speaks on CONTROL", "send on another channel")
        frame = encode_frame(channel, body)
        if self._closing.done() or self.queued_bytes + len(frame) > SEND_LIMIT:
            return False
        self._data.append(frame)
        self.queued_bytes += len(frame)
        self._work.set()
        return True

    def close(self, reason: str) -> None:
        if not self._closing.done():
            self._closing.set_result(reason)

    async def run(self, deliver: Deliver) -> str:
        """Until the link ends; the reason. Raises what broke it: RemoteProtocolError is the peer's fault."""
        parts = (self._read(deliver), self._write(), self._beat(), self._watch())
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.wait([*tasks, self._closing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.close("ended")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._verdict(tasks)

    async def finish(self, goodbye: Bye | None) -> None:
        await self._stream.close(goodbye)

    def _verdict(self, tasks: list[asyncio.Task[str]]) -> str:
        ended = [task for task in tasks if not task.cancelled()]
        errors = [error for error in (task.exception() for task in ended) if error is not None]
        for error in errors:
            if not isinstance(error, OSError):
                raise error
        if errors:
            return f"the connection broke: {errors[0]}"
        return ended[0].result() if ended else self._closing.result()

    async def _read(self, deliver: Deliver) -> str:
        while frames := await self._stream.receive():
            self._heard = self._pace.clock.monotonic()
            for channel, body in frames:
                if self._closing.done():
                    return self._closing.result()
                if channel is not Channel.CONTROL:
                    deliver(self, channel, body)
                elif (reason := self._on_control(decode_control(body))) is not None:
                    return reason
        return "the peer closed the connection"

    def _on_control(self, message: Control) -> str | None:
        match message:
            case Heartbeat(heads):
                self.heads = heads
                return None
            case Bye(reason):
                return f"the peer said goodbye: {reason}"
            case _:
                raise RemoteProtocolError("control message", "a second HELLO", "send HELLO once per connection")

    async def _write(self) -> str:
        while True:
            frames, data_bytes = self._take()
            if not frames:
                self._work.clear()
                await self._work.wait()
                continue
            self._stream.write(frames)
            await self._stream.flush()
            self.queued_bytes -= data_bytes

    def _take(self) -> tuple[list[bytes], int]:
        frames = list(self._control)
        self._control.clear()
        size = 0
        while self._data and size < WRITE_BATCH:
            frames.append(self._data.popleft())
            size += len(frames[-1])
        return frames, size

    async def _beat(self) -> str:
        while True:
            await asyncio.sleep(self._pace.heartbeat)
            if not self._control:
                beat = encode_control(Heartbeat(self._pace.heads()))
                self._control.append(encode_frame(Channel.CONTROL, beat))
                self._work.set()

    async def _watch(self) -> str:
        heartbeat, clock = self._pace.heartbeat, self._pace.clock
        limit = SILENT_HEARTBEATS * heartbeat
        while True:
            due = self._heard + limit
            await asyncio.sleep(max(0.0, due - clock.monotonic()))
            now = clock.monotonic()
            if now > due + heartbeat:
                self._heard = now
            elif now >= self._heard + limit:
                return f"the peer was silent for {now - self._heard:.1f} s"
