"""Changing parents: from p to q while both are there, and what happens when one of the messages, or p itself, is lost."""

from __future__ import annotations

import pytest
from carriers import Fleet

from trunkline.trunk.handover import Handover
from trunkline.trunk.messages import Batch, Stop, Stopped, Subscribe, TrunkMessage

DIAMOND = [("o", "p"), ("o", "q"), ("p", "x"), ("q", "x"), ("x", "y")]
"""x takes o through p, and can take it through q; y takes it through x."""


def diamond(handover: Handover, delay: float = 0.05) -> Fleet:
    fleet = Fleet(DIAMOND, handover=handover, delay=delay)
    assert fleet.parents["x"]["o"] == "p"
    return fleet


def write(fleet: Fleet, number: int, each: float = 0.01) -> None:
    for _ in range(number):
        fleet.commit("o", "*")
        fleet.run(each, step=each)


def has_everything(fleet: Fleet, number: int) -> bool:
    return all(fleet.got(site, "o") == list(range(1, number + 1)) for site in ("p", "q", "x", "y"))


def test_s10_an_exact_hand_over_under_load_loses_nothing_and_nothing_crosses_twice() -> None:
    fleet = diamond(Handover.EXACT)
    write(fleet, 50)
    fleet.accepted.clear()
    fleet.move("x", "o", "q")
    write(fleet, 100)
    fleet.run(3.0)
    assert has_everything(fleet, 150)
    again = fleet.twice()
    assert {(a, b) for a, b, _, _ in again} <= {("o", "q")}, "only what q had passed by is fetched for x from the origin"
    assert len(again) <= 30, "and that is what was written in two round trips"
    copies = [(a, b) for a, b, origin, _ in fleet.crossed if b == "x" and origin == "o"]
    assert len(copies) == 150
    assert copies.count(("q", "x")) > 50
    assert fleet.accepted == [("x", "o", "q")]


def test_an_exact_hand_over_waits_for_stopped_and_subscribes_from_there() -> None:
    fleet = diamond(Handover.EXACT)
    write(fleet, 20)
    before = fleet.now
    fleet.move("x", "o", "q")
    write(fleet, 20)
    order = [(a, b, type(m)) for at, a, b, m in fleet.sent if at >= before and {a, b} & {"p", "q"} and "x" in (a, b)]
    order = [what for what in order if what[2] in (Stop, Stopped, Subscribe)]
    assert order[:3] == [("x", "p", Stop), ("p", "x", Stopped), ("x", "q", Subscribe)]
    (stopped,) = (m.upto for _, _, m in fleet.messages(Stopped, before) if isinstance(m, Stopped))
    subscribe = next(m for a, b, m in fleet.messages(Subscribe, before) if (a, b) == ("x", "q"))
    assert isinstance(subscribe, Subscribe)
    assert subscribe.wants["x"].clients["policy"].seq == subscribe.wants["y"].clients["policy"].seq == stopped


def test_a_seamless_hand_over_never_stands_still() -> None:
    fleet = diamond(Handover.SEAMLESS)
    write(fleet, 50)
    fleet.accepted.clear()
    arrived: list[tuple[float, int]] = []
    fleet.move("x", "o", "q")
    for _ in range(100):
        write(fleet, 1)
        arrived.append((fleet.now, len(fleet.got("x", "o"))))
    fleet.run(3.0)
    assert has_everything(fleet, 150)
    assert all(later[1] > earlier[1] for earlier, later in zip(arrived, arrived[3:], strict=False)), (
        "something came all the time"
    )
    assert fleet.accepted == [("x", "o", "q")]
    fleet.crossed.clear()
    write(fleet, 10)
    fleet.run(1.0)
    assert {a for a, b, origin, _ in fleet.crossed if b == "x" and origin == "o"} == {"q"}


@pytest.mark.parametrize("handover", Handover)
def test_a_quiet_origin_is_handed_over_too(handover: Handover) -> None:
    fleet = diamond(handover)
    fleet.accepted.clear()
    fleet.move("x", "o", "q")
    fleet.run(3.0)
    assert fleet.accepted == [("x", "o", "q")]
    write(fleet, 3)
    fleet.run(1.0)
    assert has_everything(fleet, 3)
    assert not [key for key in fleet.crossed if key[:2] == ("p", "x") and key[2] == "o"]


@pytest.mark.parametrize("handover", Handover)
def test_the_former_parent_is_gone_in_the_middle(handover: Handover) -> None:
    fleet = diamond(handover)
    write(fleet, 20)
    fleet.move("x", "o", "q")
    write(fleet, 3)
    fleet.cut("p", "x")
    write(fleet, 20)
    fleet.run(3.0)
    assert has_everything(fleet, 43)


