"""What is offered after a refusal: a queue with some messages that are always refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.queues.attempts import Attempts


def deliver(count: int, poison: set[int], tries: int | None, batch: int, rounds: int = 5000) -> tuple[list[int], list[int]]:
    """(accepted, given up) when exactly those messages are refused, each in order."""
    attempts, at = Attempts(tries), 0
    accepted: list[int] = []
    given_up: list[int] = []
    for _ in range(rounds):
        if at == count:
            break
        offered = range(at, min(count, at + attempts.most(batch)))
        assert len(offered) > 0
        if not poison & set(offered):
            accepted += offered
            at += len(offered)
            attempts.accepted(len(offered))
        elif attempts.refused(len(offered)):
            assert len(offered) == 1, "only what was refused alone is given up"
            given_up.append(at)
            at += 1
            attempts.accepted(1)
    return accepted, given_up


@given(st.integers(1, 60), st.sets(st.integers(0, 59)), st.integers(1, 5), st.integers(1, 40))
def test_l4_exactly_the_refused_messages_are_given_up_and_all_others_come_once_in_order(
    count: int, poison: set[int], tries: int, batch: int
) -> None:
    accepted, given_up = deliver(count, poison, tries, batch)
    assert accepted == [n for n in range(count) if n not in poison]
    assert given_up == [n for n in range(count) if n in poison]


def test_l2_without_a_number_of_tries_nothing_passes_a_refused_batch() -> None:
    assert deliver(10, {3}, None, 5) == ([], [])


def test_a_batch_is_offered_whole_until_the_tries_are_used_up_and_then_by_halves() -> None:
    attempts = Attempts(3)
    sizes = []
    for _ in range(6):
        sizes.append(attempts.most(8))
        attempts.refused(sizes[-1])
    assert sizes == [8, 8, 8, 4, 2, 1]


@pytest.mark.parametrize(("before", "given_up"), [(0, False), (1, False), (2, True), (9, True)])
def test_l4_tries_of_an_earlier_run_count(before: int, given_up: bool) -> None:
    assert Attempts(3, before).refused(1) is given_up


def test_after_the_suspects_are_passed_batches_are_whole_again() -> None:
    attempts = Attempts(1)
    attempts.refused(8)
    assert attempts.most(100) == 4
    attempts.accepted(4)
    assert attempts.most(100) == 4
    attempts.accepted(4)
    assert attempts.most(100) == 100
