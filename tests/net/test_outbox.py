"""The numbers are the invariants of `trunkline.net.outbox`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline.core.errors import LocalProtocolError, RemoteProtocolError
from trunkline.net.channels import Bounds, Channel
from trunkline.net.frames import FrameDecoder
from trunkline.net.outbox import TURN, Outbox

QUEUE, WINDOW = 1000, 400
HEADER = 5
SMALL = {Channel.STORE: Bounds(WINDOW, QUEUE), Channel.TRUNK: Bounds(WINDOW, QUEUE)}
ROOMY = {channel: Bounds(10**9, 10**9) for channel in SMALL}
bodies = st.lists(st.binary(max_size=300), max_size=12)
channels = st.sampled_from(list(SMALL))


def read(frames: list[bytes]) -> dict[Channel, list[bytes]]:
    got: dict[Channel, list[bytes]] = {channel: [] for channel in SMALL}
    for run in FrameDecoder().feed(b"".join(frames)):
        got[run.channel] += run.bodies
    return got


def size_of(frames: list[bytes]) -> int:
    return sum(map(len, frames))


@given(st.lists(st.one_of(st.tuples(channels, bodies), st.integers(min_value=1, max_value=600)), max_size=25))
def test_1_2_3_bounded_in_order_and_each_channel_for_itself(steps: list[tuple[Channel, list[bytes]] | int]) -> None:
    """Puts, and takes of a number of bytes; the peer handles at once and returns credit on STORE only."""
    outbox = Outbox(SMALL)
    put: dict[Channel, list[bytes]] = {channel: [] for channel in SMALL}
    got: dict[Channel, list[bytes]] = {channel: [] for channel in SMALL}
    for step in steps:
        if isinstance(step, int):
            taken = read(outbox.take(step))
            back = sum(len(body) + HEADER for body in taken[Channel.STORE])
            if back:
                outbox.returned(Channel.STORE, back)
            for channel, some in taken.items():
                got[channel] += some
            continue
        channel, wanted = step
        room, count = outbox.room(channel), outbox.put(channel, wanted)
        sizes = [len(body) + HEADER for body in wanted]
        assert sum(sizes[:count]) <= room
        assert count == len(wanted) or sum(sizes[: count + 1]) > room
        put[channel] += wanted[:count]
        assert outbox.queued(channel) + outbox.room(channel) == QUEUE
    while frames := read(outbox.take(10**6)):
        if not any(frames.values()):
            break
        for channel, some in frames.items():
            got[channel] += some
    assert got[Channel.STORE] == put[Channel.STORE][: len(got[Channel.STORE])]
    assert got[Channel.TRUNK] == put[Channel.TRUNK][: len(got[Channel.TRUNK])]
    for channel in SMALL:
        waits = len(got[channel]) < len(put[channel])
        assert waits == (outbox.queued(channel) > 0)
        assert not waits or outbox.credit(channel) <= 0


def test_3_a_channel_without_credit_waits_alone_and_goes_on_when_it_comes() -> None:
    outbox = Outbox(SMALL)
    for channel in SMALL:
        assert outbox.put(channel, [bytes(95)] * 9) == 9
    first = read(outbox.take(10**6))
    assert [len(some) for some in first.values()] == [4, 4]
    outbox.returned(Channel.STORE, 400)
    assert [len(some) for some in read(outbox.take(10**6)).values()] == [4, 0]
    outbox.returned(Channel.TRUNK, 100)
    assert [len(some) for some in read(outbox.take(10**6)).values()] == [0, 1]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(min_value=500, max_value=4 * TURN), min_size=2, max_size=2))
def test_4_two_busy_channels_share_by_bytes_whatever_the_size_of_their_frames(sizes: list[int]) -> None:
    outbox = Outbox(ROOMY)
    for channel, size in zip(ROOMY, sizes, strict=True):
        outbox.put(channel, [bytes(size)] * (60 * TURN // size))
    sent = dict.fromkeys(ROOMY, 0)
    for _ in range(8):
        for channel, some in read(outbox.take(2 * TURN)).items():
            sent[channel] += sum(len(body) + HEADER for body in some)
    assert all(outbox.queued(channel) for channel in ROOMY)
    store, trunk = sent.values()
    assert abs(store - trunk) <= 2 * TURN + max(sizes) + HEADER


def test_4_who_could_not_send_has_saved_nothing_up() -> None:
    outbox = Outbox(ROOMY)
    body = bytes(1000 - HEADER)
    outbox.put(Channel.TRUNK, [body] * 2000)
    for _ in range(5):
        outbox.take(4 * TURN)
    outbox.put(Channel.STORE, [body] * 2000)
    taken = {channel: len(some) * 1000 for channel, some in read(outbox.take(8 * TURN)).items()}
    assert abs(taken[Channel.STORE] - taken[Channel.TRUNK]) <= TURN + 1000


def test_a_take_is_about_what_was_asked_for() -> None:
    outbox = Outbox(ROOMY)
    outbox.put(Channel.TRUNK, [bytes(995)] * 5000)
    assert 10 * TURN <= size_of(outbox.take(10 * TURN)) <= 11 * TURN + 1000
    assert outbox.take(0) == []


def test_control_is_no_channel_of_the_outbox() -> None:
    outbox = Outbox(SMALL)
    with pytest.raises(LocalProtocolError):
        outbox.put(Channel.CONTROL, [b""])
    for number in (0, 7, 255):
        with pytest.raises(RemoteProtocolError, match="has none"):
            outbox.returned(number, 1)
