"""Rebalancing: parents at equal cost with fewer children."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from topologies import Fleet

from trunkline.topology.balance import Balance
from trunkline.topology.effects import Manner
from trunkline.topology.settings import Settings

LEAVES = "abcdef"


def children_of(fleet: Fleet) -> Counter[str]:
    return Counter(fleet.sites[leaf].core.rows["o"].via for leaf in LEAVES)


def six_leaves(rebalance: bool, seed: int) -> Fleet:
    """All take o through p, because q came later."""
    fleet = Fleet(["po", *(leaf + "p" for leaf in LEAVES)], Settings(rebalance=rebalance), seed=seed)
    fleet.run(5.0)
    for link in ("qo", *(leaf + "q" for leaf in LEAVES)):
        fleet.connect(link)
    fleet.run(5.0)
    assert children_of(fleet) == {"p": 6}
    return fleet


@pytest.mark.parametrize("seed", range(2))
def test_children_are_spread_with_few_moves(seed: int) -> None:
    fleet = six_leaves(rebalance=True, seed=seed)
    mark = fleet.now
    fleet.run(300.0)
    moves = [(name, move) for name, move in fleet.moves(mark) if move.origin == "o"]
    assert sorted(children_of(fleet).values()) in ([3, 3], [2, 4])
    assert len(moves) <= 3
    assert {move.manner for _, move in moves} == {Manner.GENTLE}
    assert fleet.wrong() == []


def test_off_by_default_nothing_moves() -> None:
    fleet = six_leaves(rebalance=False, seed=1)
    mark = fleet.now
    fleet.run(120.0)
    assert fleet.moves(mark) == []
    assert children_of(fleet) == {"p": 6}


def test_a_difference_of_one_is_balance() -> None:
    balance = Balance(30.0, lambda: 0.0)
    loads = {"p": 4, "q": 3}
    assert balance.move([("o", "p", ("p", "q"))], lambda via, origin: loads[via]) is None
    loads["p"] = 5
    assert balance.move([("o", "p", ("p", "q"))], lambda via, origin: loads[via]) == ("o", "q")


def test_the_larger_the_difference_the_less_likely_each_moves() -> None:
    random = Random(1)
    balance = Balance(30.0, random.random)
    loads = {"p": 11, "q": 0}
    moved = sum(balance.move([("o", "p", ("p", "q"))], lambda via, origin: loads[via]) is not None for _ in range(1000))
    assert 60 < moved < 140


def test_a_site_looks_once_per_period_at_a_moment_of_its_own() -> None:
    balance = Balance(30.0, lambda: 0.5)
    looks = [now for now in range(200) if balance.is_due(float(now))]
    assert looks == [45, 75, 105, 135, 165, 195]
