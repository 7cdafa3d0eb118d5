"""Hostile input closes that one connection with a typed error, counted, and does nothing else.

Every attack is judged twice: by the link and by `mutations.opinion`. They must agree on every delivered message and on the
kind of the violation.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import MUTATIONS, NOTES, control, mutated_frame, opinion
from netfleet import Fleet, Member, eventually, exchange, linked, make_hello, to
from structlog.testing import capture_logs

from trunkline.core.clock import SystemClock
from trunkline.core.errors import RemoteProtocolError
from trunkline.core.ids import NodeId
from trunkline.net.channels import DATA, Channel
from trunkline.net.frames import FrameDecoder, encode_frame
from trunkline.net.hello import Bye, Credit, Heartbeat, decode_control, encode_control
from trunkline.net.link import Link, Pace
from trunkline.net.stream import Stream

A = NodeId("alpha", "node-1")
B = NodeId("beta", "node-1")
C = NodeId("gamma", "node-1")
HELLO = make_hello(B)
SENT = 1005  # on each channel by a link under attack, so that some of the credit it gets back is right
randoms = st.randoms(use_true_random=False)
patient = settings(deadline=None, max_examples=60)


def attack_stream(random: Random) -> bytes:
    return b"".join(mutated_frame(random, HELLO) for _ in range(random.randrange(1, 12)))


# -- the pure parts


@patient
@given(randoms)
def test_the_decoder_agrees_with_the_second_opinion_in_whatever_pieces_the_stream_comes(random: Random) -> None:
    stream = attack_stream(random)
    decoder, got, at = FrameDecoder(), [], 0
    while at < len(stream):
        size = random.randrange(1, 60)
        got += [(run.channel, body) for run in decoder.feed(stream[at : at + size]) for body in run.bodies]
        at += size
    whole = b"".join(encode_frame(channel, body) for channel, body in got)
    assert stream.startswith(whole)
    broken = opinion(stream[len(whole) :]).violation
    assert broken == ("frame" if decoder.refused or decoder.unfinished else None)


@patient
@given(randoms, st.sampled_from(MUTATIONS))
def test_a_mutated_control_message_is_one_of_ours_or_the_peers_fault(random: Random, mutate: object) -> None:
    assert callable(mutate)
    for message in (HELLO, Heartbeat({"alpha": 7}), Credit(2, 300), Bye("why", "what next")):
        body = mutate(random, encode_frame(Channel.CONTROL, encode_control(message)))[5:]
        try:
            again = decode_control(body)
        except RemoteProtocolError:
            continue
        assert decode_control(encode_control(again)) == again


# -- a real link over a socket, without TLS: many attacks per second


class Victim:
    """Links under attack, one after the other."""

    def __init__(self) -> None:
        self.delivered: list[tuple[Channel, bytes]] = []
        self.kinds: Counter[str] = Counter()
        self.frames = 0

    def deliver(self, link: Link, channel: Channel, body: bytes) -> None:
        self.delivered.append((channel, body))
        NOTES.decode(body)

    async def suffer(self, stream: bytes) -> None:
        expected = opinion(stream, SENT)
        self.delivered = []
        violation = await self._attack(stream)
        assert (violation, self.delivered) == (expected.violation, expected.delivered)
        self.kinds[violation or "none"] += 1
        self.frames += expected.frames + (expected.violation is not None)

    async def _attack(self, data: bytes) -> str | None:
        near, far = socket.socketpair()
        with far:
            near.setblocking(False)
            loop = asyncio.get_running_loop()
            _, stream = await loop.create_connection(Stream, sock=near)
            link = Link(stream, B, make_hello(A), HELLO, False, Pace(30.0, SystemClock(), dict))
            for channel in DATA:
                link.send(channel, bytes(SENT - 5))
            running = asyncio.create_task(link.run(self.deliver))
            while link.queued_bytes:  # noqa: ASYNC110 - one turn of the loop
                await asyncio.sleep(0)
            far.sendall(data)
            far.shutdown(socket.SHUT_WR)
            try:
                async with asyncio.timeout(10):
                    await running
            except RemoteProtocolError as error:
                return error.what
            finally:
                await link.finish(None)
        return None


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def batter(frames: int, random: Random) -> Victim:
    victim = Victim()
    before = open_files()
    settled = 0
    while victim.frames < frames:
        await victim.suffer(attack_stream(random))
        if not settled and victim.frames > frames // 10:
            settled = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert open_files() == before
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - settled < 64 * 1024, "kilobytes"
    assert {"frame", "control message", "credit", "note", "none"} <= victim.kinds.keys()
    return victim


async def test_a_battered_link_delivers_what_is_right_and_names_what_is_wrong() -> None:
    await batter(1500, Random(7))


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_a_million_mutated_frames() -> None:
    victim = await batter(1_000_000, Random(os.urandom(8)))
    print(f"{victim.frames} frames, attacks by how they ended: {dict(victim.kinds)}")  # noqa: T201


@patient
@given(randoms)
def test_an_attack_that_hypothesis_can_shrink(random: Random) -> None:
    asyncio.run(Victim().suffer(attack_stream(random)))


# -- a whole endpoint over TLS, with a hostile peer that has a certificate


async def strike(fleet: Fleet, member: Member, random: Random) -> None:
    """One hostile connection: after the handshake, or instead of it."""
    counted, delivered, downs = sum(member.endpoint.violations.values()), len(member.events.messages), len(member.events.downs)
    foe = await fleet.raw(member.address, B)
    if random.randrange(4) == 0:
        foe.stream.write([mutated_frame(random, HELLO)])
        await foe.stream.close(Bye("", ""))
        await eventually(lambda: member.link(B) is None)
        assert len(member.events.messages) == delivered
        return
    await foe.shake_hands()
    await eventually(lambda: member.link(B))
    data = attack_stream(random)
    expected = opinion(data + control(Bye("", "")))
    foe.stream.write([data])
    await foe.stream.close(Bye("", ""))
    await eventually(lambda: len(member.events.downs) == downs + 1)
    assert member.events.messages[delivered:] == [(B, channel, body) for channel, body in expected.delivered]
    assert sum(member.endpoint.violations.values()) == counted + (expected.violation is not None)


def judge(link: Link, channel: Channel, body: bytes) -> None:
    if link.peer == B:
        NOTES.decode(body)


async def besiege(folder: Path, strikes: int, random: Random) -> None:
    fleet = Fleet(folder)
    try:
        member, friend = await fleet.member(A), await fleet.member(C)
        member.events.on_message = judge
        friend.endpoint.set_targets(to(member))
        await linked(friend, member)
        link = member.link(C)
        for number in range(strikes):
            await strike(fleet, member, random)
            await exchange(member, friend, b"still here %d" % number)
        assert member.link(C) is link
        assert not friend.events.downs
        assert set(member.endpoint.violations) <= {"frame", "control message", "credit", "message", "handshake", "wire version"}
        assert sum(member.endpoint.violations.values()) > strikes // 4
    finally:
        await fleet.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_endpoint_under_attack_keeps_its_other_links(tmp_path: Path) -> None:
    await besiege(tmp_path, 60, Random(11))


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_an_endpoint_under_a_long_attack(tmp_path: Path) -> None:
    with capture_logs():  # a line per strike
        await besiege(tmp_path, 3000, Random(os.urandom(8)))