@pytest.mark.parametrize("handover", Handover)
def test_the_new_parent_is_gone_in_the_middle(handover: Handover) -> None:
    fleet = diamond(handover)
    write(fleet, 20)
    fleet.move("x", "o", "q")
    write(fleet, 3)
    fleet.cut("q", "x")
    fleet.move("x", "o", "p", gently=False)
    write(fleet, 20)
    fleet.run(6.0)
    assert has_everything(fleet, 43)
    assert fleet.accepted[-1] == ("x", "o", "p")


@pytest.mark.parametrize("lost", [Stop, Stopped])
def test_a_lost_stop_or_stopped_costs_a_moment_and_no_entry(lost: type[TrunkMessage]) -> None:
    fleet = diamond(Handover.EXACT)
    write(fleet, 20)
    fleet.lose = lambda sender, to, message: isinstance(message, lost) and {sender, to} == {"p", "x"}
    fleet.move("x", "o", "q")
    write(fleet, 20)
    fleet.run(12.0)
    assert has_everything(fleet, 40)
    assert fleet.carriers["x"].counters["p", "not_stopped"] == 1
    assert fleet.accepted[-1] == ("x", "o", "q")


def test_a_stop_that_was_lost_once_is_said_again() -> None:
    fleet = diamond(Handover.EXACT)
    write(fleet, 20)
    lost: list[TrunkMessage] = []

    def lose(sender: str, to: str, message: TrunkMessage) -> bool:
        if isinstance(message, Stop) and not lost:
            lost.append(message)
            return True
        return False

    fleet.lose = lose
    fleet.move("x", "o", "q")
    write(fleet, 400)
    fleet.run(3.0)
    assert len(lost) == 1
    assert has_everything(fleet, 420)
    counters = fleet.carriers["x"].counters
    assert (counters["p", "not_stopped"], counters["p", "stray"]) == (0, 0)


def test_s10_a_stopped_that_is_long_on_its_way_behind_records_is_waited_for() -> None:
    fleet = diamond(Handover.EXACT)
    write(fleet, 20)
    fleet.delay = 1.2
    fleet.move("x", "o", "q")
    write(fleet, 100, each=0.1)
    fleet.run(20.0)
    assert has_everything(fleet, 120)
    counters = fleet.carriers["x"].counters
    assert (counters["p", "not_stopped"], counters["p", "stray"]) == (0, 0)


def test_a_forced_move_does_not_wait() -> None:
    fleet = diamond(Handover.EXACT)
    write(fleet, 20)
    fleet.cut("p", "x")
    before = fleet.now
    fleet.move("x", "o", "q", gently=False)
    assert [(a, b) for a, b, _ in fleet.messages(Subscribe, before)] == [("x", "q")], "in the same moment"
    write(fleet, 10)
    fleet.run(1.0)
    assert has_everything(fleet, 30)


def test_a_move_to_the_present_parent_is_answered_at_once_and_changes_nothing() -> None:
    fleet = diamond(Handover.EXACT)
    fleet.accepted.clear()
    before = fleet.now
    fleet.move("x", "o", "p")
    assert fleet.accepted == [("x", "o", "p")]
    assert fleet.messages(Subscribe, before) == []


def test_a_move_to_nobody_ends_the_stream() -> None:
    fleet = diamond(Handover.EXACT)
    fleet.move("x", "o", None)
    fleet.run(1.0)
    write(fleet, 3)
    fleet.run(3.0)
    assert fleet.got("x", "o") == fleet.got("y", "o") == []
    assert fleet.got("p", "o") == [1, 2, 3]


def test_s26_taken_from_any_the_first_that_brings_something_is_the_parent_and_the_others_are_stopped() -> None:
    fleet = diamond(Handover.EXACT)
    write(fleet, 5)
    fleet.run(1.0)
    fleet.lose = lambda sender, to, message: isinstance(message, Batch) and (sender, to) == ("o", "p")
    write(fleet, 5)
    fleet.run(1.0)
    assert fleet.got("x", "o") == list(range(1, 6)), "p has nothing more to give"
    fleet.accepted.clear()
    fleet.do("x", fleet.carriers["x"].take_from_any("o", ["p", "q", "y"], fleet.now))
    fleet.run(1.0)
    assert fleet.accepted == [("x", "o", "q")]
    assert fleet.got("x", "o") == fleet.got("y", "o") == list(range(1, 11))
    fleet.lose = lambda sender, to, message: False
    fleet.run(6.0)
    fleet.crossed.clear()
    write(fleet, 5)
    fleet.run(2.0)
    assert has_everything(fleet, 15)
    assert {a for a, b, origin, _ in fleet.crossed if b == "x" and origin == "o"} == {"q"}
    assert fleet.twice() == {}
