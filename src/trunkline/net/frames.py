"""Frames: what a link's byte stream is cut into.

    4 bytes  length of what follows, big-endian
    1 byte   channel (`trunkline.net.channels`)
    n bytes  body; the layer that owns the channel owns its meaning

Frames come out in *runs*: neighbours of one channel together, so that what a link does per channel it does per run.

1. The same bytes give the same frames, however they were split on the way; also those before a breach of the format.
2. A stream that breaks the format is refused at the first byte that proves it, before its body is waited for, and stays
   refused: after a wrong length nobody knows where the next frame begins.
3. Cost is linear in the bytes: each byte is copied a fixed number of times, and an unfinished frame is looked at again
   only when it is whole.
4. The decoder holds at most one unfinished frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from trunkline.core.errors import LocalProtocolError, RemoteProtocolError
from trunkline.net.channels import LARGEST, Channel

_HEADER: Final = struct.Struct(">IB")
_LENGTH: Final = struct.Struct(">I")
_CHANNELS: Final = {int(channel): channel for channel in Channel}
_LARGEST: Final = {int(channel): largest for channel, largest in LARGEST.items()}
_LARGEST_OF_ALL: Final = max(LARGEST.values())


class Run(NamedTuple):
    """Frames of one channel in their order. `size` is what they took on the wire, headers included."""

    channel: Channel
    bodies: list[bytes]
    size: int

    @property
    def last(self) -> int:
        """What the last of them took."""
        return _HEADER.size + len(self.bodies[-1])

    def without_first(self) -> Run:
        return Run(self.channel, self.bodies[1:], self.size - _HEADER.size - len(self.bodies[0]))


def encode_frame(channel: Channel, body: bytes) -> bytes:
    return encode_frames(channel, (body,))[0]


def encode_frames(channel: Channel, bodies: Iterable[bytes]) -> list[bytes]:
    pack, number = _HEADER.pack, int(channel)
    frames = [pack(len(body) + 1, number) + body for body in bodies]
    largest = max(map(len, frames), default=0) - _LENGTH.size
    if largest > LARGEST[channel]:
        why = f"{largest} bytes are over the limit of {LARGEST[channel]} of {channel.name}"
        raise LocalProtocolError("frame", why, "send it in parts")
    return frames


class FrameDecoder:
    """`refused` says how the stream broke the format; from then on nothing comes out any more."""

    def __init__(self) -> None:
        self.refused: RemoteProtocolError | None = None
        self._rest = bytearray()
        self._wanted = _LENGTH.size

    @property
    def unfinished(self) -> int:
        """The size of the frame that has begun and is not whole, as far as it is known; 0 between frames."""
        return self._wanted if self._rest else 0

    def feed(self, data: bytes | bytearray | memoryview) -> list[Run]:
        if self.refused is not None:
            return []
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return []
            data = self._rest
        return self._take(bytes(data))

    def _take(self, data: bytes) -> list[Run]:
        runs, end = _cut(data)
        try:
            self._wanted = _next_size(data, end)
            self._rest = bytearray(memoryview(data)[end:])
        except RemoteProtocolError as error:
            self.refused = error
            self._rest = bytearray()
        return runs


def _cut(data: bytes) -> tuple[list[Run], int]:
    """The good whole frames at the front, and where they end."""
    runs: list[Run] = []
    at, last_header = 0, len(data) - _HEADER.size
    while at <= last_header:
        bodies, end = _cut_run(data, at)
        if not bodies:
            break
        runs.append(Run(_CHANNELS[data[at + _LENGTH.size]], bodies, end - at))
        at = end
    return runs, at


def _cut_run(data: bytes, at: int) -> tuple[list[bytes], int]:
    """The good whole frames of the channel that stands at `at`, and where they end. The tightest loop of a link."""
    bodies: list[bytes] = []
    append, header, size = bodies.append, _HEADER.unpack_from, len(data)
    number = data[at + 4]
    largest = _LARGEST.get(number, 0)
    body = at + 5
    while body <= size:
        length, channel = header(data, at)
        end = body + length - 1
        if channel != number or end > size or not 0 < length <= largest:
            break
        append(data[body:end])
        at, body = end, end + 5
    return bodies, at


def _next_size(data: bytes, at: int) -> int:
    """How many bytes from `at` on the next look needs: the length, the channel, or the whole frame. Raises on a breach."""
    if len(data) - at < _LENGTH.size:
        return _LENGTH.size
    length: int = _LENGTH.unpack_from(data, at)[0]
    _check_length(length, _LARGEST_OF_ALL)
    if len(data) - at < _HEADER.size:
        return _HEADER.size
    _check_length(length, _largest(data[at + _LENGTH.size]))
    return _LENGTH.size + length


def _check_length(length: int, largest: int) -> None:
    if not 0 < length <= largest:
        why = f"its length {length} is not within 1 and {largest}"
        raise RemoteProtocolError("frame", why, "check that the peer speaks Trunkline")


def _largest(number: int) -> int:
    largest = _LARGEST.get(number)
    if largest is None:
        known = ", ".join(f"{value} ({channel.name})" for value, channel in _CHANNELS.items())
        raise RemoteProtocolError("frame", f"channel {number} is unknown", f"use one of {known}")
    return largest
