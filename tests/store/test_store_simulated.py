"""The same between stores on a network that loses frames, falls apart and kills: everything is equal soon after it ends."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise
from random import Random

import pytest
from simstores import QUICK, SimStores

from trunkline.core.bucket import Rate
from trunkline.store.messages import AskRoot, Publish, Same
from trunkline.store.peers import PeerState
from trunkline.store.values import sealed
from trunkline.store.watch import KeyEvent, Signal, SignalKind

SIXTEEN = [f"s{number}" for number in range(16)]
RING = [*pairwise(SIXTEEN), (SIXTEEN[-1], SIXTEEN[0])]
MESH = list(combinations(SIXTEEN[:8], 2))
SLOWLY = replace(QUICK, sync_seconds=1000.0)


# -- 14


@pytest.mark.parametrize("links", [RING, MESH], ids=["a ring of 16", "a mesh of 8"])
def test_s14_on_a_sound_network_a_ring_and_a_mesh_converge_and_go_quiet(links: list[tuple[str, str]]) -> None:
    fleet = SimStores(1, links, SLOWLY)
    fleet.run(5.0)
    for number, name in enumerate(fleet.names):
        fleet[name].put(f"own{number}", b"x", fleet.net.now)
        fleet[name].put("shared", b"%d" % number, fleet.net.now, version=number % 3 + 1)
    fleet.run(1.0)
    assert fleet.equal()
    assert len(fleet.contents("s0")) == len(fleet.names) + 1
    said = fleet.net.wires.frames
    fleet.run(1.0)
    assert fleet.net.wires.frames == said


def test_s14_a_ring_that_loses_frames_converges_and_then_only_compares() -> None:
    fleet = SimStores(2, RING, loss=0.1)
    fleet.run(5.0)
    for number, name in enumerate(fleet.names):
        fleet[name].put(f"own{number}", b"x", fleet.net.now)
    assert fleet.runs_until_equal(30.0)
    assert len(fleet.contents("s0")) == 16
    fleet.net.wires.loss = 0.0
    fleet.run(2 * QUICK.answer_seconds + QUICK.longest_backoff)
    fleet.frames.clear()
    fleet.run(10.0)
    assert {type(message) for *_, message in fleet.frames} == {AskRoot, Same}


def test_a_chain_that_falls_apart_floods_within_its_parts_and_joins_again() -> None:
    fleet = SimStores(3, list(pairwise(SIXTEEN)), SLOWLY)
    fleet.run(3.0)
    fleet.cut(("s7", "s8"))
    fleet.run(3.0)
    fleet["s0"].put("left", b"x", fleet.net.now)
    fleet["s15"].put("right", b"y", fleet.net.now)
    fleet.run(2.0)
    assert [set(fleet.contents(name)) for name in SIXTEEN] == [{"left"}] * 8 + [{"right"}] * 8
    fleet.mend(("s7", "s8"))
    fleet.run(3.0)
    assert all(set(fleet.contents(name)) == {"left", "right"} for name in SIXTEEN)


# -- 25


@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize(
    ("forced", "after"),
    [(("a", 20), 21), (None, 1), (("storeB", 1), 2)],
    ids=["a higher version", "the key is missing", "another originator"],
)
def test_s25_a_refresh_that_does_not_fit_heals_though_frames_are_lost(
    forced: tuple[str, int] | None, after: int, loss: float
) -> None:
    settings = replace(QUICK, ttl_ms=4000, sync_seconds=3.0 if loss else 1000.0)
    fleet = SimStores(4, [("a", "b"), ("b", "c")], settings)
    fleet["a"].area.persist("k", b"x", 0.0)
    fleet.run(3.0)
    table = fleet["b"].area.table
    table._drop("k", table.entries["k"])
    if forced is not None:
        table.take({"k": sealed("k", forced[1], forced[0], b"y", 60_000)}, fleet.net.now)
    fleet.net.wires.loss = loss

    def healed() -> bool:
        return all(fleet.contents(name).get("k") == (after, "a", b"x") for name in "abc")

    assert fleet.net.run(fleet.net.now + (30.0 if loss else 1.2), done=healed)
    assert fleet["b"].area.counters["inconsistencies"] >= 1
    if not loss:
        assert fleet["b"].area.peers.by_name["a"].flaps == 2


# -- 29


def signals(fleet: SimStores, name: str) -> list[object]:
    """What a watcher has seen since the last look: keys and signals in their order."""
    events = fleet[name].area.read(fleet[name].watch, 10_000, fleet.net.now)
    return [event.key if isinstance(event, KeyEvent) else event for event in events]


def test_s29_a_peer_behind_a_cut_delays_the_signal_only_so_long_and_the_keys_come_before_it() -> None:
    fleet = SimStores(5, [("a", "b"), ("a", "far")], replace(QUICK, link_seconds=3.0))
    fleet.cut(("a", "far"))
    fleet["b"].put("of b", b"x", 0.0)
    fleet["far"].put("of far", b"x", 0.0)
    fleet.run(2.5)
    assert fleet["a"].area.peers.by_name["b"].state is PeerState.INITIALIZED
    assert not fleet["a"].area.synced
    fleet.run(1.0)
    assert signals(fleet, "a") == [
        Signal(SignalKind.SNAPSHOT_DONE), "of b", Signal(SignalKind.PEER_SYNCED, "b"), Signal(SignalKind.SYNCED),
    ]  # fmt: skip
    fleet.mend(("a", "far"))
    fleet.run(3.0)
    assert signals(fleet, "a") == ["of far", Signal(SignalKind.PEER_SYNCED, "far")]


def test_s29_a_peer_that_swallows_everything_counts_after_its_first_error() -> None:
    fleet = SimStores(6, [("a", "b"), ("a", "mute")], replace(QUICK, link_seconds=1000.0))
    fleet.net.wires.bursts["a", "mute"] = 1.0
    while not fleet["a"].area.peers.by_name["mute"].failures:
        assert not fleet["a"].area.synced
        assert fleet.net.now < 20.0
        fleet.run(0.1)
    assert fleet["a"].area.synced
    assert fleet["a"].area.peers.by_name["b"].state is PeerState.INITIALIZED
    fleet.run(30.0)
    assert [s for s in signals(fleet, "a") if isinstance(s, Signal)].count(Signal(SignalKind.SYNCED)) == 1


# -- 30


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_s30_a_rate_limit_with_and_without_loss(loss: float) -> None:
    settings = replace(QUICK, flood_rate=Rate(10, 50), sync_seconds=1000.0 if loss == 0.0 else 3.0)
    fleet = SimStores(7, [("s0", "s1")], settings)
    fleet.run(10.0)
    fleet.frames.clear()
    fleet.net.wires.loss = loss
    for number in range(2000):
        fleet["s1"].put(f"key{number}", b"%d" % number, fleet.net.now)
        fleet.run(0.0025)
    seen = [event for event in signals(fleet, "s1") if isinstance(event, str)]
    assert seen == [f"key{number}" for number in range(2000)]  # its own watcher waits for nobody
    fleet.run(5.0)
    flooded = [m for _, sender, _, m in fleet.frames if sender == "s1" and isinstance(m, Publish)]
    assert 40 < len(flooded) <= (5 + 5 + 3) * 10 + 50
    assert {message.area for message in flooded} == {"fleet"}
    fleet.net.wires.loss = 0.0
    assert fleet.runs_until_equal(2 * settings.sync_seconds if loss else 0.2)
    assert len(fleet.contents("s0")) == 2000


# -- G2


@pytest.mark.parametrize("seed", range(6))
def test_g2_after_faults_end_all_stores_are_equal_within_a_bounded_time(seed: int) -> None:
    _live_through_faults(seed)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(100, 1100, 100))
def test_g2_after_many_more_faults(hundred: int) -> None:
    for seed in range(hundred, hundred + 100):
        _live_through_faults(seed)


def _live_through_faults(seed: int) -> None:
    random = Random(seed)
    links = [*pairwise(SIXTEEN[:9]), ("s8", "s0"), ("s1", "s6"), ("s2", "s7")]
    settings = replace(QUICK, ttl_ms=6000)
    fleet = SimStores(seed, links, settings, loss=0.02)
    for step in range(60):
        _something_happens(fleet, random, step)
        fleet.run(random.uniform(0.05, 0.6))
    for name, host in fleet.net.hosts.items():
        fleet.net.resume(name, host.life)
        fleet.net.restart(name)
    for ways, count in list(fleet.net.wires.cuts.items()):
        fleet.net.wires.mend([ways] * count)
    fleet.net.wires.loss = 0.0
    # A link is found dead and dialled again, then a backoff, a sync, and the longest way of comparisons, one peer a period.
    bound = 5.0 + settings.longest_backoff + settings.answer_seconds + 4 * 3 * settings.sync_seconds
    assert fleet.runs_until_equal(bound), f"not with seed {seed}"
    for name in fleet.names:
        mine = {key: own.data for key, own in fleet[name].area.own.keys.items()}
        assert mine.items() <= {key: data for key, (_, _, data) in fleet.contents(name).items()}.items()
    fleet.run(2 * settings.ttl_ms / 1000)
    assert fleet.runs_until_equal(2.0)  # and stay so, refreshed and expired alike
    kept = {key for name in fleet.names for key in fleet[name].area.own.keys}
    assert {key for key in fleet.contents("s0") if not key.startswith("infinite")} == kept


def _something_happens(fleet: SimStores, random: Random, step: int) -> None:
    name, link = random.choice(fleet.names), random.choice(list(fleet.links))
    awake = fleet.net.hosts[name].awake()
    match random.randrange(8):
        case 0 | 1 | 2 if awake:
            fleet[name].area.persist(f"{name}:{random.randrange(4)}", b"%d" % step, fleet.net.now)
        case 3 if awake:
            fleet[name].area.put({(key := f"infinite{step}"): sealed(key, 1, name, b"x", -(2**31))}, fleet.net.now)
        case 4:
            fleet.cut(link)
        case 5 if any(fleet.net.wires.cuts.values()):
            cut = random.choice([ends for ends, count in fleet.net.wires.cuts.items() if count])
            fleet.net.wires.mend([cut])
        case 6:
            fleet.net.crash(name, told=random.random() < 0.5) if random.random() < 0.5 else fleet.net.restart(name)
        case _:
            life = fleet.net.pause(name)
            fleet.net.at(fleet.net.now + random.uniform(0.1, 4.0), fleet.net.resume, name, life)
