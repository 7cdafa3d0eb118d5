"""A link and its peer, which mostly is a raw client that says exactly what the test wants said.

The numbers are the rules of `trunkline.net.link`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import msgspec
import pytest
from netfleet import HEARTBEAT, Fleet, Member, RawPeer, eventually

from trunkline.core.errors import LocalProtocolError, RemoteProtocolError
from trunkline.core.ids import NodeId
from trunkline.net.channels import DATA, MAX_FRAME, Channel
from trunkline.net.endpoint import Target
from trunkline.net.frames import encode_frame
from trunkline.net.hello import Bye, Control, Credit, Heartbeat, encode_control
from trunkline.net.link import WRITE_BATCH, Link
from trunkline.net.vigil import SILENT_HEARTBEATS, SLOWEST

A = NodeId("alpha", "node-1")
B = NodeId("beta", "node-1")
C = NodeId("gamma", "node-1")
HEADER = len(encode_frame(Channel.STORE, b""))


def control(message: Control) -> bytes:
    return encode_frame(Channel.CONTROL, encode_control(message))


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


async def test_5_a_peer_that_falls_silent_is_closed_after_four_heartbeats(fleet: Fleet) -> None:
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


async def test_5_a_process_that_was_stopped_does_not_blame_its_peers(fleet: Fleet) -> None:
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
        (control(Credit(Channel.TRUNK, 1)), "credit"),
        (control(Credit(Channel.CONTROL, 1)), "credit"),
        (control(Credit(77, 1)), "credit"),
        (
            encode_frame(Channel.CONTROL, msgspec.msgpack.encode({"type": "credit", "channel": 2, "size": -1})),
            "control message",
        ),
        (encode_frame(Channel.STORE, bytes(100_000)) * 20, "credit"),
    ],
    ids=[
        "oversize",
        "empty",
        "unknown channel",
        "malformed control",
        "malformed for the layer above",
        "credit for nothing",
        "credit for control",
        "credit for an unknown channel",
        "negative credit",
        "more than a window",
    ],
)
async def test_a_violation_costs_that_one_link(fleet: Fleet, poison: bytes, kind: str) -> None:
    member = await fleet.member(A)
    other = await bystander(fleet, member)
    raw, _ = await raw_link(fleet, member)

    def judge(link: Link, channel: Channel, body: bytes) -> None:
        if body == b"bad":
            raise RemoteProtocolError("store message of beta", "it is bad", "send a good one")

    member.events.on_message = judge
    member.endpoint.links()[B].pause(Channel.STORE)
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


@pytest.mark.parametrize("polite", [True, False])
async def test_a_stream_that_ends_inside_a_frame_is_a_violation(fleet: Fleet, polite: bool) -> None:
    member = await fleet.member(A)
    raw, link = await raw_link(fleet, member)
    cut_off, before = encode_frame(Channel.STORE, bytes(1000))[:500], link.received_bytes
    raw.stream.write([cut_off])
    await eventually(lambda: link.received_bytes == before + len(cut_off))
    await raw.stream.close(Bye("I stop", "none") if polite else None)
    await eventually(lambda: member.events.downs)
    assert "ended inside a frame of 1005 bytes" in member.events.downs[0][1]
    assert member.endpoint.violations == {"frame": 1}


async def test_5_a_peer_that_drips_a_frame_byte_by_byte_is_closed(fleet: Fleet) -> None:
    member = await fleet.member(A, heartbeat=0.1)
    other = await bystander(fleet, member)
    raw, link = await raw_link(fleet, member)
    frame = iter(encode_frame(Channel.STORE, bytes(10_000)))
    begun = time.monotonic()
    while not member.events.downs:
        raw.stream.write([bytes([next(frame)])])
        await asyncio.sleep(0.01)
    assert SILENT_HEARTBEATS * 0.1 < time.monotonic() - begun < 5
    assert [(gone, "not whole" in why) for gone, why in member.events.downs] == [(link, True)]
    assert member.endpoint.violations == {"frame": 1}
    assert isinstance(await asyncio.wait_for(raw.until_closed(), 5), Bye)
    assert not other.events.downs


async def test_5_a_large_frame_over_a_slow_path_is_waited_for(fleet: Fleet) -> None:
    heartbeat = 0.05
    member = await fleet.member(A, heartbeat=heartbeat)
    raw, _ = await raw_link(fleet, member)
    frame = encode_frame(Channel.TRUNK, bytes(SLOWEST))
    pieces = 3 * SILENT_HEARTBEATS
    for at in range(0, len(frame), len(frame) // pieces):
        raw.stream.write([frame[at : at + len(frame) // pieces]])
        await asyncio.sleep(heartbeat)
    await eventually(lambda: member.events.messages == [(B, Channel.TRUNK, bytes(SLOWEST))])
    assert not member.events.downs


async def test_2_a_full_queue_says_so_for_its_channel_alone_and_holds_no_more_than_its_bound(fleet: Fleet) -> None:
    """The raw peer returns no credit: a window leaves, the rest is queued."""
    member = await fleet.member(A, heartbeat=2.0)
    raw, link = await raw_link(fleet, member)
    body, bounds = bytes(256 * 1024), DATA[Channel.TRUNK]
    taken = await fill(link, Channel.TRUNK, body)
    assert bounds.queue - len(body) - HEADER < link.queued(Channel.TRUNK) <= bounds.queue
    assert link.room(Channel.TRUNK) == bounds.queue - link.queued(Channel.TRUNK)
    assert taken * (len(body) + HEADER) == link.queued(Channel.TRUNK) + sent_on_credit(bounds.window, len(body) + HEADER)
    assert link.send(Channel.STORE, body), "another channel has its own queue"

    received = [0, 0]
    async with asyncio.timeout(20):
        while received != [taken, 1]:
            channel, got = await raw.stream.receive_one() or (Channel.CONTROL, b"closed")
            if channel is not Channel.CONTROL:
                assert got == body
                received[channel is Channel.STORE] += 1
                raw.stream.say(Credit(channel, len(body) + HEADER))
    assert link.queued_bytes == 0


def sent_on_credit(window: int, size: int) -> int:
    """Frames go while credit is left: the last one may overdraw it."""
    return -(-window // size) * size


async def fill(link: Link, channel: Channel, body: bytes) -> int:
    """Sends until the queue stays full; how many were taken."""
    taken = 0
    async with asyncio.timeout(20):
        while True:
            while link.send(channel, body):
                taken += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(link.wait_room(channel, len(body) + HEADER), 0.2)
                continue
            return taken


async def test_2_who_waits_for_room_goes_on_when_the_peer_took_some(fleet: Fleet) -> None:
    member = await fleet.member(A)
    raw, link = await raw_link(fleet, member)
    body = bytes(1024 * 1024)
    await fill(link, Channel.TRUNK, body)
    waiting = asyncio.create_task(link.wait_room(Channel.TRUNK, len(body) + HEADER))
    for_ever = asyncio.create_task(link.wait_room(Channel.TRUNK, 10**9))
    raw.stream.say(Credit(Channel.TRUNK, len(body) + HEADER))
    assert await asyncio.wait_for(waiting, 5)
    assert link.send(Channel.TRUNK, body)
    assert not for_ever.done()
    link.close("no longer")
    assert not await asyncio.wait_for(for_ever, 5)
    assert not await link.wait_room(Channel.TRUNK)


async def test_2_many_at_once_are_taken_from_the_front_on(fleet: Fleet) -> None:
    member = await fleet.member(A)
    _, link = await raw_link(fleet, member)
    bodies = [bytes([number]) * (MAX_FRAME - 10) for number in range(4)]
    assert link.send_many(Channel.TRUNK, bodies) == 2
    assert link.send_many(Channel.STORE, bodies[:1]) == 1


async def pair(fleet: Fleet) -> tuple[Member, Member, Link, Link]:
    one, other = await fleet.member(A), await fleet.member(B)
    one.endpoint.set_targets({"b": Target((other.address,))})
    await eventually(lambda: one.link(B) and other.link(A))
    return one, other, one.endpoint.links()[B], other.endpoint.links()[A]


async def test_4_a_paused_channel_stands_still_and_the_others_go_on(fleet: Fleet) -> None:
    one, other, there, here = await pair(fleet)
    here.pause(Channel.TRUNK)
    body, bounds = bytes(64 * 1024), DATA[Channel.TRUNK]
    taken = await fill(there, Channel.TRUNK, body)
    on_credit = sent_on_credit(bounds.window, len(body) + HEADER) // (len(body) + HEADER)

    def came(channel: Channel) -> list[bytes]:
        return [got for _, kind, got in other.events.messages if kind is channel]

    await eventually(lambda: len(came(Channel.TRUNK)) == on_credit)
    for number in range(100):  # far more than STORE's window
        assert await there.wait_room(Channel.STORE, 2 * len(body))
        assert there.send(Channel.STORE, bytes([number]) + body)
    await eventually(lambda: len(came(Channel.STORE)) == 100)
    assert [got[0] for got in came(Channel.STORE)] == list(range(100))
    assert here.send(Channel.TRUNK, b"the other way is open")
    await eventually(lambda: (B, Channel.TRUNK, b"the other way is open") in one.events.messages)
    assert len(came(Channel.TRUNK)) == on_credit
    here.resume(Channel.TRUNK)
    await eventually(lambda: len(came(Channel.TRUNK)) == taken)
    assert not there.queued_bytes
    assert not one.endpoint.violations + other.endpoint.violations


async def test_4_both_directions_and_channels_at_full_speed_lose_nothing(fleet: Fleet) -> None:
    """Many windows each way, of frames of all sizes; credit comes back all the time."""
    one, other, there, here = await pair(fleet)
    bodies = [number.to_bytes(3, "big") + bytes(number * 37 % 5000) for number in range(3000)]

    async def pump(link: Link, channel: Channel) -> None:
        rest = bodies
        while rest := rest[link.send_many(channel, rest[:200]) :]:
            assert await link.wait_room(channel, DATA[channel].queue // 2)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as pumps:
        for link in (there, here):
            for channel in DATA:
                pumps.create_task(pump(link, channel))
    for member in (one, other):
        await eventually(lambda m=member: len(m.events.messages) == len(DATA) * len(bodies))
        for channel in DATA:
            assert [got for _, kind, got in member.events.messages if kind is channel] == bodies
        assert not member.endpoint.violations


async def test_a_handler_gets_its_channel_many_at_a_time(fleet: Fleet) -> None:
    member = await fleet.member(A)
    raw, link = await raw_link(fleet, member)
    runs: list[list[bytes]] = []
    link.handle(Channel.TRUNK, runs.append)
    bodies = [bytes([number]) for number in range(100)]
    raw.stream.write([encode_frame(Channel.TRUNK, body) for body in bodies] + [encode_frame(Channel.STORE, b"last")])
    await eventually(lambda: member.events.messages == [(B, Channel.STORE, b"last")])
    assert [body for run in runs for body in run] == bodies
    assert len(runs) < 10


async def test_3_a_heartbeat_overtakes_what_is_queued(fleet: Fleet) -> None:
    member = await fleet.member(A)
    raw, link = await raw_link(fleet, member)
    taken = 0
    while link.send(Channel.TRUNK, bytes(100_000)):
        taken += 1
    beats = len(member.beats)
    await eventually(lambda: len(member.beats) > beats)
    waiting = link.queued_bytes // 100_000
    async with asyncio.timeout(20):
        before = 0
        while (frame := await raw.stream.receive_one()) is not None and frame[0] is Channel.TRUNK:
            before += 1
    assert frame is not None
    assert waiting > 10, "the network swallowed it all: nothing was queued"
    assert before <= taken - waiting + WRITE_BATCH // 100_000 + 1


async def test_6_nothing_is_delivered_after_close(fleet: Fleet) -> None:
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
    for use in (lambda channel: link.send(channel, b""), link.pause, link.resume, link.room, link.queued):
        with pytest.raises(LocalProtocolError):
            use(Channel.CONTROL)
    with pytest.raises(LocalProtocolError):
        link.handle(Channel.CONTROL, print)


async def test_an_unknown_newer_version_is_told_what_we_speak(fleet: Fleet) -> None:
    member = await fleet.member(A)
    raw = await fleet.raw(member.address, B)
    goodbye = await asyncio.wait_for(raw.refused(wire=9, oldest=8), 5)
    assert "speaks 1 to 1" in goodbye.reason
    assert member.endpoint.violations == {"wire version": 1}
