"""One TLS connection as a stream of frames, opened by dialling or by accepting, and closed without hanging.

What arrives is cut into frames in the buffer it arrived in. Reading stops when READ_AHEAD of frames are not taken; writing
goes through `flush`, which waits for the transport. `close` is polite for at most CLOSE_TIMEOUT, then it cuts; `abort` cuts
at once. After either, what still arrives is thrown away.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

from trunkline.core.address import split_address
from trunkline.core.errors import RemoteProtocolError
from trunkline.net.channels import Channel
from trunkline.net.frames import FrameDecoder, Run, encode_frame
from trunkline.net.hello import Bye, Control, encode_control

READ_SIZE = 128 * 1024  # a millisecond of work for the loop at full speed
READ_AHEAD = 2 * READ_SIZE
CLOSE_TIMEOUT = 1.0


class Stream(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.sent_bytes = self.sent_frames = self.received_bytes = self.received_frames = 0
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._decoder = FrameDecoder()
        self._runs: list[Run] = []
        self._untaken = 0
        self._deaf = self._ended = False
        self._error: Exception | None = None
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()

    @property
    def ssl_object(self) -> ssl.SSLObject:
        tls = self._transport.get_extra_info("ssl_object")
        assert isinstance(tls, ssl.SSLObject)
        return tls

    @property
    def unfinished(self) -> int:
        """The size of the frame that has begun to arrive, 0 between frames."""
        return self._decoder.unfinished

    async def receive(self) -> list[Run]:
        """At least one run of frames; none means that the peer has closed. Raises OSError or RemoteProtocolError."""
        while not self._runs:
            if (error := self._decoder.refused or self._error) is not None:
                raise error
            if self._ended:
                return []
            self._arrived.clear()
            await self._arrived.wait()
        runs, self._runs = self._runs, []
        if self._untaken >= READ_AHEAD:
            self._transport.resume_reading()
        self._untaken = 0
        return runs

    async def receive_one(self) -> tuple[Channel, bytes] | None:
        runs = await self.receive()
        if not runs:
            return None
        first, *rest = runs
        self._runs = [first.without_first(), *rest] if len(first.bodies) > 1 else rest
        self._untaken = sum(run.size for run in self._runs)
        return first.channel, first.bodies[0]

    def write(self, frames: list[bytes]) -> None:
        data = b"".join(frames)
        self.sent_bytes += len(data)
        self.sent_frames += len(frames)
        self._transport.write(data)

    def say(self, message: Control) -> None:
        self.write([encode_frame(Channel.CONTROL, encode_control(message))])

    async def flush(self) -> None:
        """Waits until the transport takes more; lets the others of this loop go on in any case."""
        if self._writable.is_set():
            await asyncio.sleep(0)
        await self._writable.wait()
        if self._lost.is_set():
            raise self._error or ConnectionResetError("the connection is lost")

    async def close(self, goodbye: Bye | None) -> None:
        """Without a goodbye there is nobody to be polite to."""
        if goodbye is None or self._lost.is_set():
            return await self.abort()
        self._deaf = True
        self._transport.resume_reading()
        with contextlib.suppress(TimeoutError, OSError):
            self.say(goodbye)
            self._transport.close()
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._lost.wait()
        return await self.abort()

    async def abort(self) -> None:
        self._deaf = True
        self._transport.abort()
        await self._lost.wait()

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received_bytes += nbytes
        if self._deaf:
            return
        for run in self._decoder.feed(self._buffer[:nbytes]):
            self.received_frames += len(run.bodies)
            self._untaken += run.size
            self._runs.append(run)
        if self._untaken >= READ_AHEAD or self._decoder.refused is not None:
            self._transport.pause_reading()
        self._arrived.set()

    def eof_received(self) -> None:
        """A stream that ends inside a frame breaks the format, also when the peer just died there: nobody can tell."""
        if self.unfinished:
            why = f"the connection ended inside a frame of {self.unfinished} bytes"
            self._error = RemoteProtocolError("frame", why, "see the peer's log: it stopped or failed while it sent")
        self._ended = True
        self._arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._error, self._ended = self._error or exc, True
        for event in (self._lost, self._arrived, self._writable):
            event.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


async def dial_stream(address: str, context: ssl.SSLContext) -> Stream:
    host, port = split_address(address)
    _, stream = await asyncio.get_running_loop().create_connection(
        Stream, host, port, ssl=context, ssl_shutdown_timeout=CLOSE_TIMEOUT
    )
    return stream


async def accept_stream(accepted: socket.socket, context: ssl.SSLContext) -> Stream:
    _, stream = await asyncio.get_running_loop().connect_accepted_socket(
        Stream, accepted, ssl=context, ssl_shutdown_timeout=CLOSE_TIMEOUT
    )
    assert isinstance(stream, Stream)
    return stream
