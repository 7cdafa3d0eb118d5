"""Link rows that expired: what works stays, nothing new is chosen."""

from __future__ import annotations

from topologies import HOUSE, Fleet, Lone, path, rows_of

from trunkline.topology.effects import Manner, Move, Tell
from trunkline.topology.messages import Told
from trunkline.topology.rows import Flag


def settled() -> Lone:
    lone = Lone(rows_of(b="x d", c="x", d="b"))
    lone.up("b", "c")
    lone.told("b", path("d"))
    lone.wait()
    lone.since()
    return lone


def expire(lone: Lone, *sites: str) -> None:
    lone.take(lone.core.set_links(dict.fromkeys(sites), lone.now))
    lone.wait()


def test_an_expired_row_flags_the_paths_over_it_and_moves_nothing() -> None:
    lone = settled()
    expire(lone, "b", "c", "d")
    row = lone.core.rows["d"]
    assert (row.path, row.flags) == (("b", "d"), (Flag.STALE,))
    assert lone.core.rows["b"].flags == ()
    assert lone.since() == [Tell(site, Told((row,))) for site in "bc"]
    assert lone.core.why("d").reason == "link rows on its path expired; it works, so it stays"
    assert lone.core.check() == []


def test_it_heals_without_a_move() -> None:
    lone = settled()
    expire(lone, "b")
    lone.since()
    lone.links(b="x d")
    lone.wait(5.0)
    assert lone.moves() == []
    assert lone.core.rows["d"] == path("d", "b")


def test_a_row_that_returns_without_the_link_withdraws_it() -> None:
    lone = settled()
    expire(lone, "b")
    lone.since()
    lone.links(b="x")
    lone.wait()
    assert lone.moves() == [Move("d", None, Manner.FORCED)]


def test_a_stale_path_ends_when_the_parent_takes_it_back() -> None:
    lone = settled()
    expire(lone, "b")
    lone.told("b", gone="d")
    lone.wait()
    assert lone.vias() == {"b": "b", "c": "c"}


def test_a_stale_path_ends_with_its_neighbour() -> None:
    lone = settled()
    expire(lone, "b")
    lone.down("b")
    assert lone.vias() == {"c": "c"}


def test_a_fresh_path_of_the_same_length_does_not_attract_what_works() -> None:
    lone = settled()
    expire(lone, "b")
    lone.since()
    lone.links(c="x d")
    lone.told("c", path("d"))
    lone.wait(10.0)
    assert lone.moves() == []


def test_an_expired_row_attracts_no_new_choice() -> None:
    lone = settled()
    expire(lone, "b")
    lone.since()
    lone.links(d="b e", e="d")
    lone.told("b", path("e", "d"))
    lone.wait(5.0)
    assert "e" not in lone.vias()


def test_a_fleet_without_its_store_moves_nothing_and_heals() -> None:
    fleet = Fleet(HOUSE)
    fleet.run(5.0)
    before, mark = fleet.rows(), fleet.now
    for name, site in fleet.sites.items():
        fleet.do(name, site.core.set_links({other: None for other in site.stored if other != name}, fleet.now))
    fleet.run(10.0)
    assert fleet.rows() == before
    deep = [row for site in fleet.sites.values() for row in site.core.rows.values() if row.depth > 1]
    assert deep
    assert all(row.flags == (Flag.STALE,) for row in deep)
    for name, site in fleet.sites.items():
        fleet.do(name, site.core.set_links({o: row for o, (_, row) in site.stored.items() if o != name}, fleet.now))
    fleet.run(10.0)
    assert fleet.rows() == before
    assert not any(row.flags for site in fleet.sites.values() for row in site.core.rows.values())
    assert fleet.moves(mark) == []
    assert fleet.violations == []
