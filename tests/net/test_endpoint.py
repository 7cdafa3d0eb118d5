"""Endpoints on loopback; the numbers are the rules of `trunkline.net.endpoint`."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import pytest
from netfleet import Fleet, Member, eventually, exchange, linked, make_hello, to
from structlog.testing import capture_logs

from trunkline.core.errors import Invalid
from trunkline.core.ids import NodeId
from trunkline.net.channels import Channel
from trunkline.net.endpoint import Target
from trunkline.net.frames import encode_frame
from trunkline.net.hello import Bye, Heartbeat, Hello
from trunkline.net.stream import dial_stream

A = NodeId("alpha", "node-1")
B = NodeId("beta", "node-1")
C = NodeId("gamma", "node-1")
NOWHERE = "127.0.0.1:1"


def alternates(member: Member) -> bool:
    """Every link that went down had come up before, and at most one is up now."""
    downs = [link for link, _ in member.events.downs]
    return len(set(map(id, downs))) == len(downs) and all(link in member.events.ups for link in downs)


async def test_two_endpoints_exchange_messages_both_ways_in_order(fleet: Fleet) -> None:
    one, other = await fleet.member(A), await fleet.member(B)
    one.endpoint.set_targets(to(other))
    await linked(one, other)
    for sender, receiver in ((one, other), (other, one)):
        link = sender.endpoint.links()[receiver.identity]
        assert all(link.send(Channel.STORE, number.to_bytes(2, "big")) for number in range(500))
    expected = [number.to_bytes(2, "big") for number in range(500)]
    await eventually(lambda: len(one.events.messages) == len(other.events.messages) == 500)
    assert [body for _, _, body in one.events.messages] == expected
    assert [body for _, _, body in other.events.messages] == expected
    there, here = one.endpoint.links()[B], other.endpoint.links()[A]
    assert (there.outgoing, here.outgoing) == (True, False)
    await eventually(lambda: there.sent_frames == here.received_frames and there.sent_bytes == here.received_bytes)


async def test_h25_simultaneous_dials_leave_exactly_one_link(fleet: Fleet) -> None:
    """Both links come up at one side or both in most rounds; what was sent on the one that goes is lost with it."""
    one, other = await fleet.member(A), await fleet.member(B)
    to_one, to_other = await fleet.wire(one, jitter=0.02), await fleet.wire(other, jitter=0.02)
    for round_ in range(12):
        one.endpoint.set_targets({"b": Target((to_other.address,))})
        other.endpoint.set_targets({"a": Target((to_one.address,))})
        await eventually(lambda word=bytes([round_]): heard(one, other, word) and heard(other, one, word))
        await eventually(lambda: paired(one, other))
        for member in (one, other):
            assert len(member.events.ups) - len(member.events.downs) == 1
            assert alternates(member)
            member.endpoint.set_targets({})
        await eventually(lambda: all_closed(one, other))
    assert max(len(one.events.ups), len(other.events.ups)) > 12, "no round had two links up"
    assert not one.endpoint.violations
    assert not other.endpoint.violations


def heard(sender: Member, receiver: Member, word: bytes) -> bool:
    """Sends again on every call, on the link of that moment, until the receiver has it."""
    link = sender.link(receiver.identity)
    if link is not None:
        link.send(Channel.TRUNK, word)
    return (sender.identity, Channel.TRUNK, word) in receiver.events.messages


def paired(one: Member, other: Member) -> bool:
    there, here = one.link(other.identity), other.link(one.identity)
    return there is not None and here is not None and there.outgoing is not here.outgoing


def all_closed(*members: Member) -> bool:
    links = [link for member in members for link in member.endpoint.links().values()]
    for link in links:
        link.close("next round")
    return not links


async def test_h25_of_equal_incarnations_the_link_of_the_smaller_dialler_stays(fleet: Fleet) -> None:
    one, other = await fleet.member(A), await fleet.member(B)
    one.endpoint.set_targets(to(other))
    await linked(one, other)
    second = await fleet.raw(one.address, B)
    goodbye = await asyncio.wait_for(second.refused(), 5)
    assert "another link" in goodbye.reason
    assert (len(one.events.ups), one.events.downs) == (1, [])
    await exchange(one, other, b"undisturbed")


async def test_h25_the_half_open_link_of_a_dead_incarnation_does_not_block_the_new_one(fleet: Fleet) -> None:
    one = await fleet.member(A, heartbeat=30.0)
    dead = await fleet.raw(one.address, B)
    await dead.shake_hands(incarnation=1)
    await eventually(lambda: one.link(B))
    old = one.link(B)
    reborn = await fleet.raw(one.address, B)
    await reborn.shake_hands(incarnation=2)
    await eventually(lambda: one.link(B) is not old and one.link(B) is not None)
    assert [link for link, _ in one.events.downs] == [old]
    assert one.endpoint.links()[B].hello.incarnation == 2
    assert isinstance(await asyncio.wait_for(dead.until_closed(), 5), Bye)


async def test_h25_a_higher_incarnation_wins_also_against_the_smaller_dialler(fleet: Fleet) -> None:
    one, other = await fleet.member(A, heartbeat=30.0), await fleet.member(B, heartbeat=30.0)
    one.endpoint.set_targets(to(other))
    await linked(one, other)
    one.endpoint.set_targets({})
    reborn = await fleet.raw(one.address, B)
    await reborn.shake_hands(incarnation=2)
    await eventually(lambda: len(one.events.ups) == 2)
    assert one.endpoint.links()[B].hello.incarnation == 2
    await eventually(lambda: len(other.events.downs) == 1)


async def test_h25_of_two_links_accepted_at_once_the_higher_incarnation_stays(fleet: Fleet) -> None:
    """Both HELLOs are accepted before either link is up; the older one completes last."""
    one = await fleet.member(A)
    older, newer = await fleet.raw(one.address, B), await fleet.raw(one.address, B)
    for incarnation, raw in enumerate((older, newer), start=1):
        raw.stream.say(make_hello(B, incarnation=incarnation))
        assert isinstance(await raw.control(), Hello)
        assert isinstance(await raw.control(), Heartbeat)
    newer.stream.say(Heartbeat({}))
    await eventually(lambda: one.link(B))
    older.stream.say(Heartbeat({}))
    assert isinstance(await asyncio.wait_for(older.until_closed(), 5), Bye)
    assert [link.hello.incarnation for link in one.events.ups] == [2]


@pytest.mark.parametrize("reachable", [A, B])
async def test_h25_when_only_one_side_can_reach_the_other_its_link_stays(fleet: Fleet, reachable: NodeId) -> None:
    """The other side's own dials end in a network that swallows all: they never cost the link that works."""
    unreachable = B if reachable == A else A
    one, other = await fleet.member(reachable, handshake_timeout=0.5), await fleet.member(unreachable)
    swallowing = await fleet.wire(other)
    swallowing.cut()
    one.endpoint.set_targets({"swallowed": Target((swallowing.address,))})
    await eventually(lambda: swallowing.connections == 1)
    other.endpoint.set_targets(to(one))
    await linked(one, other)
    await other_attempts(fleet, one, 3)
    await exchange(one, other, b"the one link")
    assert len(one.events.ups) == len(other.events.ups) == 1


