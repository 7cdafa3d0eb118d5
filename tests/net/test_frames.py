"""The numbers are the invariants of `trunkline.net.frames`."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costs import cpu_seconds
from trunkline.core.errors import LocalProtocolError, RemoteProtocolError
from trunkline.net.channels import LARGEST, MAX_CONTROL, MAX_FRAME, Channel
from trunkline.net.frames import FrameDecoder, Run, encode_frame

frames = st.lists(st.tuples(st.sampled_from(Channel), st.binary(max_size=300)), max_size=20)
cuts = st.lists(st.integers(min_value=0, max_value=10_000), max_size=30)


def flat(runs: list[Run]) -> list[tuple[Channel, bytes]]:
    return [(run.channel, body) for run in runs for body in run.bodies]


def decode(pieces: list[bytes]) -> list[tuple[Channel, bytes]]:
    """Raises what the stream is refused with."""
    decoder = FrameDecoder()
    got = [frame for piece in pieces for frame in flat(decoder.feed(piece))]
    if decoder.refused is not None:
        raise decoder.refused
    return got


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


def encode(sent: list[tuple[Channel, bytes]]) -> bytes:
    return b"".join(encode_frame(channel, body) for channel, body in sent)


def test_the_format_is_length_then_channel_then_body() -> None:
    assert encode_frame(Channel.TRUNK, b"ab") == b"\x00\x00\x00\x03\x02ab"


@given(frames, cuts)
def test_1_any_split_of_the_bytes_gives_the_same_frames(sent: list[tuple[Channel, bytes]], cuts: list[int]) -> None:
    data = encode(sent)
    assert decode(split(data, cuts)) == sent
    assert decode([bytes([byte]) for byte in data]) == sent


@given(frames, st.binary(max_size=40), cuts)
def test_1_also_the_frames_before_a_breach(sent: list[tuple[Channel, bytes]], garbage: bytes, cuts: list[int]) -> None:
    data = encode(sent) + garbage
    whole, pieces = FrameDecoder(), FrameDecoder()
    at_once = flat(whole.feed(data))
    assert [frame for piece in split(data, cuts) for frame in flat(pieces.feed(piece))] == at_once
    assert at_once[: len(sent)] == sent
    assert str(whole.refused) == str(pieces.refused)


@given(frames)
def test_runs_are_neighbours_of_one_channel_and_know_their_size(sent: list[tuple[Channel, bytes]]) -> None:
    runs = FrameDecoder().feed(encode(sent))
    assert [run.channel for run in runs] == [channel for channel, _ in itertools.groupby(sent, key=lambda frame: frame[0])]
    for run in runs:
        sizes = [len(encode_frame(run.channel, body)) for body in run.bodies]
        assert (run.size, run.last) == (sum(sizes), sizes[-1])
        if len(run.bodies) > 1:
            assert run.without_first() == Run(run.channel, run.bodies[1:], sum(sizes[1:]))


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_2_garbage_is_read_as_frames_or_refused(pieces: list[bytes]) -> None:
    try:
        got = decode(pieces)
    except RemoteProtocolError:
        return
    assert b"".join(pieces).startswith(encode(got))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\x00\x00\x00", "length 0"),
        ((MAX_FRAME + 1).to_bytes(4, "big"), f"length {MAX_FRAME + 1}"),
        (b"GET / HTTP/1.1\r\n\r\n", "length 1195725856"),
        (b"\x00\x00\x00\x64\x09", "channel 9"),
        ((MAX_CONTROL + 1).to_bytes(4, "big") + b"\x00", f"length {MAX_CONTROL + 1}"),
    ],
)
def test_2_a_broken_stream_is_refused_before_its_body_and_stays_refused(data: bytes, why: str) -> None:
    decoder = FrameDecoder()
    assert decoder.feed(data) == []
    with pytest.raises(RemoteProtocolError, match=why):
        raise decoder.refused or AssertionError("not refused")
    assert decoder.feed(encode_frame(Channel.STORE, b"fine")) == []
    assert decoder.unfinished == 0


@given(frames, st.data())
def test_4_a_frame_that_has_begun_tells_its_size_and_nothing_else_is_held(
    sent: list[tuple[Channel, bytes]], data: st.DataObject
) -> None:
    decoder = FrameDecoder()
    for channel, body in sent:
        frame = encode_frame(channel, body)
        cut = data.draw(st.integers(min_value=0, max_value=len(frame) - 1))
        assert decoder.feed(frame[:cut]) == []
        assert decoder.unfinished == (0 if cut == 0 else 4 if cut < 4 else 5 if cut == 4 else len(frame))
        assert flat(decoder.feed(frame[cut:])) == [(channel, body)]
        assert decoder.unfinished == 0


def test_the_largest_frame_passes_and_one_byte_more_is_our_own_fault() -> None:
    for channel, largest in LARGEST.items():
        body = bytes(largest - 1)
        assert decode([encode_frame(channel, body)]) == [(channel, body)]
        with pytest.raises(LocalProtocolError):
            encode_frame(channel, body + b"x")


def test_3_cost_is_linear_in_the_bytes() -> None:
    """Ten times the bytes in ten times the time; a quadratic decoder takes a hundred times."""

    def seconds(count: int, step: int) -> float:
        data = encode_frame(Channel.STORE, bytes(20)) * count
        pieces = [data[at : at + step] for at in range(0, len(data), step)]
        assert len(decode(pieces)) == count
        return cpu_seconds(lambda: decode(pieces))

    for count, step in ((4_000, 1), (40_000, 10**9)):
        assert seconds(count * 10, step) < 50 * seconds(count, step)


def test_3_a_large_frame_in_small_pieces_is_linear_too() -> None:
    def seconds(size: int) -> float:
        data = encode_frame(Channel.TRUNK, bytes(size))
        pieces = [data[at : at + 64] for at in range(0, len(data), 64)]
        assert len(decode(pieces)) == 1
        return cpu_seconds(lambda: decode(pieces))

    assert seconds(MAX_FRAME // 2) < 50 * seconds(MAX_FRAME // 20)
