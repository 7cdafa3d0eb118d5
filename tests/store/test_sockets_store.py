"""The same between stores on real sockets: TLS over loopback, real time, one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from store_sockets import QUICK, SocketFleet, SocketNode, until, watchdog

from trunkline.net.channels import Channel
from trunkline.store.filters import Filter
from trunkline.store.messages import CODEC, Answer, AskRoot, Publish, Send
from trunkline.store.peers import PeerState
from trunkline.store.values import Value, sealed
from trunkline.store.watch import KeyEvent, Watch


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[SocketFleet]:
    """After the test nothing may be left running."""
    fleet = SocketFleet(tmp_path)
    yield fleet
    await fleet.stop()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


def contents(node: SocketNode) -> dict[str, tuple[int, str, bytes | None]]:
    return {key: (v.version, v.originator, v.data) for key, v in node.fleet.table.values()}


def equal(*nodes: SocketNode) -> bool:
    return len({node.fleet.table.digest.root() for node in nodes}) == 1


# -- 9


async def test_s09_on_sockets_three_way_sync_of_one_side(fleet: SocketFleet) -> None:
    a, b = await fleet.nodes("a/1", "b/1")
    for node, versions in ((a, (5, 1, 9, 1, 0)), (b, (0, 1, 1, 9, 6))):
        for number, version in enumerate(versions):
            if version:
                node.put(f"k{number}", b"%d" % version, version, originator="node-1")
    b.takes_peers = False
    fleet.dial(a, b)
    await until(lambda: a.is_in_step(b) and equal(a, b))
    assert contents(a) == contents(b) == {f"k{n}": (v, "node-1", b"%d" % v) for n, v in enumerate((5, 1, 9, 9, 6))}
    counted = ("full_syncs", "full_syncs_ok", "full_syncs_failed", "finalized_syncs")
    assert [a.fleet.counters[name] for name in counted] == [1, 1, 0, 1]
    assert [b.fleet.counters[name] for name in counted] == [0, 0, 0, 0]


# -- 11


async def test_s11_on_sockets_a_key_set_during_the_sync_follows_it(fleet: SocketFleet) -> None:
    a, b = await fleet.nodes("a/1", "b/1")
    a.put("before", b"1")
    b.put("other", b"2")
    a.held[b.name] = []
    fleet.dial(a, b)
    await until(lambda: a.held[b.name] and (peer := a.peer(b)) and peer.state is PeerState.SYNCING)
    a.put("kx", b"x")
    b.received.clear()
    await asyncio.sleep(0.2)  # in which nothing may come
    assert [p for p in b.publications() if "kx" in p.values] == []
    assert b.data("kx") is None
    a.release(b)
    await until(lambda: a.is_in_step(b) and b.is_in_step(a) and equal(a, b))
    assert b.data("kx") == b"x"
    answered = [at for at, _, message in a.received if isinstance(message, Answer)]
    came = [at for at, _, message in b.received if isinstance(message, Publish) and "kx" in message.values]
    assert came
    assert min(came) > min(answered)


# -- 14


async def test_s14_on_sockets_a_chain_of_sixteen_and_then_a_ring(fleet: SocketFleet) -> None:
    chain = await fleet.nodes(*(f"s{number}/1" for number in range(16)))
    await fleet.link(*pairwise(chain))
    for node in chain:
        node.received.clear()
    chain[15].put("k", b"x")
    await until(lambda: chain[0].data("k") == b"x")
    (arrived,) = chain[0].publications()
    assert (*arrived.path, "s0/1") == tuple(f"s{number}/1" for number in range(15, -1, -1))
    assert [node.data("k") for node in chain] == [b"x"] * 16
    await fleet.link((chain[15], chain[0]))
    await _converge_and_go_quiet(chain)


async def test_s14_on_sockets_a_mesh_of_eight(fleet: SocketFleet) -> None:
    mesh = await fleet.nodes(*(f"s{number}/1" for number in range(8)))
    await fleet.link(*combinations(mesh, 2))
    await _converge_and_go_quiet(mesh)


async def _converge_and_go_quiet(nodes: list[SocketNode]) -> None:
    for number, node in enumerate(nodes):
        node.put(f"own{number}", b"x")
        node.put("shared", b"%d" % number, version=number % 3 + 1)
    await until(lambda: all(len(node.fleet.table) >= len(nodes) + 1 for node in nodes) and equal(*nodes))
    assert len({node.data("shared") for node in nodes}) == 1
    await until(lambda: sum(node.heard for node in nodes) == sum(node.sent for node in nodes))
    said = sum(node.sent for node in nodes)
    await asyncio.sleep(1.0)
    assert sum(node.sent for node in nodes) == said


# -- 25


@pytest.mark.parametrize(
    ("forced", "after"),
    [(("a/1", 20), 21), (None, 1), (("storeB", 1), 2)],
    ids=["a higher version", "the key is missing", "another originator"],
)
async def test_s25_on_sockets_a_refresh_that_does_not_fit_heals(
    fleet: SocketFleet, forced: tuple[str, int] | None, after: int
) -> None:
    a, b, c = await fleet.nodes("a/1", "b/1", "c/1", settings=replace(QUICK, ttl_ms=4000))
    await fleet.link((a, b), (b, c))
    a.fleet.persist("k", b"x", a.now)
    await until(lambda: a.data("k") == b.data("k") == c.data("k") == b"x")
    table = b.fleet.table
    table._drop("k", table.entries["k"])
    if forced is not None:
        table.take({"k": sealed("k", forced[1], forced[0], b"y", 4000)}, b.now)
    await until(lambda: b.fleet.counters["inconsistencies"])
    await until(lambda: [contents(node).get("k") for node in (a, b, c)] == [(after, "a/1", b"x")] * 3)
    await until(lambda: b.is_in_step(a))
    peer = b.peer(a)
    assert peer is not None
    assert (peer.flaps, peer.backoff.failures) == (2, 0)


# -- 26


async def test_s26_on_sockets_a_mixed_publication(fleet: SocketFleet) -> None:
    a, b, c = await fleet.nodes("a/1", "b/1", "c/1")
    await fleet.link((a, b), (b, c))
    watch = Watch(Filter())
    b.fleet.watch(watch)
    good = {"good": sealed("good", 7, a.name, b"x", 2500)}
    a.fleet.table.take(good, a.now)
    a.fleet.table.take({"bad": sealed("bad", 3, a.name, b"y", 60_000)}, a.now)
    a.say([Send(b.name, Publish("fleet", good | {"bad": Value(3, a.name, None, 60_000, 1, 0)}, (a.name,)))])
    await until(lambda: c.data("good") == b"x")
    assert b.data("good") == b"x"
    await until(lambda: b.data("bad") == c.data("bad") == b"y")
    assert b.fleet.counters["inconsistencies"] == 1
    peer = b.peer(a)
    assert peer is not None
    assert peer.flaps == 2
    seen = [event.key for event in b.fleet.read(watch, 100, b.now) if isinstance(event, KeyEvent)]
    assert seen == ["good", "bad"]
    await until(lambda: not any("good" in contents(node) for node in (a, b, c)))


# -- 27


async def test_s27_on_sockets_a_dead_peer_does_not_delay_a_new_one(fleet: SocketFleet) -> None:
    settings = replace(QUICK, first_backoff=256.0, longest_backoff=256.0, answer_seconds=0.3)
    a, dead, new = await fleet.nodes("a/1", "dead/1", "new/1", settings=settings)
    dead.held[a.name] = []
    fleet.dial(a, dead)
    await until(lambda: (peer := a.peer(dead)) and peer.failures)
    stuck = a.peer(dead)
    assert stuck is not None
    assert stuck.retry_at > a.now + 100.0
    fleet.dial(a, new)
    await until(lambda: a.peer(new))
    linked_at = a.now
    await until(lambda: a.is_in_step(new) and new.is_in_step(a))
    peer = a.peer(new)
    assert peer is not None
    assert peer.since - linked_at < 1.0
    assert (stuck.state, stuck.backoff.failures) == (PeerState.IDLE, 1)


async def test_s27_on_sockets_a_broken_connection_is_one_step_and_a_success_takes_it_back(fleet: SocketFleet) -> None:
    a, b = await fleet.nodes("a/1", "b/1")
    a.fleet.add_peer(b.name, a.now)
    await fleet.link((a, b))
    peer = a.peer(b)
    assert peer is not None
    for number in range(20):
        a.put(f"k{number}", b"x")
    assert a.endpoint.links()[b.identity].queued(Channel.STORE) > 0
    fleet.cut(a, b)
    a.put("while closing", b"x")  # the link takes nothing any more
    await until(lambda: not peer.linked)
    assert (peer.state, peer.backoff.failures, peer.failures) == (PeerState.IDLE, 1, 1)
    await until(lambda: not b.endpoint.links())
    await fleet.link((a, b))
    assert (peer.flaps, peer.backoff.failures) == (2, 0)
    await until(lambda: equal(a, b))
    assert len(contents(b)) == 21


# -- 31


async def test_s31_on_sockets_areas_do_not_mix_and_a_sites_area_is_closed(fleet: SocketFleet) -> None:
    a = await fleet.node("a/1", areas=("pod",))
    b = await fleet.node("b/1", areas=("pod", "plane"))
    c = await fleet.node("c/1", areas=("plane",))
    a2 = await fleet.node("a/2")
    await fleet.link((a, b), (b, c), (a, a2), (a2, b))
    a.put("k", b"x", area="pod")
    a.put("secret", b"y", area="site:a")
    a.put("hint", b"z")
    await until(lambda: b.data("k", "pod") == b"x" and a2.data("secret", "site:a") == b"y")
    await until(lambda: all(node.data("hint") == b"z" for node in (a, b, c, a2)))
    assert [b.data("k", "plane"), c.data("k", "plane"), b.data("k"), c.data("k")] == [None] * 4
    assert all("secret" not in area.table.entries for node in (b, c) for area in node.store.areas.values())
    await until(lambda: (peer := a2.peer(b)) and peer.state is PeerState.INITIALIZED)
    refused = a.peer(a2, "pod")
    assert refused is not None
    await until(lambda: refused.failures)
    assert (refused.state, refused.reason) == (PeerState.IDLE, "it refuses: this node is not in that area")
    assert b.endpoint.links()[a.identity].send(Channel.STORE, CODEC.encode(AskRoot("site:a", 1, 1)))
    await until(lambda: a.endpoint.violations["message"] == 1)
    await until(lambda: a.is_in_step(b) and b.is_in_step(a))  # it costs the link, and a new one is made


# -- 37


async def test_s37_on_sockets_one_of_a_hundred_thousand_keys_differs(fleet: SocketFleet) -> None:
    a, b = await fleet.nodes("a/1", "b/1")
    data = b"v" * 300
    many = {key: sealed(key, 1, "s/n", data, 3_600_000) for key in (f"{n:060d}" for n in range(100_000))}
    for node in (a, b):
        node.fleet.put(many, node.now)
    longest = []
    for attempt in range(3):
        a.fleet.table.take({"odd": sealed("odd", attempt + 1, a.name, data, 3_600_000)}, a.now)
        a.sent_bytes.clear()
        b.sent_bytes.clear()
        async with watchdog() as turns:
            await fleet.link((a, b))
            await until(lambda: equal(a, b))
        longest.append(max(turns))
        assert a.sent_bytes.total() + b.sent_bytes.total() < 0.002 * 36_000_000
        fleet.cut(a, b)
        await until(lambda: not a.endpoint.links() and not b.endpoint.links())
    assert min(longest) < 0.050


# -- back-pressure


async def test_on_sockets_a_peer_that_reads_nothing_holds_up_nobody_and_gets_all_later(fleet: SocketFleet) -> None:
    a, slow, quick = await fleet.nodes("a/1", "slow/1", "quick/1", settings=replace(QUICK, sync_seconds=3600.0))
    await fleet.link((a, slow), (a, quick))
    for node in (slow, quick):
        node.remember = False
    slow.endpoint.links()[a.identity].pause(Channel.STORE)
    for number in range(400):
        a.put(f"k{number}", b"%03d" % number * 20_000)
        if number % 20 == 0:
            await until(lambda number=number: quick.data(f"k{number}"))  # type: ignore[misc]
    await until(lambda: len(quick.fleet.table) == 400)
    peer = a.peer(slow)
    assert peer is not None
    assert peer.blocked
    assert 0 < len(peer.pending) < 400
    assert len(slow.fleet.table) < 60  # a window, no more
    slow.endpoint.links()[a.identity].resume(Channel.STORE)
    await until(lambda: equal(a, slow, quick))
    assert (peer.blocked, peer.pending, peer.flaps) == (False, {}, 0)
