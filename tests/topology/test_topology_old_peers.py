"""Neighbours that cannot choose what they send, and origins that no link row names."""

from __future__ import annotations

from topologies import Lone, path, rows_of

from trunkline.topology.effects import Manner, Move, Tell
from trunkline.topology.rows import Flag, Row
from trunkline.topology.settings import Settings


def with_old_neighbour(settings: Settings | None = None) -> Lone:
    """a is heard directly; b, which is old, sends what it has of a as well."""
    lone = Lone(rows_of(a="x"), settings)
    lone.up("a")
    lone.up("b", capable=False)
    lone.progress("a", {"a": 1000})
    lone.progress("b", a=990)
    lone.cursors = {"a": 1000}
    lone.wait(5.0)
    return lone


def test_what_an_old_neighbour_sends_anyway_is_taken_from_it_and_refused_elsewhere() -> None:
    lone = with_old_neighbour()
    assert lone.core.rows == {
        "a": Row("a", "b", ("b", "a"), 2, (Flag.ALL,)),
        "b": Row("b", "b", ("b",), 1, (Flag.ALL,)),
    }
    assert lone.core.table.own_row(1).hears == ("a", "b")
    assert lone.core.why("a").reason == "b cannot choose what it sends, so it is taken there and nowhere else"
    assert lone.core.check() == []


def test_an_old_neighbour_that_is_far_behind_is_no_parent() -> None:
    lone = with_old_neighbour(Settings(lag_limit=100))
    assert lone.vias()["a"] == "b"
    lone.since()
    lone.progress("a", {"a": 1091})
    lone.wait(1.0)
    assert lone.moves() == [Move("a", "a", Manner.FORCED)]
    assert lone.core.rows["a"] == Row("a", "a", ("a",), 1)


def test_an_old_neighbour_far_behind_is_better_than_nobody() -> None:
    lone = with_old_neighbour(Settings(lag_limit=100))
    lone.progress("a", {"a": 5000, "z": 5000})
    lone.progress("b", a=990, z=1)
    lone.wait(5.0)
    assert lone.vias() == {"a": "a", "b": "b", "z": "b"}


def test_an_old_neighbour_is_told_nothing() -> None:
    lone = with_old_neighbour()
    assert not [e for e in lone.effects if isinstance(e, Tell) and e.site == "b"]


def test_an_old_neighbour_is_no_way_to_what_it_does_not_have() -> None:
    lone = Lone(rows_of(b="x d", d="b"))
    lone.up("b", capable=False)
    lone.wait(1.0)
    assert "d" in lone.vias(), "a link row of it is as good as another's"
    lone = Lone({})
    lone.up("b", capable=False)
    lone.wait(1.0)
    assert lone.vias() == {"b": "b"}


def test_of_two_old_neighbours_the_first_is_the_parent_of_all_it_has() -> None:
    lone = Lone({})
    lone.up("b", "c", capable=False)
    lone.progress("c", d=5, e=5)
    lone.progress("b", d=5)
    lone.wait(5.0)
    assert lone.vias() == {"b": "b", "c": "c", "d": "b", "e": "c"}


def test_an_origin_that_only_heads_name_comes_from_the_default_carrier() -> None:
    lone = Lone(rows_of(b="x", c="x"))
    lone.up("b", "c")
    lone.wait()
    assert lone.core.default_carrier() == "b"
    lone.since()
    lone.progress("c", {"new": 3})
    lone.wait()
    assert lone.moves() == [Move("new", "b", Manner.FIRST)]
    assert "new" not in lone.core.rows
    assert lone.core.why("new").reason == "no link row names it yet: the default carrier b is asked"


def test_the_row_of_a_new_origin_arrives_and_it_is_taken_where_it_is_nearest() -> None:
    lone = Lone(rows_of(b="x", c="x"))
    lone.up("b", "c")
    lone.progress("c", {"new": 3})
    lone.wait()
    lone.since()
    lone.links(c="x new", new="c")
    lone.wait()
    assert lone.moves() == [Move("new", "c", Manner.FORCED)]
    assert lone.core.rows["new"] == path("new", "c")


def test_a_new_origin_that_the_default_carrier_is_near_to_is_not_moved() -> None:
    lone = Lone(rows_of(b="x", c="x"))
    lone.up("b", "c")
    lone.progress("c", {"new": 3})
    lone.wait()
    lone.since()
    lone.links(b="x new", new="b")
    lone.wait()
    assert lone.moves() == []
    assert lone.core.rows["new"] == path("new", "b")


def test_an_origin_that_died_is_not_unknown() -> None:
    lone = Lone(rows_of(b="x d", d="b"))
    lone.up("b")
    lone.progress("b", {"d": 3})
    lone.wait()
    lone.links(b="x")
    lone.progress("b", {"d": 4})
    lone.wait(1.0)
    assert lone.vias() == {"b": "b"}
    assert lone.core.why("d").reason == "no neighbour can reach it"


def test_this_site_itself_is_never_an_unknown_origin() -> None:
    lone = Lone({})
    lone.up("b")
    lone.progress("b", {"x": 3})
    lone.wait(1.0)
    assert lone.vias() == {"b": "b"}
    assert lone.core.why("x").reason == "these are this site's own records"


def test_without_a_neighbour_there_is_no_default_carrier() -> None:
    assert Lone({}).core.default_carrier() is None
