"""A link and its peer, one of them a raw client that says exactly what the test wants said."""

from __future__ import annotations

import asyncio
import time

import pytest
from netfleet import HEARTBEAT, Fleet, Member, RawPeer, eventually

from trunkline.core.errors import LocalProtocolError, RemoteProtocolError
from trunkline.core.ids import NodeId
from trunkline.net.channels import Channel
from trunkline.net.endpoint import Target
from trunkline.net.frames import MAX_FRAME, encode_frame
from trunkline.net.hello import Bye, Heartbeat
from trunkline.net.link import SEND_LIMIT, SILENT_HEARTBEATS, WRITE_BATCH, Link

A = NodeId("alpha", "node-1")
B = NodeId("beta", "node-1")
C = NodeId("gamma", "node-1")


async def bystander(fleet: Fleet, member: Member) -> Member:
    """A well-behaved peer, linked to `member`: what others do wrong must not touch it."""
    other = await fleet.member(C)
    other.endpoint.set_targets({"it": Target((member.address,))})
    await eventually(lambda: member.link(C) and other.link(member.identity))
    return other


async def raw_link(fleet: Fleet, member: Member) -> tuple[RawPeer, Link]:
    raw = await fleet.raw(member.address, B)
    await raw.shake_hands()
    await eventually(lambda: member.link(B))
    link = member.link(B)
    assert link is not None
    return raw, link


async def test_a_link_knows_both_hellos_and_follows_the_peers_heads(fleet: Fleet) -> None:
    member = await fleet.member(A, hello={"carries": True})
    raw, link = await raw_link(fleet, member)
    assert (link.peer, link.outgoing, link.carries, link.wire) == (B, False, True, 1)
    assert (link.mine.identity, link.hello.identity, link.heads) == (A, B, {"beta": 5})
    raw.stream.say(Heartbeat({"beta": 6, "hub": 1}))
    await eventually(lambda: link.heads == {"beta": 6, "hub": 1})


async def test_heartbeats_carry_the_newest_heads(fleet: Fleet) -> None:
    member = await fleet.member(A)
    raw, _ = await raw_link(fleet, member)
    member.hello["heads"] = {"alpha": 99}
    assert await raw.control() == Heartbeat({"alpha": 99})


async def test_4_a_peer_that_falls_silent_is_closed_after_four_heartbeats(fleet: Fleet) -> None:
    heartbeat = 0.5
    member = await fleet.member(A, heartbeat=heartbeat)
    other = await bystander(fleet, member)
    raw, link = await raw_link(fleet, member)
    began = time.monotonic()
    goodbye = await asyncio.wait_for(raw.until_closed(), 10)
    silence = time.monotonic() - began
    assert SILENT_HEARTBEATS * heartbeat * 0.9 < silence < (SILENT_HEARTBEATS + 2) * heartbeat
    assert goodbye is not None
    assert "silent" in goodbye.reason
    assert [(gone, "silent" in why) for gone, why in member.events.downs] == [(link, True)]
    assert member.link(C) is not None
    assert not other.events.downs


async def test_4_a_process_that_was_stopped_does_not_blame_its_peers(fleet: Fleet) -> None:
    member = await fleet.member(A)
    other = await bystander(fleet, member)
    beats = member.endpoint.links()[C].received_frames
    time.sleep((SILENT_HEARTBEATS + 2) * HEARTBEAT)  # noqa: ASYNC251 - the whole loop stands still
    await eventually(lambda: member.endpoint.links()[C].received_frames > beats + 2)
    assert not member.events.downs
    assert not other.events.downs


async def test_a_peer_that_says_nothing_at_all_is_given_up(fleet: Fleet) -> None:
    member = await fleet.member(A, handshake_timeout=0.3)
    raw = await fleet.raw(member.address, B)
    await asyncio.wait_for(raw.until_closed(), 5)
    assert member.endpoint.violations == {"handshake": 1}
    assert not member.events.ups


