"""The numbers are the invariants of `trunkline.net.frames`."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.errors import LocalProtocolError, RemoteProtocolError
from trunkline.net.channels import Channel
from trunkline.net.frames import MAX_FRAME, FrameDecoder, encode_frame

frames = st.lists(st.tuples(st.sampled_from(Channel), st.binary(max_size=300)), max_size=20)


def decode(pieces: list[bytes]) -> list[tuple[Channel, bytes]]:
    decoder = FrameDecoder()
    return [frame for piece in pieces for frame in decoder.feed(piece)]


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


def test_the_format_is_length_then_channel_then_body() -> None:
    assert encode_frame(Channel.TRUNK, b"ab") == b"\x00\x00\x00\x03\x02ab"


@given(frames, st.lists(st.integers(min_value=0, max_value=10_000), max_size=30))
def test_1_any_split_of_the_bytes_gives_the_same_frames(sent: list[tuple[Channel, bytes]], cuts: list[int]) -> None:
    data = b"".join(encode_frame(channel, body) for channel, body in sent)
    assert decode(split(data, cuts)) == sent
    assert decode([bytes([byte]) for byte in data]) == sent


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_2_garbage_is_read_as_frames_or_refused(pieces: list[bytes]) -> None:
    try:
        got = decode(pieces)
    except RemoteProtocolError:
        return
    assert b"".join(pieces).startswith(b"".join(encode_frame(channel, body) for channel, body in got))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\x00\x00\x00", "length 0"),
        ((MAX_FRAME + 1).to_bytes(4, "big"), f"length {MAX_FRAME + 1}"),
        (b"GET / HTTP/1.1\r\n\r\n", "length 1195725856"),
        (b"\x00\x00\x00\x64\x09", "channel 9"),
    ],
)
def test_2_a_broken_stream_is_refused_before_its_body_and_stays_refused(data: bytes, why: str) -> None:
    decoder = FrameDecoder()
    with pytest.raises(RemoteProtocolError, match=why):
        decoder.feed(data)
    with pytest.raises(RemoteProtocolError, match=why):
        decoder.feed(encode_frame(Channel.STORE, b"fine"))


def test_the_largest_frame_passes_and_one_byte_more_is_our_own_fault() -> None:
    body = bytes(MAX_FRAME - 1)
    assert decode([encode_frame(Channel.TRUNK, body)]) == [(Channel.TRUNK, body)]
    with pytest.raises(LocalProtocolError):
        encode_frame(Channel.TRUNK, body + b"x")


def test_3_cost_is_linear_in_the_bytes() -> None:
    """Ten times the bytes in ten times the time; a quadratic decoder takes a hundred times."""

    def seconds(count: int, step: int) -> float:
        data = encode_frame(Channel.STORE, bytes(20)) * count
        pieces = [data[at : at + step] for at in range(0, len(data), step)]
        began = time.process_time()
        assert len(decode(pieces)) == count
        return time.process_time() - began

    for count, step in ((4_000, 1), (40_000, 10**9)):
        small = min(seconds(count, step) for _ in range(3))
        assert seconds(count * 10, step) < 35 * small


def test_3_a_large_frame_in_small_pieces_is_linear_too() -> None:
    def seconds(size: int) -> float:
        data = encode_frame(Channel.TRUNK, bytes(size))
        pieces = [data[at : at + 64] for at in range(0, len(data), 64)]
        began = time.process_time()
        assert len(decode(pieces)) == 1
        return time.process_time() - began

    small = min(seconds(MAX_FRAME // 20) for _ in range(3))
    assert seconds(MAX_FRAME // 2) < 35 * small
