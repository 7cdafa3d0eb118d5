"""Merging: a total order, whoever brings the value first."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.store.values import MAX_VALUE, Outcome, Reason, Value, merge, refusal

values = st.builds(
    Value,
    version=st.integers(1, 3),
    originator=st.sampled_from(["a/n", "b/n", "bb/n"]),
    data=st.binary(max_size=2),
    ttl_ms=st.just(1000),
    ttl_version=st.integers(1, 3),
)


def merged(stored: Value | None, incoming: Value) -> Value:
    outcome = merge(stored, incoming)
    if outcome is Outcome.REPLACED or stored is None:
        return incoming
    if outcome is Outcome.REFRESHED:
        return Value(stored.version, stored.originator, stored.data, incoming.ttl_ms, incoming.ttl_version)
    return stored


@given(st.lists(values, min_size=1, max_size=6).flatmap(lambda vs: st.tuples(st.just(vs), st.permutations(vs))))
def test_any_order_gives_the_same_value(orders: tuple[list[Value], list[Value]]) -> None:
    first, second = (reduce(merged, order, None) for order in orders)
    assert first is not None
    assert second is not None
    assert first.rank() == second.rank()


@given(values)
def test_the_same_value_again_changes_nothing(value: Value) -> None:
    assert merge(value, value) is Reason.SAME


@pytest.mark.parametrize(
    ("stored", "incoming", "outcome"),
    [
        (None, Value(1, "a/n", b"x", 9), Outcome.REPLACED),
        (Value(2, "a/n", b"x", 9), Value(1, "b/n", b"y", 9), Reason.OLD),
        (Value(1, "a/n", b"x", 9), Value(2, "a/n", b"", 9), Outcome.REPLACED),
        (Value(1, "a/n", b"x", 9), Value(1, "b/n", b"a", 9), Outcome.REPLACED),
        (Value(1, "a/n", b"x", 9), Value(1, "a/n", b"y", 9), Outcome.REPLACED),
        (Value(1, "a/n", b"y", 9, 1), Value(1, "a/n", b"x", 9, 7), Reason.SAME),
        (Value(1, "a/n", b"x", 9, 1), Value(1, "a/n", b"x", 5, 2), Outcome.REFRESHED),
        (Value(1, "a/n", b"x", 9, 1), Value(1, "a/n", None, 5, 2), Outcome.REFRESHED),
        (Value(1, "a/n", b"x", 9, 2), Value(1, "a/n", None, 5, 2), Reason.SAME),
        (Value(2, "a/n", b"x", 9, 1), Value(1, "a/n", None, 5, 2), Reason.MISSING),
        (None, Value(1, "a/n", None, 5, 2), Reason.MISSING),
    ],
)
def test_who_wins(stored: Value | None, incoming: Value, outcome: object) -> None:
    assert merge(stored, incoming) is outcome


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("k", Value(1, "a/n", b"x", 9), None),
        ("k", Value(0, "a/n", b"x", 9), Reason.VERSION),
        ("k", Value(-3, "a/n", b"x", 9), Reason.VERSION),
        ("k", Value(1, "a/n", b"x", 0), Reason.TTL),
        ("k" * 257, Value(1, "a/n", b"x", 9), Reason.SIZE),
        ("k", Value(1, "a/n", b"x" * (MAX_VALUE + 1), 9), Reason.SIZE),
        ("node:a/n", Value(1, "a/n", b"x", 9), None),
        ("node:a/n", Value(1, "a/m", b"x", 9), Reason.OWNER),
        ("node:a/n", Value(1, "a/nn", b"x", 9), Reason.OWNER),
        ("link:a", Value(1, "a/n", b"x", 9), None),
        ("link:a", Value(1, "a/m", b"x", 9), None),
        ("link:a", Value(1, "ab/n", b"x", 9), Reason.OWNER),
        ("site:a", Value(1, "b/n", b"x", 9), Reason.OWNER),
    ],
)
def test_what_is_refused(key: str, value: Value, reason: Reason | None) -> None:
    assert refusal(key, value) is reason
