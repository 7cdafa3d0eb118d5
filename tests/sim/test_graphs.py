"""Graphs by name, and whom a site can hear in them."""

from __future__ import annotations

import pytest

from trunkline.core.errors import Invalid
from trunkline.node.sim.graphs import graph
from trunkline.node.sim.setup import Setup, distances


def links(text: str, seed: int = 0) -> str:
    return " ".join(a + b for a, b in graph(text, seed).links)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chain:4", "ab bc cd"),
        ("ring:4", "ab bc cd da"),
        ("ring:2", "ab"),
        ("star:4", "ab ac ad"),
        ("mesh:4", "ab ac ad bc bd cd"),
        ("house", "ab ac bc bd ce de"),
        ("grid:2x3", "ab ad bc be cf de ef"),
    ],
)
def test_a_name_gives_its_links_in_order(name: str, expected: str) -> None:
    assert links(name) == expected


def test_a_random_graph_is_joined_and_another_one_for_every_seed() -> None:
    found = {links("random:9", seed) for seed in range(5)}
    assert len(found) == 5
    assert links("random:9", 3) == links("random:9", 3)
    for seed in range(5):
        setup = graph("random:9", seed)
        assert len(distances(setup.heard, "a")) == 9


def test_more_sites_than_letters_have_numbers() -> None:
    assert graph("star:30").links[0] == ("s01", "s02")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("mush:4", "there is none of that name"),
        ("mesh", "there is none"),
        ("mesh:1", "it has 1 sites"),
        ("grid:20x20", "it has 400"),
    ],
)
def test_what_is_no_graph_is_refused(name: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        graph(name)


def test_who_follows_hears_and_is_not_heard() -> None:
    setup = Setup((("b", "a"), ("c", "b")), frozenset({("b", "a"), ("c", "b")}))
    assert setup.heard == {"a": (), "b": ("a",), "c": ("b",)}
    assert setup.reach == {"a": frozenset(), "b": frozenset("a"), "c": frozenset("ab")}
