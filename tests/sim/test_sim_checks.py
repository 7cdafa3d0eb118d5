"""Every check can fail, and says under its own name what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_runs import CHAIN, carried, history, write

from trunkline.core.ids import Position
from trunkline.net.channels import Channel
from trunkline.net.simhost import Outlet, Process
from trunkline.node.sim.site import SimSite
from trunkline.node.sim.universe import MakeProcess, Scenario, Universe, run_history
from trunkline.node.sitecore import Frame
from trunkline.trunk import asks

PAIR = carried((("a", "b"),))


def settled(scenario: Scenario = PAIR) -> Universe:
    """One entry of a is at b, and everybody knows."""
    universe = Universe(scenario, 1)
    universe.net.run(3.0)
    write(universe, "a", ("status", "b", b"x"))
    assert universe.net.run(9.0, done=lambda: bool(universe.databases["a"].acknowledged) and universe.right())
    return universe


def wrong(universe: Universe) -> list[str]:
    return [str(failure) for failure in universe.wrong()]


def test_g2_stores_that_differ() -> None:
    universe = settled()
    del universe.stores["b"].table.digest.leaf_of("link:a").entries["link:a"]
    assert wrong(universe) == ["G2: the stores of a and b differ at link:a"]


@pytest.mark.parametrize(
    ("order", "failure"),
    [
        ([1, 2, 2, 3], "G3: b has 2 of a more than once"),
        ([1, 2], "G3: b lacks 3 of a"),
        ([], "G3: b lacks 1, 2, 3 of a"),
        ([1, 3, 2], "G4: b has a out of order: 1, 3, 2"),
        ([1, 3], "G4: b lacks 2 of a and went on to 3"),
    ],
)
def test_g3_g4_what_a_destination_has(order: list[int], failure: str) -> None:
    universe = settled()
    for payload in (b"y", b"z"):
        write(universe, "a", ("status", "b", payload))
    universe.net.run(universe.net.now + 1.0)
    assert universe.net.run(19.0, done=universe.right)
    received = universe.databases["b"].sink.received
    entries = {entry.seq: entry for entry in received["a"]}
    received["a"] = [entries[seq] for seq in order]
    assert wrong(universe) == [failure]


def test_g3_what_was_written_and_never_stamped() -> None:
    universe = settled()
    universe.net.crash("a")
    write(universe, "a", ("status", "b", b"y"))
    assert "G3: a has 1 transactions that are not in its log" in wrong(universe)


def test_acks_an_origin_that_was_not_told() -> None:
    universe = settled()
    universe.databases["a"].acknowledged.clear()
    assert wrong(universe) == ["acks: a does not know that b has everything up to 1"]


def test_acks_an_origin_that_believes_too_much() -> None:
    universe = settled()
    log = universe.databases["a"].log
    head = log.commit([("status", ("b",), {}, b"y")], 77)
    universe.sites["a"].durable(asks.Acknowledged("b", 1, log.log_id, {"status": head}))
    assert [str(f) for f in universe.witness.failures] == ["acks: a believes that b has its status up to 2"]


@pytest.mark.parametrize(
    ("seqs", "upto", "failure"),
    [
        ([3], 3, "G4: b went on to 3 of a without 2"),
        ([], 2, "G4: b went on to 2 of a without 2"),
        ([2, 3], 3, None),
        ([], 1, None),
    ],
)
def test_g4_a_gap_is_seen_when_it_happens(seqs: list[int], upto: int, failure: str | None) -> None:
    universe = settled()
    log = universe.databases["a"].log
    for n in (2, 3):
        log.commit([("status", ("b",), {}, b"y")], n)
    entries = tuple(e for e in log.read(0, 9, {"b"}).entries if e.seq in seqs)
    mark = log.mark_at(upto)
    assert mark is not None
    universe.sites["b"].durable(asks.Append("a", log.log_id, entries, Position(upto, mark), ("status",)))
    assert [str(f) for f in universe.witness.failures] == ([failure] if failure else [])


def test_a_run_ends_with_what_may_never_happen() -> None:
    universe = settled()
    universe.witness.saw("G4", "seen")
    universe.live_through(history(PAIR, "15.000 write a status>b").events)
    assert universe.net.now < 19.0
    assert [f.check for f in universe.settle().failures] == ["G4"]


# -- defects


def test_defect_a_message_that_cannot_be_read_costs_the_link() -> None:
    universe = settled()
    universe.net.wires.send("a", "b", Channel.TRUNK, b"\xff")
    universe.net.run(universe.net.now + 0.1)
    (failure,) = universe.witness.failures
    assert str(failure).startswith("defect: b: RemoteProtocolError: trunk message: it cannot be read")
    assert universe.net.hosts["b"].process is not None


class Stumbling(SimSite):
    def tick(self, now: float) -> None:
        if now > 5.0:
            raise ZeroDivisionError("on purpose")
        super().tick(now)


class Repeating(SimSite):
    """Sends everything of the log twice."""

    def _send(self, frame: Frame) -> None:
        for _ in range(2 if frame.channel is Channel.TRUNK else 1):
            super()._send(frame)


def booting(kind: type[SimSite]) -> MakeProcess:
    def boot(universe: Universe, host: str, outlet: Outlet, now: float) -> Process:
        return kind(host, universe.databases, outlet, now, universe.setup)

    return boot


def test_defect_a_process_that_fails_is_gone() -> None:
    scenario = replace(PAIR, boot=booting(Stumbling))
    verdict = run_history(scenario, history(scenario))
    assert verdict.failed_checks == ("defect",)
    assert str(verdict.failures[0]) == "defect: a: ZeroDivisionError: ZeroDivisionError('on purpose')"


def test_g3_link_an_entry_that_crosses_a_link_twice_in_steady_state() -> None:
    scenario = replace(CHAIN, boot=booting(Repeating))
    verdict = run_history(scenario, history(scenario, "3.000 write leaf status>hub"))
    assert verdict.failed_checks == ("G3-link", "copies")
    assert "G3-link: entry 2 of leaf crossed the link of leaf and relay 2 times" in map(str, verdict.failures)
    assert "copies: entry 2 of leaf was sent 4 times to 2 sites" in map(str, verdict.failures)
