"""In which order a site withdraws, moves and tells."""

from __future__ import annotations

import pytest
from topologies import Lone, path, rows_of

from trunkline.topology.effects import Manner, Move, Publish, Tell
from trunkline.topology.links import LinkRow
from trunkline.topology.messages import Told
from trunkline.topology.neighbours import Neighbour
from trunkline.topology.rows import Row
from trunkline.topology.settings import Settings
from trunkline.topology.topology import Topology

SQUARE = rows_of(b="x d", c="x d", d="b c")


def test_a_leader_begins_by_withdrawing_what_its_predecessor_heard() -> None:
    assert Lone(SQUARE).since() == [Publish(LinkRow(1, ()))]


def test_a_neighbour_is_published_and_told_only_when_it_accepted() -> None:
    lone = Lone({})
    lone.accepts = False
    lone.up("c")
    lone.since()
    lone.up("b")
    assert lone.since() == [Tell("b", Told((), full=True)), Move("b", "b", Manner.FIRST)]
    assert lone.core.rows == {}
    lone.take(lone.core.subscribed("b", "b", lone.now))
    told = Told((Row("b", "b", ("b",), 1),))
    assert lone.since() == [Publish(LinkRow(1, ("b",))), Tell("c", told), Tell("b", told)]


def test_a_lost_path_is_withdrawn_first_then_moved_and_told_when_accepted() -> None:
    lone = Lone(SQUARE)
    lone.up("b", "c")
    lone.wait()
    assert lone.vias() == {"b": "b", "c": "c", "d": "b"}
    lone.since()
    lone.accepts = False
    lone.down("b")
    withdrawn = [Publish(LinkRow(1, ("c",))), Tell("c", Told((), ("b", "d")))]
    assert lone.since() == [*withdrawn, Move("b", "c", Manner.FORCED), Move("d", "c", Manner.FORCED)]
    lone.wait()
    assert lone.since() == []
    lone.take(lone.core.subscribed("d", "c", lone.now))
    assert lone.since() == [Tell("c", Told((path("d", "c"),)))]


def test_a_path_that_others_lost_is_withdrawn_before_the_move_too() -> None:
    lone = Lone(SQUARE)
    lone.up("b", "c")
    lone.wait()
    lone.since()
    lone.accepts = False
    lone.links(b="x", d="c")
    lone.wait()
    gone = Told((), ("d",))
    assert lone.since() == [Tell("b", gone), Tell("c", gone), Move("d", "c", Manner.FORCED)]


def test_a_shorter_path_is_taken_gently_after_the_hold_down_and_told_when_accepted() -> None:
    lone = Lone(rows_of(b="x e", e="b d", c="x", d="e"), Settings(hold_seconds=2.0))
    lone.up("b", "c")
    lone.wait()
    lone.told("b", path("d", "e"))
    assert lone.vias()["d"] == "b"
    lone.links(c="x d", d="e c")
    lone.told("c", path("d"))
    lone.wait(1.9)
    lone.since()
    lone.accepts = False
    lone.wait(0.2)
    assert lone.since() == [Move("d", "c", Manner.GENTLE)]
    assert lone.vias()["d"] == "b"
    lone.take(lone.core.subscribed("d", "c", lone.now))
    assert lone.core.rows["d"] == path("d", "c")
    assert lone.since() == [Tell(site, Told((path("d", "c"),))) for site in "bc"]


def test_a_shorter_path_that_does_not_last_moves_nothing() -> None:
    lone = Lone(rows_of(b="x e", e="b d", c="x", d="e"))
    lone.up("b", "c")
    lone.wait()
    lone.told("b", path("d", "e"))
    lone.since()
    for hears in ("x d", "x", "x d", "x"):
        lone.links(c=hears)
        lone.told("c", path("d"))
        lone.wait(1.0)
    assert lone.moves() == []


def test_a_shorter_path_is_not_taken_before_it_is_fed() -> None:
    lone = Lone(rows_of(b="x e", e="b d", c="x", d="e"))
    lone.up("b", "c")
    lone.cursors = {"d": 50_000}
    lone.wait()
    lone.told("b", path("d", "e"))
    lone.links(c="x d")
    lone.since()
    lone.wait(3.0)
    assert lone.moves() == [], "c told no path yet"
    lone.told("c", path("d"))
    lone.progress("c", d=10)
    lone.wait(3.0)
    assert lone.moves() == [], "c is far behind"
    lone.progress("c", d=49_500)
    lone.wait(1.0)
    assert lone.moves() == [Move("d", "c", Manner.GENTLE)]


