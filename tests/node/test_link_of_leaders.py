"""Real nodes meet peers that say exactly what a test wants said: which link carries, and what a full one costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from nodesinprocess import Nodes

from trunkline.core.ids import NodeId
from trunkline.net.authority import issue
from trunkline.net.channels import DATA, Channel
from trunkline.net.hello import OLDEST_WIRE, WIRE_VERSION, Bye, Control, Credit, Heartbeat, Hello, decode_control
from trunkline.net.stream import Stream, dial_stream
from trunkline.net.tls import client_context
from trunkline.node.outflow import BULK_QUEUED
from trunkline.node.peers import CARRIES, TELLS_ROWS
from trunkline.node.sitecore import Frame
from trunkline.trunk.messages import CODEC, Stop, Subscribe, SubscribeAll
from waiting import eventually

HERE = "b/n1"
HEADER_BYTES = 5
EARLIER, LATER = NodeId("a", "n1"), NodeId("a", "n2")
LEADS = Hello(
    wire=WIRE_VERSION, oldest=OLDEST_WIRE, capabilities=("store", CARRIES), site="a", node="", incarnation=1,
    known_incarnation=0, log_id="log", neighbours=(), heads={}, applied={}, carries=True, addresses=(),
)  # fmt: skip


@pytest.fixture
def nodes(tmp_path: Path, make_database: Callable[..., str]) -> Iterator[Nodes]:
    """One site that exchanges records with a and follows c, and waits long for a sign of life."""
    nodes = Nodes(tmp_path)
    nodes.plan.add("b", ["n1"], make_database(), links=["a"], follows=["c"])
    config = nodes.plan.nodes[0].config
    config["link"]["heartbeat_seconds"], config["store"] = 30.0, {"start_seconds": 0}
    try:
        nodes.start()
        nodes.wait_ready()
        yield nodes
    finally:
        nodes.close()


class Peer:
    """A certified leader of another site."""

    def __init__(self, stream: Stream, id: NodeId) -> None:
        self.stream, self.id = stream, id

    async def control(self) -> Control:
        while (frame := await asyncio.wait_for(self.stream.receive_one(), 20)) is not None:
            if frame[0] is Channel.CONTROL:
                return decode_control(frame[1])
        return Bye("closed without a word", "")

    async def hello(self, **changes: object) -> Hello:
        """Says HELLO; what the other side said, which accepts."""
        said = {"site": self.id.site, "node": self.id.node, **changes}
        self.stream.say(msgspec.structs.replace(LEADS, **said))
        theirs = await self.control()
        assert isinstance(theirs, Hello)
        assert isinstance(await self.control(), Heartbeat)
        return theirs

    async def subscribed(self) -> tuple[Channel, set[Channel]]:
        """Waits until the other side asks for records: on which channel, and on which ones it spoke until then."""
        spoke: set[Channel] = set()
        while (frame := await asyncio.wait_for(self.stream.receive_one(), 20)) is not None:
            channel, body = frame
            spoke.add(channel)
            if channel in (Channel.TRUNK, Channel.SIGNAL) and isinstance(CODEC.decode(body), Subscribe | SubscribeAll):
                return channel, spoke
        raise AssertionError("it closed the connection")

    def accept(self) -> None:
        self.stream.say(Heartbeat({}))


@asynccontextmanager
async def peer(nodes: Nodes, id: NodeId) -> AsyncIterator[Peer]:
    authority, out = nodes.plan.folder / "ca", nodes.plan.folder / f"raw-{id.site}-{id.node}"
    if not out.exists():
        issue(authority, out, id)
    context = client_context(authority / "ca.pem", out / "certificate.pem", out / "key.pem")
    stream = await dial_stream(nodes.plan.seed, context)
    try:
        yield Peer(stream, id)
    finally:
        await stream.abort()


def carried(nodes: Nodes) -> set[NodeId]:
    """With whom the node exchanges records now."""
    core = nodes.at[HERE]._core
    return {id for id in (EARLIER, LATER) if nodes.on_loop(lambda id=id: core.carries_with(id))}


async def test_h25_a_leader_that_is_known_to_be_followed_by_another_does_not_take_its_place(nodes: Nodes) -> None:
    """The earlier leader's HELLO was accepted before the later one's, and its link is up after it."""
    async with peer(nodes, EARLIER) as earlier, peer(nodes, LATER) as later:
        assert (await earlier.hello(incarnation=5)).known_incarnation == 0
        await later.hello(incarnation=6)
        later.accept()
        eventually(lambda: carried(nodes) == {LATER})
        earlier.accept()
        goodbye = await earlier.control()
        assert isinstance(goodbye, Bye)
        assert goodbye.reason == "a later leader of a is known by now"
        assert carried(nodes) == {LATER}


async def test_h25_the_earlier_leader_s_next_link_serves_the_store_alone_and_both_ends_know(nodes: Nodes) -> None:
    async with peer(nodes, LATER) as later:
        await later.hello(incarnation=6)
        later.accept()
        eventually(lambda: carried(nodes) == {LATER})
        async with peer(nodes, EARLIER) as earlier:
            assert (await earlier.hello(incarnation=5)).known_incarnation == 6
            earlier.accept()
            eventually(lambda: nodes.links(HERE) == {str(EARLIER), str(LATER)})
            assert carried(nodes) == {LATER}


async def test_h25_the_later_leader_takes_over(nodes: Nodes) -> None:
    async with peer(nodes, EARLIER) as earlier:
        await earlier.hello(incarnation=5)
        earlier.accept()
        await earlier.subscribed()
        assert carried(nodes) == {EARLIER}
        async with peer(nodes, LATER) as later:
            assert (await later.hello(incarnation=6)).known_incarnation == 5
            later.accept()
            eventually(lambda: carried(nodes) == {LATER})
            await later.subscribed()


@pytest.mark.parametrize(
    ("capabilities", "asked_on"),
    [(("store", CARRIES, TELLS_ROWS), Channel.SIGNAL), (("store", CARRIES), Channel.TRUNK)],
    ids=["of today", "of before"],
)
async def test_a_peer_hears_only_on_channels_that_it_knows(
    nodes: Nodes, capabilities: tuple[str, ...], asked_on: Channel
) -> None:
    async with peer(nodes, EARLIER) as other:
        await other.hello(capabilities=capabilities)
        other.accept()
        channel, spoke = await other.subscribed()
        assert channel is asked_on
        assert (Channel.TOPOLOGY in spoke) is (TELLS_ROWS in capabilities)
        assert asked_on is Channel.SIGNAL or Channel.SIGNAL not in spoke


async def test_hello_says_who_gives_who_follows_and_what_is_spoken(nodes: Nodes) -> None:
    said: dict[str, Hello] = {}
    for site in ("a", "c", "d"):
        async with peer(nodes, NodeId(site, "n1")) as other:
            said[site] = await other.hello()
    assert {site: (hello.carries, hello.follows) for site, hello in said.items()} == {
        "a": (True, False), "c": (False, True), "d": (False, False),
    }  # fmt: skip
    assert {hello.capabilities for hello in said.values()} == {("store", CARRIES, TELLS_ROWS)}
    assert {tuple(hello.heads) for hello in said.values()} == {("b",)}


@pytest.mark.parametrize("channel", [Channel.TRUNK, Channel.SIGNAL, Channel.TOPOLOGY])
async def test_a_peer_that_does_not_take_what_neighbours_must_know_is_left(nodes: Nodes, channel: Channel) -> None:
    """It never gives credit back. Nothing is dropped out of the middle: the link ends, and a new one begins anew."""
    node, body = nodes.at[HERE], bytes(1024 * 1024)
    most = (DATA[channel].queue + DATA[channel].window) // len(body) + 2
    async with peer(nodes, EARLIER) as slow:
        await slow.hello()
        slow.accept()
        eventually(lambda: carried(nodes) == {EARLIER})
        link = nodes.link(HERE, str(EARLIER))
        for _ in range(most):
            nodes.on_loop(lambda: node._outflow.send(link, Frame(EARLIER, channel, body)))
        eventually(lambda: nodes.links(HERE) == set())
        assert carried(nodes) == set()
    async with peer(nodes, EARLIER) as again:
        await again.hello()
        again.accept()
        eventually(lambda: carried(nodes) == {EARLIER})


async def test_chunks_of_snapshots_wait_for_a_slow_link_and_do_not_end_it(nodes: Nodes) -> None:
    """More of them at once than the link's queue holds, and all asked for again: each goes once, and records between."""
    node = nodes.at[HERE]
    chunks = [bytes([n]) + bytes(1024 * 1024 - 1) for n in range(24)]
    record = CODEC.encode(Stop(1, "b"))
    async with peer(nodes, EARLIER) as slow:
        await slow.hello()
        slow.accept()
        await slow.subscribed()
        link = nodes.link(HERE, str(EARLIER))

        def send() -> None:
            for _ in range(3):
                for chunk in chunks:
                    node._outflow.send(link, Frame(EARLIER, Channel.TRUNK, chunk, bulk=True))
            node._outflow.send(link, Frame(EARLIER, Channel.TRUNK, record))

        nodes.on_loop(send)
        got: list[bytes] = []
        while len(set(got)) < len(chunks) + 1:
            frame = await asyncio.wait_for(slow.stream.receive_one(), 20)
            assert frame is not None, "it closed the connection"
            if frame[0] is Channel.TRUNK:
                got.append(frame[1])
                slow.stream.say(Credit(Channel.TRUNK, len(frame[1]) + HEADER_BYTES))
        behind = (BULK_QUEUED + DATA[Channel.TRUNK].window) // len(chunks[0]) + 2
        assert got.index(record) < behind, "it waits for what was in the queue, not for all of them"
        assert [chunk[0] for chunk in chunks[behind:] if got.count(chunk) > 1] == [], "what still waits is not taken again"
        assert carried(nodes) == {EARLIER}
