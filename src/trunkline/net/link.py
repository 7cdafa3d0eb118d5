"""A link: one established connection between two nodes, from the accepted HELLOs to its end.

1. `shake_hands` follows rule 1 of `trunkline.net.hello`; a `Link` exists only after it.
2. `send` never waits. Each channel has its own bounded queue (`trunkline.net.outbox`); a full one is told to the caller
   (False), who knows whether to drop, to mark the peer as lagging, or to `wait_room`. Beyond the queues there are at most
   one write and the transport's buffer.
3. Control messages go before queued data and need no credit. At most one heartbeat and one return of credit per channel
   wait: they are made when they are written.
4. A stalled channel never blocks another. The receiver stalls one by `pause`: what is on its way still comes, a window and
   one frame at most, and then nothing until `resume` (`trunkline.net.credit`).
5. The peer is judged once per heartbeat (`trunkline.net.vigil`).
6. After `close`, no message of the peer is delivered any more, except the rest of a run that its handler already has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from trunkline.core.clock import Clock
from trunkline.core.errors import LocalProtocolError, RemoteProtocolError, Retryable
from trunkline.core.ids import NodeId
from trunkline.net.channels import DATA, Channel
from trunkline.net.credit import Account
from trunkline.net.frames import Run, encode_frame
from trunkline.net.hello import (
    Bye,
    Control,
    Credit,
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
from trunkline.net.outbox import Outbox
from trunkline.net.stream import Stream
from trunkline.net.vigil import Progress, Vigil

WRITE_BATCH = 256 * 1024  # frames joined into one write: few system calls, and control messages wait for no more than that

Deliver: TypeAlias = Callable[["Link", Channel, bytes], None]
Handler: TypeAlias = Callable[[list[bytes]], None]
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
        self._stream = stream
        self._pace = pace
        self._outbox = Outbox(DATA)
        self._accounts = {channel: Account(bounds.window) for channel, bounds in DATA.items()}
        self._handlers: dict[Channel, Handler] = {}
        self._beat_due = False
        self._work = asyncio.Event()
        self._taken = asyncio.Event()
        self._closing: asyncio.Future[str] = asyncio.get_running_loop().create_future()

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

    # -- sending

    def send(self, channel: Channel, body: bytes) -> bool:
        """False: the channel's queue is full, or the link is closing, and nothing was taken."""
        return self.send_many(channel, (body,)) == 1

    def send_many(self, channel: Channel, bodies: Sequence[bytes]) -> int:
        """How many were taken, from the front on; what did not fit the channel's queue was not."""
        if self._closing.done():
            return 0
        taken = self._outbox.put(channel, bodies)
        self._work.set()
        return taken

    @property
    def queued_bytes(self) -> int:
        return self._outbox.queued_bytes

    def queued(self, channel: Channel) -> int:
        return self._outbox.queued(channel)

    def room(self, channel: Channel) -> int:
        """How many bytes the channel's queue still takes, headers of frames included."""
        return self._outbox.room(channel)

    async def wait_room(self, channel: Channel, size: int = 1) -> bool:
        """True as soon as the channel's queue has that room, or is empty; False when the link is closing."""
        while not self._closing.done():
            if self.room(channel) >= min(size, self._outbox.bound(channel)):
                return True
            self._taken.clear()
            await self._taken.wait()
        return False

    # -- receiving

    def handle(self, channel: Channel, handler: Handler) -> None:
        """From now on the channel's bodies go there, many at a time, instead of to `deliver`. Call it in `link_up`."""
        self._account(channel)
        self._handlers[channel] = handler

    def pause(self, channel: Channel) -> None:
        """No more credit for this channel until `resume`; at most a window and one frame still come."""
        self._account(channel).paused = True

    def resume(self, channel: Channel) -> None:
        self._account(channel).paused = False
        self._work.set()

    def _account(self, channel: Channel) -> Account:
        account = self._accounts.get(channel)
        if account is None:
            raise LocalProtocolError("control message", "the link itself listens on CONTROL", "name another channel")
        return account

    # -- life

    def close(self, reason: str) -> None:
        if not self._closing.done():
            self._closing.set_result(reason)
            self._taken.set()

    async def run(self, deliver: Deliver) -> str:
        """Until the link ends; the reason. Raises what broke it: RemoteProtocolError is the peer's fault."""
        parts = (self._read(deliver), self._write(), self._pulse())
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

    # -- inwards

    async def _read(self, deliver: Deliver) -> str:
        while runs := await self._stream.receive():
            for run in runs:
                if run.channel is Channel.CONTROL:
                    self._on_control(run.bodies)
                else:
                    self._on_data(run, deliver)
                if self._closing.done():
                    return self._closing.result()
        return "the peer closed the connection"

    def _on_data(self, run: Run, deliver: Deliver) -> None:
        account = self._accounts[run.channel]
        account.received(run.size, run.last)
        handler = self._handlers.get(run.channel)
        if handler is not None:
            handler(run.bodies)
        else:
            for body in run.bodies:
                if not self._closing.done():
                    deliver(self, run.channel, body)
        if account.due:
            self._work.set()

    def _on_control(self, bodies: list[bytes]) -> None:
        for body in bodies:
            if not self._closing.done():
                self._obey(decode_control(body))

    def _obey(self, message: Control) -> None:
        match message:
            case Heartbeat(heads):
                self.heads = heads
            case Credit(channel, size):
                self._outbox.returned(channel, size)
                self._work.set()
            case Bye(reason):
                self.close(f"the peer said goodbye: {reason}")
            case _:
                raise RemoteProtocolError("control message", "a second HELLO", "send HELLO once per connection")

    # -- outwards

    async def _write(self) -> str:
        while True:
            frames = self._control_frames() + self._outbox.take(WRITE_BATCH)
            if not frames:
                self._work.clear()
                await self._work.wait()
                continue
            self._taken.set()
            self._stream.write(frames)
            await self._stream.flush()

    def _control_frames(self) -> list[bytes]:
        messages: list[Control] = []
        if self._beat_due:
            self._beat_due = False
            messages.append(Heartbeat(self._pace.heads()))
        for channel, account in self._accounts.items():
            if account.due:
                messages.append(Credit(channel, account.give_back()))
        return [encode_frame(Channel.CONTROL, encode_control(message)) for message in messages]

    async def _pulse(self) -> str:
        """A heartbeat to the peer and a look at it, in one rhythm."""
        heartbeat, clock = self._pace.heartbeat, self._pace.clock
        vigil = Vigil(heartbeat, clock.monotonic())
        while True:
            await asyncio.sleep(heartbeat)
            self._beat_due = True
            self._work.set()
            if (reason := vigil.look(self._progress(), clock.monotonic())) is not None:
                return reason

    def _progress(self) -> Progress:
        return Progress(self._stream.received_bytes, self._stream.received_frames, self._stream.unfinished)
