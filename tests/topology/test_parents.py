"""Which neighbour a site takes an origin from."""

from __future__ import annotations

import pytest

from trunkline.core.errors import RemoteProtocolError
from trunkline.topology.parents import LINK_ROWS, LinkRow, Topology


def rows(**hears: str) -> dict[str, LinkRow]:
    return {site: LinkRow(1, tuple(others.split())) for site, others in hears.items()}


CHAIN = rows(leaf="relay", relay="leaf hub", hub="relay")


def test_in_a_chain_everything_comes_through_the_one_neighbour() -> None:
    topology = Topology("leaf")
    assert topology.compute(["relay"], CHAIN)
    assert topology.parents() == {"relay": "relay", "hub": "relay"}
    assert topology.rows["hub"].path == ("relay", "hub")
    assert topology.rows["hub"].depth == 2


def test_a_shorter_path_wins() -> None:
    links = rows(a="b d", b="a c", c="b d", d="a c")
    topology = Topology("a")
    topology.compute(["b"], links)
    assert topology.rows["d"].depth == 3
    topology.compute(["b", "d"], links)
    assert topology.parents()["d"] == "d"


def test_among_equal_paths_the_first_connected_wins_and_stays() -> None:
    links = rows(a="b d", b="a c", c="b d", d="a c")
    topology = Topology("a")
    topology.compute(["d", "b"], links)
    assert topology.parents()["c"] == "d"
    topology.compute(["b", "d"], links)
    assert topology.parents()["c"] == "d"
    assert topology.moves == 0


def test_a_lost_neighbour_moves_only_what_came_through_it() -> None:
    links = rows(a="b c d", b="a c d", c="a b d", d="a b c")
    topology = Topology("a")
    topology.compute(["b", "c", "d"], links)
    topology.compute(["c", "d"], {**links, "b": LinkRow(1, ("c", "d"))})
    assert topology.parents() == {"b": "c", "c": "c", "d": "d"}
    assert topology.moves == 1


def test_no_path_runs_through_the_subscriber_itself() -> None:
    links = rows(a="b c", b="a", c="a")
    topology = Topology("a")
    topology.compute(["b", "c"], links)
    assert all("a" not in row.path for row in topology.rows.values())
    assert topology.parents() == {"b": "b", "c": "c"}


def test_an_origin_out_of_reach_has_no_row() -> None:
    topology = Topology("leaf")
    topology.compute(["relay"], CHAIN)
    topology.compute(["relay"], {**CHAIN, "relay": LinkRow(2, ("leaf",))})
    assert topology.parents() == {"relay": "relay"}


def test_a_new_leader_s_row_has_a_higher_version_than_any_of_its_predecessor() -> None:
    assert LinkRow(8, ()).version(1) > LinkRow(7, ()).version(2**31)


def test_an_unreadable_row_is_a_protocol_error() -> None:
    with pytest.raises(RemoteProtocolError):
        LINK_ROWS.decode(b"\x01")
