"""What is before each destination, by counts per round: B1 to B3 of `backlog.py`."""

from __future__ import annotations

import random

import pytest

from trunkline.core.ids import Position
from trunkline.queues.backlog import POINTS, Backlog, Behind, SlotEnd
from trunkline.queues.destinations import Destinations

HUB, SHOP, BOTH, ALL = 1, 2, 3, 4


@pytest.fixture
def backlog() -> Backlog:
    destinations = Destinations()
    destinations.add({HUB: ("hub",), SHOP: ("shop",), BOTH: ("hub", "shop"), ALL: ("*",)})
    return Backlog(destinations)


def test_nothing_is_behind_where_nothing_was_sent(backlog: Backlog) -> None:
    assert backlog.behind("hub", "app", 0) == Behind(0, 0)
    assert (backlog.last("hub", "app"), dict(backlog.last_for("hub"))) == (0, {})


def test_what_is_behind_is_counted_per_destination_and_client(backlog: Backlog) -> None:
    backlog.add(10, HUB, "app", 4, 400)
    backlog.add(10, SHOP, "app", 6, 60)
    backlog.add(20, BOTH, "app", 10, 100)
    backlog.add(20, HUB, "audit", 1, 7)
    assert backlog.behind("hub", "app", 0) == Behind(14, 500)
    assert backlog.behind("hub", "app", 10) == Behind(10, 100)
    assert backlog.behind("hub", "app", 20) == Behind(0, 0)
    assert backlog.behind("shop", "app", 0) == Behind(16, 160)
    assert backlog.behind("hub", "audit", 10) == Behind(1, 7)


def test_h17_the_last_seq_of_a_destination_is_the_higher_of_named_and_all(backlog: Backlog) -> None:
    backlog.add(5, ALL, "app", 1, 1)
    backlog.add(7, HUB, "app", 1, 1)
    backlog.add(9, ALL, "audit", 1, 1)
    assert dict(backlog.last_for("hub")) == {"app": 7, "audit": 9}
    assert dict(backlog.last_for("shop")) == {"app": 5, "audit": 9}
    backlog.add(11, ALL, "app", 1, 1)
    assert (backlog.last("hub", "app"), backlog.last("never seen", "app")) == (11, 11)


def test_b1_what_was_trimmed_counts_for_the_last_seq_too(backlog: Backlog) -> None:
    backlog.trimmed(HUB, "app", 30)
    backlog.add(40, SHOP, "app", 1, 1)
    assert dict(backlog.trimmed_for("hub")) == {"app": 30}
    assert dict(backlog.trimmed_for("shop")) == {}
    assert (backlog.last("hub", "app"), backlog.last("shop", "app")) == (30, 40)


def test_a_slot_ends_with_the_newest_round_that_has_rows_in_it(backlog: Backlog) -> None:
    backlog.stamped(Position(3, 7), [0], 100.0)
    backlog.stamped(Position(5, 8), [0, 1], 101.0)
    assert backlog.slots == {0: SlotEnd(Position(5, 8), 101.0), 1: SlotEnd(Position(5, 8), 101.0)}
    backlog.emptied(0)
    assert (list(backlog.slots), backlog.head) == ([1], 5)


@pytest.mark.parametrize("seed", range(5))
def test_b2_over_long_histories_it_says_more_and_never_less(backlog: Backlog, seed: int) -> None:
    rng = random.Random(seed)
    rounds = [(seq, rng.randint(1, 9)) for seq in range(1, 8 * POINTS)]
    for seq, entries in rounds:
        backlog.add(seq, HUB, "app", entries, 10 * entries)
    total = sum(entries for _, entries in rounds)
    newest = len(rounds)
    for seq in rng.sample(range(newest), 200):
        true = sum(entries for at, entries in rounds if at > seq)
        said = backlog.behind("hub", "app", seq)
        assert true <= said.entries <= total
        assert said.bytes == 10 * said.entries
    for seq in range(newest - POINTS // 4, newest):
        assert backlog.behind("hub", "app", seq).entries == sum(e for at, e in rounds if at > seq), "exact near the head"
