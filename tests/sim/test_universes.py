"""Whole fleets in virtual time: after faults end everything is equal, and one seed is one run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from sim_runs import CHAIN, carried, lived, write

from trunkline.net.simnet import Note
from trunkline.node.sim.catalogue import CATALOGUE, draw, run_seed
from trunkline.node.sim.many import cores, verdicts
from trunkline.node.sim.universe import Universe, run_history

OTHERS = [name for name in CATALOGUE if name not in ("chain", "store", "topology")]


def failures(name: str, seeds: range, loss: float | None = None) -> list[object]:
    with verdicts(name, seeds, cores(), loss) as found:
        return [(v.seed, v.failures) for v in found if not v.converged]


def test_g2_g3_g4_two_hundred_universes_of_three_nodes_converge() -> None:
    assert failures("chain", range(200)) == []


@pytest.mark.parametrize("name", OTHERS)
def test_g2_g3_g4_universes_of_every_shape_converge(name: str) -> None:
    assert failures(name, range(50)) == []


def test_graphs_with_cycles_converge_under_heavier_loss() -> None:
    assert failures("house", range(1000, 1010), loss=0.08) == []


@pytest.mark.timeout(300)
def test_g2_a_thousand_universes_of_the_store_converge() -> None:
    with verdicts("store", range(1_000), cores()) as found:
        judged = {v.seed: v.failures for v in found}
    assert len(judged) == 1_000
    assert {seed: failures for seed, failures in judged.items() if failures} == {}


@pytest.mark.soak
@pytest.mark.parametrize("name", CATALOGUE)
def test_ten_thousand_universes(name: str) -> None:
    with verdicts(name, range(10_000), cores()) as found:
        assert [(v.seed, v.failures) for v in found if not v.converged] == []


# -- one seed, one run


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    assert run_seed(CHAIN, 7) == run_seed(CHAIN, 7)
    assert run_seed(CHAIN, 7).fingerprint != run_seed(CHAIN, 8).fingerprint


def test_the_same_history_gives_the_same_trace_whether_or_not_somebody_watches() -> None:
    drawn = draw(CHAIN, 11)
    seen: list[Note] = []
    assert run_history(CHAIN, drawn, seen.append) == run_history(CHAIN, drawn)
    assert len(seen) > 100


@pytest.mark.parametrize("name", ["mesh", "store", "site", "topology"])
def test_a_seed_is_the_same_run_in_every_process(name: str) -> None:
    """Hashes of strings differ from process to process: nothing may depend on the order of a set."""
    code = f"from trunkline.node.sim.catalogue import *; print(run_seed(find({name!r}), 5).fingerprint)"
    prints = set()
    for hashes in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        prints.add(done.stdout.strip())
    assert prints == {run_seed(CATALOGUE[name], 5).fingerprint}


def test_what_happens_at_one_place_leaves_the_weather_of_others_as_it_was() -> None:
    star = CATALOGUE["star"]
    first_links = []
    for events in ((), ("0.000 crash leaf-1 for 3.000",)):
        _, notes = lived(star, *events)
        first_links.append([(n.at, n.who, n.to) for n in notes if n.kind == "link" and n.at < 1.0 and "leaf-1" not in n[2:4]])
    assert first_links[0] == first_links[1]
    assert len(first_links[0]) == 8


# -- what the checks see


def test_a_universe_that_cannot_converge_says_so() -> None:
    universe = Universe(CHAIN, 1)
    universe.net.run(2.0)
    universe.net.wires.cut((("relay", "hub"), ("hub", "relay")))
    write(universe, "leaf", ("status", "hub", b"x"))
    verdict = universe.settle(10.0)
    assert not verdict.converged
    assert "G3: hub lacks 1 of leaf" in map(str, verdict.failures)
    assert verdict.failed_checks == ("G2", "G3", "acks")


def test_g3_in_steady_state_an_entry_crosses_each_link_once_whatever_its_destinations() -> None:
    universe = Universe(carried((("hub", "relay"), ("relay", "leaf-1"), ("relay", "leaf-2"), ("relay", "leaf-3"))), 3)
    universe.net.run(10.0)
    for n in range(50):
        universe.write("hub", [("policy", ("leaf-1", "leaf-2", "leaf-3"), {}, b"x")], str(n))
        universe.net.run(universe.net.now + 0.2)
    hub, relay = universe.sites["hub"].core.carrier, universe.sites["relay"].core.carrier
    assert hub is not None
    assert relay is not None
    assert universe.net.run(universe.net.now + 10.0, done=universe.right)
    assert hub.counters["relay", "sent"] == 50
    assert [relay.counters[f"leaf-{n}", "relayed"] for n in (1, 2, 3)] == [50, 50, 50]
    assert relay.counters["hub", "duplicate"] == relay.counters["hub", "stray"] == 0


def test_h11_a_source_restored_to_an_older_state_is_found_out_by_its_marks() -> None:
    """The restored log grows again to the same numbers with other content: the destination begins anew, never skips."""
    universe = Universe(CHAIN, 5)
    log = universe.databases["leaf"].log
    universe.net.run(5.0)
    for n in range(3):
        write(universe, "leaf", ("status", "hub", b"before %d" % n))
    assert universe.net.run(15.0, done=universe.right)
    universe.net.crash("leaf")
    log._entries, log._ends, log._marks = log._entries[:1], log._ends[:1], log._marks[:1]
    for n in range(4):
        log.commit([("status", ("hub",), {}, b"after %d" % n)], 200 + n)
    universe.net.restart("leaf")
    universe.net.run(universe.net.now + 20.0)
    received = [e.payload for e in universe.databases["hub"].sink.received["leaf"]]
    assert received[:3] == [b"before 0", b"before 1", b"before 2"]
    assert received[3:] == [b"before 0", b"after 0", b"after 1", b"after 2", b"after 3"]


def test_a_client_that_nobody_named_yet_is_delivered_from_its_first_entry() -> None:
    universe = Universe(CHAIN, 6)
    universe.net.run(5.0)
    write(universe, "leaf", ("status", "hub", b"1"))
    assert universe.net.run(15.0, done=universe.right)
    universe.net.crash("hub")
    write(universe, "leaf", ("policy", "hub", b"2"), ("status", "hub", b"3"))
    universe.net.restart("hub")
    assert universe.net.run(universe.net.now + 20.0, done=universe.right)
    assert [e.client for e in universe.databases["hub"].sink.received["leaf"]] == ["status", "policy", "status"]
