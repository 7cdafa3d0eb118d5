"""The one codec of messages between nodes: msgpack of a tagged union; whatever cannot be read is the peer's fault."""

from __future__ import annotations

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

    def decode(self, body: bytes) -> M:
        try:
            return self._decoder.decode(body)
        except MALFORMED as error:
            raise RemoteProtocolError(self._what, f"it cannot be read: {error}", "run the same version on both sides") from None