def test_waiting_ends_at_once_when_the_present_chain_fails() -> None:
    lone = Lone(rows_of(b="x e", e="b d", c="x", d="e"), Settings(hold_seconds=60.0))
    lone.up("b", "c")
    lone.wait()
    lone.told("b", path("d", "e"))
    lone.links(c="x d")
    lone.wait(1.0)
    assert lone.vias()["d"] == "b"
    lone.since()
    lone.told("b", path("d", "x", "c"))
    lone.wait()
    assert lone.moves() == [Move("d", "c", Manner.FORCED)]


def test_another_depth_through_the_same_parent_is_told_without_a_move() -> None:
    lone = Lone(rows_of(b="x d", d="b"))
    lone.up("b")
    lone.wait()
    lone.since()
    lone.links(b="x e", e="b d", d="e")
    lone.told("b", path("d", "e"))
    lone.wait()
    assert lone.core.rows["d"] == path("d", "b", "e")
    assert [e for e in lone.since() if not isinstance(e, Move) or e.origin == "d"][:1] == [
        Tell("b", Told((path("d", "b", "e"),)))
    ]


def test_an_equal_path_moves_nothing() -> None:
    lone = Lone(rows_of(b="x d", c="x", d="b"))
    lone.up("b", "c")
    lone.wait()
    lone.since()
    lone.links(c="x d", d="b c")
    lone.told("c", path("d"))
    lone.wait(10.0)
    assert lone.since() == []


def test_the_first_connected_wins_a_tie_and_what_was_chosen_stays() -> None:
    lone = Lone(SQUARE)
    lone.up("b", "c")
    lone.wait()
    assert lone.vias()["d"] == "b"
    lone.links(b="x")
    lone.wait()
    assert lone.vias()["d"] == "c"
    lone.links(b="x d")
    lone.told("b", path("d"))
    lone.wait(10.0)
    assert lone.vias()["d"] == "c"


def test_a_dear_link_is_heard_of_but_not_used_while_the_way_round_is_cheaper() -> None:
    lone = Lone(rows_of(b="x c", c="x b"), Settings(costs={"c": 5}))
    lone.up("b")
    lone.wait()
    lone.since()
    lone.up("c")
    lone.wait(5.0)
    assert lone.vias() == {"b": "b", "c": "b"}
    assert Publish(LinkRow(1, ("b", "c"), {"c": 5})) in lone.since()
    lone.down("b")
    assert lone.vias() == {"c": "c", "b": "c"}


def test_a_neighbour_that_is_only_served_is_told_and_never_taken_from() -> None:
    lone = Lone(SQUARE)
    lone.up("b", hears=False)
    lone.up("c")
    lone.wait()
    assert lone.vias() == {"b": "c", "c": "c", "d": "c"}
    assert any(isinstance(e, Tell) and e.site == "b" for e in lone.since())
    assert lone.core.table.own_row(1).hears == ("c",)


def test_links_that_are_up_before_a_leader_begins_count_from_then_on_with_all_they_said() -> None:
    lone = Lone(SQUARE)
    lone.up("b", "c")
    lone.told("b", path("d"))
    lone.wait()
    lone.since()
    lone.take(lone.core.begin(2, SQUARE, lone.now))
    lone.wait()
    effects = lone.since()
    assert effects[0] == Publish(LinkRow(2, ()))
    assert Publish(LinkRow(2, ("b", "c"))) in effects
    assert lone.vias() == {"b": "b", "c": "c", "d": "b"}
    assert lone.core.why("d").candidates[0].chain_valid


def test_nothing_is_done_before_a_leader_begins() -> None:
    topology = Topology("x")
    effects = topology.link_up(Neighbour("b", 1), 0.0) + topology.set_links(SQUARE, 0.0)
    effects += topology.told("b", Told((path("d"),)), 0.0) + topology.tick(1.0, {}, 0, ()) + topology.link_down("b", 2.0)
    assert effects == []


@pytest.mark.parametrize("answer", [("d", "c"), ("nobody", "b"), ("b", "c")])
def test_an_answer_nobody_waits_for_changes_nothing(answer: tuple[str, str]) -> None:
    lone = Lone(SQUARE)
    lone.up("b", "c")
    lone.wait()
    before = dict(lone.core.rows)
    lone.since()
    lone.take(lone.core.subscribed(*answer, lone.now))
    assert lone.since() == []
    assert lone.core.rows == before
