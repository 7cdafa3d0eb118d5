"""Each channel has a queue and credit of its own, over real sockets."""

from __future__ import annotations

import itertools

import pytest
from netfleet import Fleet, Member, eventually

from trunkline.core.ids import NodeId
from trunkline.net.channels import DATA, LARGEST, Channel
from trunkline.net.endpoint import Target
from trunkline.net.frames import encode_frame
from trunkline.net.link import Link

A, B = NodeId("alpha", "node-1"), NodeId("beta", "node-1")
BODY = bytes(64 * 1024)
SIZE = len(encode_frame(Channel.TRUNK, BODY))
SIGNALS = (Channel.TOPOLOGY, Channel.SIGNAL)


def test_every_channel_has_a_limit_and_every_queue_takes_two_of_the_largest_frames() -> None:
    assert set(LARGEST) == set(Channel)
    assert set(DATA) == set(Channel) - {Channel.CONTROL}
    assert [channel for channel, bounds in DATA.items() if bounds.queue < 2 * LARGEST[channel]] == []


async def pair(fleet: Fleet) -> tuple[Member, Link, Link]:
    """The receiver, and the link at the sender and at the receiver."""
    one, other = await fleet.member(A), await fleet.member(B)
    one.endpoint.set_targets({"b": Target((other.address,))})
    await eventually(lambda: one.link(B) and other.link(A))
    return other, one.endpoint.links()[B], other.endpoint.links()[A]


def came(member: Member, channel: Channel) -> list[int]:
    """The numbers of the messages."""
    return [int.from_bytes(body[:2], "big") for _, kind, body in member.events.messages if kind is channel]


def numbered(number: int) -> bytes:
    return number.to_bytes(2, "big") + BODY[2:]


def on_credit(channel: Channel) -> int:
    """How many messages reach a receiver that has paused the channel."""
    return -(-DATA[channel].window // SIZE)


@pytest.mark.parametrize("stalled", DATA)
async def test_h15_while_one_channel_waits_for_credit_all_others_flow(fleet: Fleet, stalled: Channel) -> None:
    """Also beyond their windows: it is not only what may be on its way."""
    receiver, there, here = await pair(fleet)
    here.pause(stalled)
    for number in range(on_credit(stalled) + 10):
        assert there.send(stalled, numbered(number))
    await eventually(lambda: there.queued(stalled) == 10 * SIZE)
    others = [channel for channel in DATA if channel is not stalled]
    count = 2 * max(DATA[channel].window for channel in others) // SIZE
    for number, channel in itertools.product(range(count), others):
        assert there.send(channel, numbered(number))
    await eventually(lambda: all(came(receiver, channel) == list(range(count)) for channel in others))
    assert came(receiver, stalled) == list(range(on_credit(stalled)))
    here.resume(stalled)
    await eventually(lambda: came(receiver, stalled) == list(range(on_credit(stalled) + 10)))


@pytest.mark.parametrize("channel", SIGNALS)
async def test_2_a_full_queue_of_signals_or_rows_says_so_and_loses_nothing_it_took(fleet: Fleet, channel: Channel) -> None:
    receiver, there, here = await pair(fleet)
    here.pause(channel)
    taken = on_credit(channel) + DATA[channel].queue // SIZE
    for number in range(taken):
        assert await there.wait_room(channel, SIZE)
        assert there.send(channel, numbered(number))
    assert not there.send(channel, numbered(taken))
    assert 0 <= DATA[channel].queue - there.queued(channel) < SIZE
    assert all(there.send(other, b"room") for other in DATA if other is not channel)
    here.resume(channel)
    await eventually(lambda: came(receiver, channel) == list(range(taken)))
    assert not there.queued_bytes


async def test_h15_a_signal_overtakes_records_that_are_queued(fleet: Fleet) -> None:
    receiver, there, _ = await pair(fleet)
    for number in range(DATA[Channel.TRUNK].queue // SIZE):
        assert there.send(Channel.TRUNK, numbered(number))
    assert there.send(Channel.SIGNAL, b"stop")
    await eventually(lambda: came(receiver, Channel.SIGNAL))
    kinds = [kind for _, kind, _ in receiver.events.messages]
    assert kinds.index(Channel.SIGNAL) * SIZE < 2 * 256 * 1024, "at most the write before it and its own"