@pytest.mark.parametrize(
    ("poison", "kind"),
    [
        ((MAX_FRAME + 1).to_bytes(4, "big"), "frame"),
        (b"\x00\x00\x00\x00", "frame"),
        (b"\x00\x00\x00\x01\x77", "frame"),
        (encode_frame(Channel.CONTROL, b"\xc1"), "control message"),
        (encode_frame(Channel.STORE, b"bad"), "message"),
    ],
    ids=["oversize", "empty", "unknown channel", "malformed control", "malformed for the layer above"],
)
async def test_a_violation_costs_that_one_link(fleet: Fleet, poison: bytes, kind: str) -> None:
    member = await fleet.member(A)
    other = await bystander(fleet, member)
    raw, _ = await raw_link(fleet, member)

    def judge(link: Link, channel: Channel, body: bytes) -> None:
        if body == b"bad":
            raise RemoteProtocolError("store message of beta", "it is bad", "send a good one")

    member.events.on_message = judge
    raw.stream.write([poison])
    goodbye = await asyncio.wait_for(raw.until_closed(), 5)
    assert goodbye is not None
    assert member.endpoint.violations == {kind: 1}
    assert [link.peer for link, _ in member.events.downs] == [B]
    assert other.endpoint.links()[A].send(Channel.STORE, b"still here")
    await eventually(lambda: (C, Channel.STORE, b"still here") in member.events.messages)


async def test_a_second_hello_is_a_violation(fleet: Fleet) -> None:
    member = await fleet.member(A)
    raw, link = await raw_link(fleet, member)
    raw.stream.say(link.hello)
    await asyncio.wait_for(raw.until_closed(), 5)
    assert member.endpoint.violations == {"control message": 1}


async def test_data_before_the_handshake_is_a_violation(fleet: Fleet) -> None:
    member = await fleet.member(A)
    raw = await fleet.raw(member.address, B)
    raw.stream.write([encode_frame(Channel.TRUNK, b"entries")])
    await asyncio.wait_for(raw.until_closed(), 5)
    assert member.endpoint.violations == {"handshake": 1}
    assert not member.events.ups
    assert not member.events.messages


async def test_2_a_full_queue_says_so_and_holds_no_more_than_its_limit(fleet: Fleet) -> None:
    member = await fleet.member(A, heartbeat=2.0)
    raw, link = await raw_link(fleet, member)
    body = bytes(256 * 1024)
    taken = 0
    async with asyncio.timeout(20):
        while link.queued_bytes + len(body) <= SEND_LIMIT:  # until the peer, the kernel and the queue are all full
            taken += link.send(Channel.TRUNK, body)
            await asyncio.sleep(0)
    assert not link.send(Channel.TRUNK, body)
    assert not link.send(Channel.STORE, body)
    assert SEND_LIMIT - len(body) < link.queued_bytes <= SEND_LIMIT

    received = 0
    async with asyncio.timeout(20):
        while received < taken:
            channel, got = await raw.stream.receive_one() or (None, b"")
            assert channel is not None
            received += channel is Channel.TRUNK
            assert channel is Channel.CONTROL or got == body
    await eventually(lambda: link.queued_bytes == 0)
    assert link.send(Channel.TRUNK, body)


async def test_3_a_heartbeat_overtakes_what_is_queued(fleet: Fleet) -> None:
    member = await fleet.member(A)
    raw, link = await raw_link(fleet, member)
    taken = 0
    while link.send(Channel.TRUNK, bytes(100_000)):
        taken += 1
    beats = len(member.asked)
    await eventually(lambda: len(member.asked) > beats)
    waiting = link.queued_bytes // 100_000
    async with asyncio.timeout(20):
        before = 0
        while (frame := await raw.stream.receive_one()) is not None and frame[0] is Channel.TRUNK:
            before += 1
    assert frame is not None
    assert waiting > 10, "the network swallowed it all: nothing was queued"
    assert before <= taken - waiting + WRITE_BATCH // 100_000 + 1


async def test_5_nothing_is_delivered_after_close(fleet: Fleet) -> None:
    member = await fleet.member(A)
    member.events.on_message = lambda link, channel, body: link.close("enough")
    raw, link = await raw_link(fleet, member)
    raw.stream.write([encode_frame(Channel.TRUNK, bytes([number])) for number in range(50)])
    assert await asyncio.wait_for(raw.until_closed(), 5) == Bye("enough", "connect again")
    assert member.events.messages == [(B, Channel.TRUNK, b"\x00")]
    assert member.events.downs == [(link, "enough")]
    assert not link.send(Channel.TRUNK, b"late")


async def test_control_belongs_to_the_link(fleet: Fleet) -> None:
    member = await fleet.member(A)
    _, link = await raw_link(fleet, member)
    with pytest.raises(LocalProtocolError):
        link.send(Channel.CONTROL, b"")


async def test_an_unknown_newer_version_is_told_what_we_speak(fleet: Fleet) -> None:
    member = await fleet.member(A)
    raw = await fleet.raw(member.address, B)
    goodbye = await asyncio.wait_for(raw.refused(wire=9, oldest=8), 5)
    assert "speaks 1 to 1" in goodbye.reason
    assert member.endpoint.violations == {"wire version": 1}
