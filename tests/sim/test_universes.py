"""Whole fleets in virtual time: after faults end everything is equal, and one seed is one run."""

from __future__ import annotations

import pytest

from trunkline.node.universe import CHAIN, Universe, run_universe

RING = (("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"))
HOUSE = (*RING, ("a", "e"), ("b", "e"))


def failures(seeds: range, links: tuple[tuple[str, str], ...], loss: float = 0.02) -> list[object]:
    verdicts = (run_universe(seed, links, loss) for seed in seeds)
    return [(v.seed, v.reasons) for v in verdicts if not v.converged]


def test_g2_g3_g4_a_thousand_universes_of_three_nodes_converge() -> None:
    assert failures(range(1000), CHAIN) == []


@pytest.mark.parametrize("links", [RING, HOUSE], ids=["ring", "house"])
def test_graphs_with_cycles_converge_under_heavier_loss(links: tuple[tuple[str, str], ...]) -> None:
    assert failures(range(60), links, loss=0.05) == []


@pytest.mark.soak
@pytest.mark.parametrize("links", [CHAIN, RING, HOUSE], ids=["chain", "ring", "house"])
def test_ten_thousand_universes(links: tuple[tuple[str, str], ...]) -> None:
    assert failures(range(10_000), links, loss=0.05) == []


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    assert run_universe(7) == run_universe(7)
    assert run_universe(7).fingerprint != run_universe(8).fingerprint


def test_a_universe_that_cannot_converge_says_so() -> None:
    universe = Universe(1, loss=0.0)
    universe.net.run(2.0)
    universe.net.cut("relay", "hub")
    universe.write("leaf")
    universe.sites["leaf"].commit([("status", ("hub",), {}, b"x")], 5, universe.net.now)
    verdict = universe.settle(10.0)
    assert not verdict.converged
    assert any("hub has [" in reason for reason in verdict.reasons)


def test_g3_in_steady_state_an_entry_crosses_each_link_once_whatever_its_destinations() -> None:
    links = (("hub", "relay"), ("relay", "leaf-1"), ("relay", "leaf-2"), ("relay", "leaf-3"))
    universe = Universe(3, links, loss=0.0)
    universe.net.run(10.0)
    for n in range(50):
        universe.sites["hub"].commit([("policy", ("leaf-1", "leaf-2", "leaf-3"), {}, b"x")], n + 1, universe.net.now)
        universe.net.run(universe.net.now + 0.2)
    assert universe.settle(10.0).converged
    hub, relay = universe.sites["hub"].core.carrier, universe.sites["relay"].core.carrier
    assert hub is not None
    assert relay is not None
    assert hub.counters["relay", "sent"] == 50
    assert [relay.counters[f"leaf-{n}", "relayed"] for n in (1, 2, 3)] == [50, 50, 50]
    assert relay.counters["hub", "duplicate"] == relay.counters["hub", "stray"] == 0


def test_h11_a_source_restored_to_an_older_state_is_found_out_by_its_marks() -> None:
    """The restored log grows again to the same numbers with other content: the destination begins anew, never skips."""
    universe = Universe(5, loss=0.0)
    log = universe.disks["leaf"].log
    universe.net.run(5.0)
    for n in range(3):
        universe.sites["leaf"].commit([("status", ("hub",), {}, b"before %d" % n)], 100 + n, universe.net.now)
    assert universe.settle(10.0).converged
    universe.net.crash("leaf")
    log._entries, log._ends, log._marks = log._entries[:1], log._ends[:1], log._marks[:1]
    for n in range(4):
        log.commit([("status", ("hub",), {}, b"after %d" % n)], 200 + n)
    universe.net.restart("leaf")
    universe.net.run(universe.net.now + 20.0)
    received = [e.payload for e in universe.disks["hub"].sink.received["leaf"]]
    assert received[:3] == [b"before 0", b"before 1", b"before 2"]
    assert received[3:] == [b"before 0", b"after 0", b"after 1", b"after 2", b"after 3"]


def test_a_client_that_nobody_named_yet_is_delivered_from_its_first_entry() -> None:
    universe = Universe(6, loss=0.0)
    universe.net.run(5.0)
    universe.sites["leaf"].commit([("status", ("hub",), {}, b"1")], 1, universe.net.now)
    assert universe.settle(10.0).converged
    universe.net.crash("hub")
    universe.sites["leaf"].commit([("policy", ("hub",), {}, b"2"), ("status", ("hub",), {}, b"3")], 2, universe.net.now)
    universe.net.restart("hub")
    assert universe.settle(20.0).converged
    assert [e.client for e in universe.disks["hub"].sink.received["leaf"]] == ["status", "policy", "status"]
