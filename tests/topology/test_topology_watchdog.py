"""An origin that stands still although there is more of it."""

from __future__ import annotations

import pytest
from topologies import Lone, path, rows_of

from trunkline.topology.effects import Manner, Move, TakeFromAny
from trunkline.topology.settings import Settings

STALL = 3 * 0.5
BOTH = rows_of(p="x o", q="x o", o="p q")


@pytest.fixture
def lone() -> Lone:
    """Takes o through p, is at 10, and could take it through q."""
    lone = Lone(BOTH)
    lone.up("p", "q")
    lone.told("p", path("o"))
    lone.told("q", path("o"))
    lone.cursors = {"o": 10}
    lone.progress("p", o=10)
    lone.progress("q", o=10)
    lone.wait(0.6)
    assert lone.vias()["o"] == "p"
    lone.since()
    return lone


def test_it_moves_to_the_neighbour_furthest_ahead(lone: Lone) -> None:
    lone.progress("q", o=20)
    lone.wait(STALL)
    assert lone.moves() == []
    lone.wait(0.6)
    assert lone.moves() == [Move("o", "q", Manner.FORCED)]
    assert lone.vias()["o"] == "q"
    assert lone.core.counts["watchdog"] == 1
    assert lone.core.counts["forced"] == 0


def test_it_does_not_go_back_to_an_equal_parent(lone: Lone) -> None:
    lone.progress("q", o=20)
    lone.wait(3.0)
    lone.cursors = {"o": 20}
    lone.progress("p", o=30)
    lone.since()
    lone.wait(1.0)
    assert lone.moves() == []


def test_while_it_gets_on_nothing_is_wrong(lone: Lone) -> None:
    for number in range(11, 30):
        lone.progress("q", {"o": 1000}, o=1000)
        lone.cursors = {"o": number}
        lone.wait(0.5)
    assert lone.moves() == []


def test_h15_no_watchdog_while_this_site_withholds_credit(lone: Lone) -> None:
    lone.withheld = {"o"}
    lone.progress("q", o=20)
    lone.wait(10.0)
    assert lone.moves() == []
    lone.withheld = set()
    lone.wait(1.4)
    assert lone.moves() == []
    lone.wait(1.0)
    assert lone.moves() == [Move("o", "q", Manner.FORCED)]


def test_nobody_is_ahead_but_the_log_is_so_all_are_asked_once(lone: Lone) -> None:
    lone.progress("q", {"o": 50})
    lone.wait(10.0)
    assert lone.moves() == [TakeFromAny("o", ("p", "q"))]
    lone.take(lone.core.subscribed("o", "q", lone.now))
    assert lone.vias()["o"] == "q"
    assert lone.core.check() == []


def test_all_are_asked_again_only_after_it_got_on_and_stood_still_again(lone: Lone) -> None:
    lone.progress("q", {"o": 50})
    lone.wait(3.0)
    lone.since()
    lone.cursors = {"o": 11}
    lone.wait(3.0)
    assert lone.moves() == [Move("o", "p", Manner.FORCED), TakeFromAny("o", ("p", "q"))]


def test_when_it_gets_on_one_parent_is_enough_whoever_brought_it(lone: Lone) -> None:
    for via in "pq":
        lone.progress("q", {"o": lone.cursors["o"] + 40})
        lone.wait(3.0)
        assert lone.moves() == [TakeFromAny("o", ("p", "q"))]
        lone.take(lone.core.subscribed("o", via, lone.now))
        lone.cursors = {"o": lone.cursors["o"] + 40}
        lone.wait(3.0)
        assert lone.moves() == [Move("o", via, Manner.FORCED)]
        assert lone.vias()["o"] == via
    assert lone.core.counts["watchdog"] == 0


def test_a_parent_that_is_the_only_one_ahead_is_asked_once_more_and_its_row_stays(lone: Lone) -> None:
    lone.progress("p", o=20)
    lone.accepts = False
    lone.wait(2.2)
    assert lone.since() == [Move("o", "p", Manner.FORCED)]
    assert lone.vias()["o"] == "p"


def test_with_one_neighbour_there_is_nobody_else_to_ask() -> None:
    lone = Lone(BOTH)
    lone.up("p")
    lone.wait()
    lone.progress("p", {"o": 50})
    lone.since()
    lone.wait(10.0)
    assert lone.moves() == []


def test_it_goes_back_to_the_shorter_path_only_when_that_moves_again_and_after_the_hold_down() -> None:
    lone = Lone(rows_of(p="x o", q="x r", r="q o", o="p r"), Settings(hold_seconds=2.0))
    lone.up("p", "q")
    lone.told("p", path("o"))
    lone.told("q", path("o", "r"))
    lone.cursors = {"o": 10}
    lone.progress("p", o=10)
    lone.progress("q", o=20)
    lone.wait(3.0)
    assert lone.vias()["o"] == "q"
    lone.cursors = {"o": 20}
    lone.since()
    lone.wait(20.0)
    assert lone.moves() == [], "p still stands"
    lone.progress("p", o=20)
    lone.wait(4.1)
    assert lone.moves() == [Move("o", "p", Manner.GENTLE)]


def test_a_neighbour_whose_own_records_are_awaited_is_left_to_its_link() -> None:
    lone = Lone(BOTH)
    lone.up("p", "q")
    lone.wait()
    lone.accepts = False
    lone.up("o")
    lone.since()
    lone.progress("q", {"o": 50}, o=50)
    lone.wait(10.0)
    assert lone.moves() == []
    lone.take(lone.core.subscribed("o", "o", lone.now))
    assert lone.vias()["o"] == "o"


def test_moves_that_bring_nothing_become_rarer_and_progress_makes_it_quick_again(lone: Lone) -> None:
    lone.progress("p", o=20)
    lone.progress("q", o=20)
    lone.wait(60.0)
    assert 4 <= lone.core.counts["watchdog"] <= 5
    lone.cursors = {"o": 11}
    lone.wait(0.6)
    lone.since()
    lone.wait(2.1)
    assert len(lone.moves()) == 1