@pytest.mark.parametrize(("smaller_dials", "stays"), [(True, "dialled"), (False, "accepted")])
async def test_h25_a_dial_that_hangs_half_way_keeps_no_other_link_away(fleet: Fleet, smaller_dials: bool, stays: str) -> None:
    """HELLO came and the rest is late: the peer's own link is up at once. When both are, the smaller dialler's stays."""
    here, there = (A, B) if smaller_dials else (B, A)
    member = await fleet.member(here, heartbeat=30.0)
    address, accepted = await fleet.raw_listener(there)
    member.endpoint.set_targets({"hangs": Target((address,))})
    hanging = await accepted
    hanging.stream.say(make_hello(there))
    assert isinstance(await hanging.control(), Hello)
    assert isinstance(await hanging.control(), Heartbeat), "it was accepted, and only the peer's word is missing"
    other_way = await fleet.raw(member.address, there)
    await other_way.shake_hands()
    await eventually(lambda: member.link(there))
    hanging.stream.say(Heartbeat({}))
    loser = other_way if stays == "dialled" else hanging
    assert isinstance(await asyncio.wait_for(loser.until_closed(), 5), Bye)
    await eventually(lambda: member.endpoint.links()[there].outgoing is (stays == "dialled"))
    assert [link.outgoing for link in member.events.ups] == ([False, True] if stays == "dialled" else [False])
    assert alternates(member)


async def other_attempts(fleet: Fleet, member: Member, count: int) -> None:
    """Waits while `member` dials anew, in vain, that many times."""
    swallowing = [await fleet.wire(member) for _ in range(2)]
    for wire in swallowing:
        wire.cut()
    for number in range(count):
        wire = swallowing[number % 2]
        before = wire.connections
        member.endpoint.set_targets({"swallowed": Target((wire.address,))})
        await eventually(lambda wire=wire, before=before: wire.connections > before)


async def test_reconnects_after_the_peer_stops_and_restarts_on_the_same_port(fleet: Fleet) -> None:
    one, other = await fleet.member(A), await fleet.member(B)
    one.endpoint.set_targets(to(other))
    await linked(one, other)
    await other.endpoint.stop()
    await eventually(lambda: not one.endpoint.links())
    assert "the node stops" in one.events.downs[0][1]
    again = await fleet.member(B, listen=other.address, hello={"incarnation": 2})
    assert again.address == other.address
    await linked(one, again)
    await exchange(one, again, b"back")
    assert alternates(one)


async def test_h25_a_dead_wire_is_noticed_by_both_ends_and_mended(fleet: Fleet) -> None:
    one, other = await fleet.member(A), await fleet.member(B)
    wire = await fleet.wire(other)
    one.endpoint.set_targets({"b": Target((wire.address,))})
    await linked(one, other)
    wire.cut()
    await eventually(lambda: not one.endpoint.links() and not other.endpoint.links())
    assert all("silent" in why for _, why in one.events.downs + other.events.downs)
    wire.heal()
    await linked(one, other)
    await exchange(one, other, b"mended")


