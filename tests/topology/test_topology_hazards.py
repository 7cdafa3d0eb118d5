"""Private policy and stale facts must not make loops (H26, H27)."""

from __future__ import annotations

from topologies import Fleet, Lone, path, rows_of

from trunkline.topology.effects import Manner, Move, Publish, Tell
from trunkline.topology.links import LinkRow
from trunkline.topology.messages import Told
from trunkline.topology.rows import Row
from trunkline.topology.settings import Settings


def test_h26_cost_and_no_relay_are_published() -> None:
    lone = Lone({}, Settings(no_relay=True, costs={"b": 3}))
    lone.up("b")
    lone.wait()
    assert Publish(LinkRow(1, ("b",), {"b": 3}, no_relay=True)) in lone.since()


def test_h26_a_forced_move_takes_the_first_candidate_whose_told_path_lacks_this_site() -> None:
    lone = Lone(rows_of(b="x d", c="x d", d="b c"))
    lone.up("d", "b", "c")
    lone.told("b", path("d", "x"))
    lone.told("c", path("d"))
    lone.wait()
    lone.since()
    lone.down("d")
    assert lone.moves() == [Move("d", "c", Manner.FORCED)]


def test_h26_else_any_neighbour_whose_told_path_lacks_this_site() -> None:
    lone = Lone(rows_of(b="x d", c="x e", e="c d", d="b e"))
    lone.up("d", "b", "c")
    lone.wait()
    lone.told("b", path("d", "x"))
    lone.told("c", path("d", "e"))
    lone.since()
    lone.down("d")
    assert Move("d", "c", Manner.FORCED) in lone.moves(), "b is nearer, but takes it through x"
    assert lone.core.rows["d"] == path("d", "c", "e")


def test_h26_without_any_it_waits_and_moves_as_soon_as_one_says_otherwise() -> None:
    lone = Lone(rows_of(b="x d", d="b"))
    lone.up("d", "b")
    lone.told("b", path("d", "x"))
    lone.wait()
    lone.since()
    lone.down("d")
    assert lone.moves() == []
    assert "d" not in lone.core.rows
    assert lone.core.why("d").reason == "every neighbour that is near it takes it through this site"
    lone.told("b", path("d"))
    lone.wait()
    assert lone.moves() == [Move("d", "b", Manner.FORCED)]
    assert lone.core.rows["d"] == path("d", "b")


def test_h26_no_path_through_a_site_that_does_not_relay_even_if_it_told_one() -> None:
    links = {"b": LinkRow(1, ("x", "d"), no_relay=True), "d": LinkRow(1, ("b",))}
    lone = Lone(links)
    lone.up("b")
    lone.told("b", path("d"))
    lone.progress("b", d=100)
    lone.wait(10.0)
    assert lone.vias() == {"b": "b"}


def test_h26_costs_that_only_their_sites_set_make_no_loop() -> None:
    dear = Settings(costs={"d": 10})
    fleet = Fleet(("ab", "bc", "ca", "ad", "bd", "cd"), a=dear, b=dear)
    fleet.run(5.0)
    assert fleet.violations == []
    assert {row for row in fleet.rows() if row[1] == "d"} == {"adc2", "bdc2", "cdd1"}
    fleet.cut("cd")
    fleet.run(5.0)
    assert {row for row in fleet.rows() if row[1] == "d"} == {"add1", "bdd1", "cdb2"}
    assert fleet.violations == []


def test_h27_a_link_row_below_the_neighbour_s_hello_counts_as_empty() -> None:
    lone = Lone(rows_of(b="x d", d="b"))
    lone.up("b", incarnation=2)
    lone.wait()
    assert lone.vias() == {"b": "b"}
    lone.take(lone.core.set_links({"b": LinkRow(2, ("d", "x"))}, lone.now))
    lone.wait()
    assert lone.vias() == {"b": "b", "d": "b"}


def test_h27_what_a_neighbour_told_before_its_link_was_lost_is_forgotten() -> None:
    lone = Lone(rows_of(b="x d", d="b"))
    lone.up("b")
    lone.told("b", path("d"))
    lone.wait()
    assert lone.core.why("d").candidates[0].chain_valid
    lone.down("b")
    lone.up("b", incarnation=2)
    assert not lone.core.why("d").candidates[0].chain_valid


def test_h27_a_changed_path_of_equal_depth_is_told_again() -> None:
    lone = Lone(rows_of(b="x d e", d="o", e="o"))
    lone.up("b")
    lone.told("b", path("o", "d"))
    lone.wait()
    assert lone.core.rows["o"] == path("o", "b", "d")
    lone.since()
    lone.told("b", path("o", "e"))
    lone.wait()
    assert lone.since() == [Tell("b", Told((path("o", "b", "e"),)))]


def test_a_told_path_that_comes_back_here_is_never_made_longer() -> None:
    lone = Lone(rows_of(b="x d", d="b"))
    lone.up("b")
    lone.wait()
    lone.told("b", Row("d", "x", ("x", "b", "d"), 3))
    lone.wait()
    assert lone.core.rows["d"] == path("d", "b")
    assert lone.core.check() == []


def test_h26_the_way_round_is_left_again_when_the_nearer_one_says_otherwise() -> None:
    lone = Lone(rows_of(b="x d", c="x e", e="c d", d="b e"))
    lone.up("d", "b", "c")
    lone.wait()
    lone.told("b", path("d", "x"))
    lone.told("c", path("d", "e"))
    lone.down("d")
    assert lone.vias()["d"] == "c"
    lone.wait(5.0)
    assert lone.vias()["d"] == "c"
    lone.since()
    lone.told("b", path("d"))
    lone.wait(1.0)
    assert Move("d", "b", Manner.GENTLE) in lone.moves()
