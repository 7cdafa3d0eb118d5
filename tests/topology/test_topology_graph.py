"""The graph of who hears whom: costs, paths, what counts and what does not."""

from __future__ import annotations

from random import Random

import pytest
from topologies import rows_of

from trunkline.topology.graph import Graph
from trunkline.topology.links import LinkRow


def graph_of(rows: dict[str, LinkRow], site: str = "x") -> Graph:
    graph = Graph(site)
    for name, row in rows.items():
        graph.put(name, row)
    return graph


def offers(graph: Graph, neighbours: dict[str, int]) -> dict[str, tuple[int, str]]:
    """Origin → least cost and who offers it."""
    return {
        origin: (cost, "".join(site for i, site in enumerate(neighbours) if bits >> i & 1))
        for origin, (cost, bits) in graph.nearest(neighbours).items()
    }


def test_every_neighbour_at_the_least_distance_is_found() -> None:
    graph = graph_of(rows_of(b="x d", c="x d e", d="b c", e="c"))
    assert offers(graph, {"b": 1, "c": 1}) == {"b": (1, "b"), "c": (1, "c"), "d": (2, "bc"), "e": (2, "c")}


def test_no_path_runs_through_the_site_itself() -> None:
    graph = graph_of(rows_of(b="x", c="x"))
    assert offers(graph, {"b": 1}) == {"b": (1, "b")}
    assert graph.search("b").path("c") is None


def test_a_link_counts_in_the_direction_it_is_heard() -> None:
    graph = graph_of(rows_of(b="", c="b"))
    assert "c" not in offers(graph, {"b": 1})
    assert offers(graph, {"c": 1})["b"] == (2, "c")


def test_a_dear_link_is_avoided_as_long_as_the_way_round_is_cheaper() -> None:
    rows = {"b": LinkRow(1, ("d",), {"d": 5}), "c": LinkRow(1, ("e",)), "e": LinkRow(1, ("d",))}
    graph = graph_of(rows)
    assert offers(graph, {"b": 1, "c": 1})["d"] == (3, "c")
    assert offers(graph, {"b": 1, "c": 4})["d"] == (6, "bc")
    assert graph.search("c").path("d") == ("c", "e", "d")


def test_a_cost_below_one_hop_counts_as_one_hop() -> None:
    graph = graph_of({"b": LinkRow(1, ("d",), {"d": -3})})
    assert offers(graph, {"b": 1})["d"] == (2, "b")


def test_a_site_that_does_not_relay_is_an_end_and_no_way() -> None:
    graph = graph_of({"b": LinkRow(1, ("d",), no_relay=True), "c": LinkRow(1, ("b",))})
    assert offers(graph, {"c": 1}) == {"c": (1, "c"), "b": (2, "c")}
    assert not graph.relays("b")
    assert graph.relays("c")


def test_h27_a_row_below_the_incarnation_of_hello_counts_as_empty() -> None:
    graph = graph_of(rows_of(b="d", d="b"))
    assert graph.incarnation("b", 2)
    assert "d" not in offers(graph, {"b": 1})
    assert not graph.put("b", LinkRow(1, ("d", "e")))
    assert graph.put("b", LinkRow(2, ("d",)))
    assert offers(graph, {"b": 1})["d"] == (2, "b")


def test_an_expired_row_attracts_nobody_but_paths_over_it_stand() -> None:
    graph = graph_of(rows_of(b="d"))
    assert graph.put("b", None)
    assert "d" not in offers(graph, {"b": 1})
    assert graph.stands(("b", "d"))
    assert not graph.fresh(("b", "d"))
    assert not graph.stands(("b", "e"))
    assert graph.put("b", LinkRow(1, ("e",)))
    assert not graph.stands(("b", "d"))


def test_a_row_that_says_the_same_again_changes_nothing_and_costs_no_search() -> None:
    graph = graph_of(rows_of(b="d"))
    first = graph.nearest({"b": 1})
    assert not graph.put("b", LinkRow(2, ("d",)))
    assert graph.nearest({"b": 1}) is first
    assert graph.searched == 1


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("dear", [False, True])
def test_the_one_search_agrees_with_a_search_from_every_neighbour(seed: int, dear: bool) -> None:
    random = Random(seed)
    sites = "abcdefghijkl"
    rows = {}
    for site in sites:
        hears = tuple(random.sample(sites, 3))
        rows[site] = LinkRow(1, hears, {hears[0]: random.randint(2, 5)} if dear else {}, no_relay=random.random() < 0.1)
    graph = graph_of(rows)
    neighbours = {site: random.randint(1, 3) if dear else 1 for site in random.sample(sites, 4)}
    through = {site: graph.search(site).costs for site in neighbours}
    wanted = {}
    for origin in {o for costs in through.values() for o in costs}:
        costs = {site: neighbours[site] + found[origin] for site, found in through.items() if origin in found}
        least = min(costs.values())
        wanted[origin] = least, "".join(site for site in neighbours if costs.get(site) == least)
    assert offers(graph, neighbours) == wanted


@pytest.mark.parametrize("seed", range(10))
def test_a_path_is_as_long_as_its_cost_and_runs_over_links_there_are(seed: int) -> None:
    random = Random(seed)
    sites = "abcdefghij"
    graph = graph_of({site: LinkRow(1, tuple(random.sample(sites, 3))) for site in sites})
    search = graph.search("a")
    for origin, cost in search.costs.items():
        way = search.path(origin)
        assert way is not None
        assert (way[0], way[-1], len(way)) == ("a", origin, cost + 1)
        assert graph.fresh(way)
