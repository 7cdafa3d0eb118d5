"""Messages between nodes: what cannot be read is a protocol error and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.codec import Codec
from trunkline.core.errors import RemoteProtocolError
from trunkline.store import messages as store
from trunkline.trunk import messages

CODECS: list[Codec[store.Message] | Codec[messages.TrunkMessage]] = [store.CODEC, messages.CODEC]


@pytest.mark.parametrize("codec", CODECS, ids=["store", "trunk"])
@given(body=st.binary(max_size=200))
def test_garbage_is_a_protocol_error(codec: Codec[object], body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        codec.decode(body)


@pytest.mark.parametrize("codec", CODECS, ids=["store", "trunk"])
@pytest.mark.parametrize("body", [b"\x91" * 100_000, b"\x93\xa3pub\xa1\xff\x80", b"\xc1"], ids=["deep", "bad text", "reserved"])
def test_nasty_bodies_are_protocol_errors(codec: Codec[object], body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        codec.decode(body)


def test_many_messages_are_read_as_one_by_one_and_all_or_none() -> None:
    stops: list[messages.TrunkMessage] = [messages.Stop(number, "hub") for number in range(5)]
    bodies = messages.CODEC.encode_many(stops)
    assert bodies == [messages.CODEC.encode(stop) for stop in stops]
    assert messages.CODEC.decode_many(bodies) == stops == [messages.CODEC.decode(body) for body in bodies]
    with pytest.raises(RemoteProtocolError):
        messages.CODEC.decode_many([*bodies, b"\xc1"])
