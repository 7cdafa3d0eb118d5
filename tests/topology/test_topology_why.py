"""Why an origin comes from where it comes."""

from __future__ import annotations

from topologies import Lone, path, rows_of

from trunkline.topology.effects import Manner
from trunkline.topology.neighbours import NeighbourView
from trunkline.topology.rows import Row
from trunkline.topology.settings import Settings

SQUARE = rows_of(b="x d", c="x d", d="b c")


def test_the_choice_its_reason_and_since_when() -> None:
    lone = Lone(SQUARE)
    lone.up("b", "c")
    chosen_after = lone.now
    lone.wait()
    lone.told("b", path("d"))
    lone.progress("b", d=7)
    why = lone.core.why("d")
    assert why.row == path("d", "b")
    assert why.since is not None
    assert chosen_after <= why.since <= lone.now
    assert why.manner is Manner.FIRST
    assert why.reason == "cost 2 is the least; 1 more at the same cost: what was chosen stays"
    first, second = why.candidates
    assert (first.via, first.chosen, first.cost, first.depth, first.path) == ("b", True, 2, 2, ("b", "d"))
    assert (first.chain_valid, first.cursor, first.note) == (True, 7, "")
    assert (second.via, second.chosen, second.chain_valid, second.note) == ("c", False, False, "told no path yet")


def test_a_shorter_path_that_is_waited_for() -> None:
    lone = Lone(rows_of(b="x e", e="b d", c="x", d="e"), Settings(hold_seconds=2.0))
    lone.up("b", "c")
    lone.told("b", path("d", "e"))
    lone.wait()
    lone.links(c="x d")
    lone.wait()
    assert lone.core.why("d").reason == (
        "b works, though cost 2 is to be had; something shorter is there and is taken when it was stable for 2 s"
    )


def test_what_is_asked_damped_or_out_of_reach() -> None:
    lone = Lone(SQUARE)
    lone.up("b", "c")
    lone.wait()
    lone.down("c")
    lone.up("c")
    lone.accepts = False
    lone.up("z")
    notes = {candidate.via: candidate.note for candidate in lone.core.why("d").candidates}
    assert notes == {
        "b": "told no path yet",
        "c": "damped: the link was lost lately",
        "z": "asked for its records, not yet accepted",
    }
    assert lone.core.why("z").reason == "z was asked and has not accepted yet"
    nowhere = lone.core.why("nowhere")
    assert (nowhere.row, nowhere.since, nowhere.manner, nowhere.reason) == (None, None, None, "no neighbour can reach it")
    assert nowhere.candidates[0].cost is None
    assert nowhere.candidates[0].note == "cannot reach it"


def test_neighbours_as_people_see_them() -> None:
    lone = Lone(SQUARE, Settings(costs={"b": 2}))
    lone.up("b")
    lone.up("c", hears=False, capable=False)
    assert lone.core.neighbours() == (
        NeighbourView("b", 100.0, True, True, 2, None, 0),
        NeighbourView("c", 100.0, False, False, 1, None, 0),
    )


def test_check_names_every_rule_that_is_broken() -> None:
    lone = Lone(SQUARE)
    lone.up("b", "c")
    lone.told("b", path("d"))
    lone.wait()
    assert lone.core.check() == []
    rows, good = lone.core.table.rows, dict(lone.core.table.rows)
    for rule, origin, row in (
        ("R1", "b", Row("b", "b", ("b", "c", "b"), 3)),
        ("R2", "d", Row("d", "z", ("z", "d"), 2)),
        ("R3", "d", Row("d", "b", ("b", "e", "d"), 3)),
        ("R3", "d", Row("d", "b", ("b", "x", "d"), 3)),
        ("R4", "e", Row("e", "b", ("b", "e"), 2)),
        ("R5", "x", Row("x", "b", ("b", "x"), 2)),
    ):
        rows.update({**good, origin: row})
        assert any(found.startswith(rule) for found in lone.core.check()), (rule, lone.core.check())
        rows.clear()
        rows.update(good)
