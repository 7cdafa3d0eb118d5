"""One TLS connection as a stream of frames, opened by dialling or by accepting, and closed without hanging.

Reading stops at the reader's buffer (READ_LIMIT) until the frames are taken; writing goes through `flush`, which waits
for the transport. `close` is polite for at most CLOSE_TIMEOUT, then it cuts; `abort` cuts at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

from trunkline.core.errors import Invalid
from trunkline.net.channels import Channel
from trunkline.net.frames import FrameDecoder, encode_frame
from trunkline.net.hello import Bye, Control, encode_control

READ_LIMIT = 256 * 1024  # one read at full speed of a 10 Gbit/s link is 0.2 ms of work for the loop
CLOSE_TIMEOUT = 1.0
Frames = list[tuple[Channel, bytes]]


class _Protocol(asyncio.StreamReaderProtocol):
    """Adds one thing to asyncio's: `lost` can be waited for many times, also after a wait was cancelled."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.reader = reader
        self.lost = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.set()


def _protocol() -> _Protocol:
    return _Protocol(asyncio.StreamReader(limit=READ_LIMIT))


class Stream:
    def __init__(self, transport: asyncio.WriteTransport, protocol: _Protocol) -> None:
        self.sent_bytes = self.sent_frames = self.received_bytes = self.received_frames = 0
        self._lost = protocol.lost
        self._reader = protocol.reader
        self._writer = asyncio.StreamWriter(transport, protocol, protocol.reader, asyncio.get_running_loop())
        self._decoder = FrameDecoder()
        self._unread: Frames = []

    @property
    def ssl_object(self) -> ssl.SSLObject:
        tls = self._writer.get_extra_info("ssl_object")
        assert isinstance(tls, ssl.SSLObject)
        return tls

    async def receive(self) -> Frames:
        """At least one frame; none means that the peer has closed. Raises OSError or RemoteProtocolError."""
        frames, self._unread = self._unread, []
        while not frames:
            data = await self._reader.read(READ_LIMIT)
            if not data:
                return []
            self.received_bytes += len(data)
            frames = self._decoder.feed(data)
            self.received_frames += len(frames)
        return frames

    async def receive_one(self) -> tuple[Channel, bytes] | None:
        frames = await self.receive()
        if not frames:
            return None
        first, *self._unread = frames
        return first

    def write(self, frames: list[bytes]) -> None:
        data = b"".join(frames)
        self.sent_bytes += len(data)
        self.sent_frames += len(frames)
        self._writer.write(data)

    def say(self, message: Control) -> None:
        self.write([encode_frame(Channel.CONTROL, encode_control(message))])

    async def flush(self) -> None:
        await self._writer.drain()

    async def close(self, goodbye: Bye | None) -> None:
        """Without a goodbye there is nobody to be polite to."""
        if goodbye is None or self._lost.is_set():
            return await self.abort()
        with contextlib.suppress(TimeoutError, OSError):
            self.say(goodbye)
            self._writer.close()
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._lost.wait()
        return await self.abort()

    async def abort(self) -> None:
        transport = self._writer.transport
        transport.abort()
        await self._lost.wait()


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise Invalid(f"address {address!r}", "it is not <host>:<port>", "write it like 127.0.0.1:4000 or [::1]:4000")
    return host.removeprefix("[").removesuffix("]"), int(port)


async def dial_stream(address: str, context: ssl.SSLContext) -> Stream:
    host, port = split_address(address)
    transport, protocol = await asyncio.get_running_loop().create_connection(
        _protocol, host, port, ssl=context, ssl_shutdown_timeout=CLOSE_TIMEOUT
    )
    return Stream(transport, protocol)


async def accept_stream(accepted: socket.socket, context: ssl.SSLContext) -> Stream:
    transport, protocol = await asyncio.get_running_loop().connect_accepted_socket(
        _protocol, accepted, ssl=context, ssl_shutdown_timeout=CLOSE_TIMEOUT
    )
    assert isinstance(transport, asyncio.WriteTransport)
    return Stream(transport, protocol)
