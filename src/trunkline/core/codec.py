"""The one codec of messages between nodes: msgpack of a tagged union; whatever cannot be read is the peer's fault."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from trunkline.core.errors import RemoteProtocolError

# Deep nesting inside an ignored field ends in RecursionError, bad text in UnicodeDecodeError.
MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)
M = TypeVar("M")


class Codec(Generic[M]):
    def __init__(self, what: str, union: Any) -> None:
        self._what = what
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(union)

    def encode(self, message: M) -> bytes:
        return self._encoder.encode(message)

    def encode_many(self, messages: Iterable[M]) -> list[bytes]:
        encode = self._encoder.encode
        return [encode(message) for message in messages]

    def decode(self, body: bytes) -> M:
        return self.decode_many((body,))[0]

    def decode_many(self, bodies: Iterable[bytes]) -> list[M]:
        """All or none: one that cannot be read condemns the rest."""
        decode = self._decoder.decode
        try:
            return [decode(body) for body in bodies]
        except MALFORMED as error:
            raise RemoteProtocolError(self._what, f"it cannot be read: {error}", "run the same version on both sides") from None
