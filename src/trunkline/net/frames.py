"""Frames: what a link's byte stream is cut into.

    4 bytes  length of what follows, big-endian
    1 byte   channel (`trunkline.net.channels`)
    n bytes  body; the layer that owns the channel owns its meaning

1. The same bytes give the same frames, however they were split on the way.
2. A stream that breaks the format is refused with `RemoteProtocolError` at the first byte that proves it, before its
   body is waited for, and stays refused: after a wrong length nobody knows where the next frame begins.
3. Cost is linear in the bytes: each byte is stored once and copied once, and what was consumed is cut off once per
   `feed`, not once per frame.
"""

from __future__ import annotations

import struct
from typing import Final

from trunkline.core.errors import LocalProtocolError, RemoteProtocolError
from trunkline.net.channels import Channel

# Channel and body together. The largest thing carried whole is one transaction's entries (at most a few MiB); twice
# that leaves room, and a hostile length field cannot make this side hold more per link.
MAX_FRAME = 8 * 1024 * 1024

_HEADER: Final = struct.Struct(">IB")
_LENGTH: Final = struct.Struct(">I")
_CHANNELS: Final = {int(channel): channel for channel in Channel}


def encode_frame(channel: Channel, body: bytes) -> bytes:
    length = len(body) + 1
    if length > MAX_FRAME:
        raise LocalProtocolError("frame", f"{length} bytes are over the limit of {MAX_FRAME}", "send it in parts")
    return _HEADER.pack(length, channel) + body


class FrameDecoder:
    def __init__(self) -> None:
        self._buffer = bytearray()
        self._refused: RemoteProtocolError | None = None

    def feed(self, data: bytes) -> list[tuple[Channel, bytes]]:
        if self._refused is not None:
            raise self._refused
        self._buffer += data
        try:
            frames, consumed = _cut(self._buffer)
        except RemoteProtocolError as error:
            self._refused = error
            self._buffer.clear()
            raise
        del self._buffer[:consumed]
        return frames


def _cut(buffer: bytearray) -> tuple[list[tuple[Channel, bytes]], int]:
    """All whole frames at the front, and how many bytes they take."""
    frames: list[tuple[Channel, bytes]] = []
    start, size = 0, len(buffer)
    with memoryview(buffer) as view:
        while size - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(view, start)
            _check_length(length)
            if size - start < _HEADER.size:
                break
            channel = _channel(view[start + _LENGTH.size])
            end = start + _LENGTH.size + length
            if end > size:
                break
            frames.append((channel, bytes(view[start + _HEADER.size : end])))
            start = end
    return frames, start


def _check_length(length: int) -> None:
    if not 0 < length <= MAX_FRAME:
        raise RemoteProtocolError(
            "frame", f"its length {length} is not within 1 and {MAX_FRAME}", "check that the peer speaks Trunkline"
        )


def _channel(number: int) -> Channel:
    channel = _CHANNELS.get(number)
    if channel is None:
        known = ", ".join(f"{value} ({name.name})" for value, name in _CHANNELS.items())
        raise RemoteProtocolError("frame", f"channel {number} is unknown", f"use one of {known}")
    return channel