# -- identity


async def client_refused(address: str, context: ssl.SSLContext) -> None:
    """With TLS 1.3 a client learns of its refusal on the first read, or already while connecting."""
    with contextlib.suppress(OSError):
        stream = await dial_stream(address, context)
        try:
            assert await stream.receive() == []
        finally:
            await stream.abort()


def context(fleet: Fleet, certified_by: str | None) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.load_verify_locations(fleet.authority.tls(B).ca)
    if certified_by is not None:
        tls = getattr(fleet, certified_by).tls(B)
        made.load_cert_chain(tls.certificate, tls.key)
    return made


@pytest.mark.parametrize("certified_by", [None, "stranger"])
async def test_3_a_client_without_our_authoritys_certificate_is_refused(fleet: Fleet, certified_by: str | None) -> None:
    one, friend = await fleet.member(A), await fleet.member(C)
    friend.endpoint.set_targets(to(one))
    await linked(one, friend)
    await asyncio.wait_for(client_refused(one.address, context(fleet, certified_by)), 10)
    await eventually(lambda: one.endpoint.violations == {"tls": 1})
    await exchange(one, friend, b"undisturbed")
    assert [link.peer for link in one.events.ups] == [C]


async def test_3_a_server_of_another_authority_is_refused_by_the_client(fleet: Fleet) -> None:
    one = await fleet.member(A)
    impostor = await fleet.member(B, tls=fleet.stranger.tls(B))
    one.endpoint.set_targets(to(impostor))
    await eventually(lambda: one.endpoint.violations["tls"] >= 1)
    assert not one.events.ups
    assert not impostor.events.ups


async def test_3_a_forged_name_in_hello_is_refused(fleet: Fleet) -> None:
    one, friend = await fleet.member(A), await fleet.member(C)
    friend.endpoint.set_targets(to(one))
    await linked(one, friend)
    forger = await fleet.raw(one.address, B)
    goodbye = await asyncio.wait_for(forger.refused(site="gamma"), 5)
    assert "beta/node-1" in goodbye.reason
    assert one.endpoint.violations == {"identity": 1}
    assert [link.peer for link in one.events.ups] == [C]
    await exchange(one, friend, b"undisturbed")


async def test_3_a_server_whose_hello_names_another_site_than_its_certificate_is_refused(fleet: Fleet) -> None:
    one, forger = await fleet.member(A), await fleet.member(B, hello={"site": "gamma"})
    one.endpoint.set_targets(to(forger))
    await eventually(lambda: one.endpoint.violations["identity"] >= 1)
    assert not one.events.ups
    assert not forger.events.ups


async def test_3_the_same_breach_is_counted_each_time_and_logged_once(fleet: Fleet) -> None:
    one = await fleet.member(A)
    with capture_logs() as logs:
        for _ in range(3):
            forger = await fleet.raw(one.address, B)
            await asyncio.wait_for(forger.refused(site="gamma"), 5)
    assert one.endpoint.violations == {"identity": 3}
    levels = [entry["log_level"] for entry in logs if entry["event"].startswith("protocol violation")]
    assert levels == ["warning", "debug", "debug"]


async def test_3_plain_text_is_refused(fleet: Fleet) -> None:
    one = await fleet.member(A)
    host, port = one.address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(encode_frame(Channel.STORE, b"no TLS"))
    with contextlib.suppress(ConnectionResetError):
        while await asyncio.wait_for(reader.read(1000), 5):
            pass
    writer.transport.abort()
    await eventually(lambda: one.endpoint.violations == {"tls": 1})


async def test_hello_is_asked_for_the_certified_peer_before_anything_is_received(fleet: Fleet) -> None:
    one = await fleet.member(A)
    raw = await fleet.raw(one.address, B)
    theirs = await asyncio.wait_for(raw.control(), 5)
    assert isinstance(theirs, Hello)
    assert theirs.identity == A
    assert one.asked == [B]


# -- stopping


async def test_4_stop_in_the_middle_of_everything_leaves_nothing(fleet: Fleet) -> None:
    """The fixture fails on a task that is left, pytest on a socket that is left."""
    one, other = await fleet.member(A), await fleet.member(B)
    host, port = one.address.rsplit(":", 1)
    _, silent = await asyncio.open_connection(host, int(port))
    half = await fleet.raw(one.address, C)
    one.endpoint.set_targets({**to(other), "nowhere": Target((NOWHERE,))})
    await linked(one, other)
    other.endpoint.set_targets({"again": Target((one.address,))})
    await asyncio.wait_for(one.endpoint.stop(), 5)
    await asyncio.wait_for(half.until_closed(), 5)
    assert not one.endpoint.links()
    assert len(one.events.downs) == len(one.events.ups)
    silent.transport.abort()
    one.endpoint.set_targets(to(other))
    assert not any(task.get_name() == f"dial to {B}" for task in asyncio.all_tasks())


async def test_a_taken_address_is_refused_with_the_next_step(fleet: Fleet) -> None:
    one = await fleet.member(A)
    with pytest.raises(Invalid, match="choose a free address"):
        await fleet.member(B, listen=one.address)
