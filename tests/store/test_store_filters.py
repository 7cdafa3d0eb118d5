"""Filters: which keys a dump or a watch shows."""

from __future__ import annotations

import re

import pytest

from costs import cpu_seconds
from trunkline.core.errors import Invalid
from trunkline.store.filters import Filter, filter_of
from trunkline.store.values import MAX_KEY, sealed

ORIGINATORS = {"10.0.0.96": "node1", "10.0.0.128": "node3", "192.10.0.0": "node2", "192.168.0.0": "node3"}
VALUES = {key: sealed(key, 1, originator, b"", 1000) for key, originator in ORIGINATORS.items()}


def shown(wanted: Filter) -> list[str]:
    return [key for key, value in VALUES.items() if wanted.matches(key, value)]


@pytest.mark.parametrize(
    ("wanted", "keys"),
    [
        (filter_of(), list(VALUES)),
        (filter_of(every=True), list(VALUES)),
        (filter_of([r"10\.0\.0\."]), ["10.0.0.96", "10.0.0.128"]),
        (filter_of([r"10\.0\.0\."], every=True), ["10.0.0.96", "10.0.0.128"]),
        (filter_of(["10"]), ["10.0.0.96", "10.0.0.128"]),
        (filter_of([r"10\..*6", "192.168"]), ["10.0.0.96", "192.168.0.0"]),
        (filter_of(prefixes=["10.0.0.", "192.1"]), list(VALUES)),
        (filter_of(prefixes=["1.*"]), []),
        (filter_of(prefixes=[""]), list(VALUES)),
        (filter_of(["nothing"]), []),
        (filter_of(originators=["node1", "node2"]), ["10.0.0.96", "192.10.0.0"]),
        (filter_of(originators=["node1", "node2"], every=True), ["10.0.0.96", "192.10.0.0"]),
        (filter_of([r"10\.0\.0\."], ["node1", "node2"]), ["10.0.0.96", "10.0.0.128", "192.10.0.0"]),
        (filter_of([r"10\.0\.0\."], ["node1", "node2"], every=True), ["10.0.0.96"]),
        (filter_of(["nothing"], ["node2"]), ["192.10.0.0"]),
        (filter_of(["nothing"], ["node2"], every=True), []),
    ],
)
def test_s32_patterns_and_originators_any_or_every(wanted: Filter, keys: list[str]) -> None:
    assert shown(wanted) == keys
    assert all(wanted.may_match(key) for key in keys)


@pytest.mark.parametrize(
    ("wanted", "keys"),
    [
        (filter_of(["10"], ["node2"]), list(VALUES)),
        (filter_of(["10"], ["node2"], every=True), ["10.0.0.96", "10.0.0.128"]),
        (filter_of(originators=["node2"]), list(VALUES)),
        (filter_of(["10"]), ["10.0.0.96", "10.0.0.128"]),
    ],
)
def test_which_keys_may_match_whoever_their_originator_is(wanted: Filter, keys: list[str]) -> None:
    assert [key for key in VALUES if wanted.may_match(key)] == keys


@pytest.mark.parametrize("pattern", ["10.0.(", "[", "*", "(?P<n>a)(?P<n>b)", "x" * 257])
def test_s32_a_pattern_that_is_none_is_a_typed_error(pattern: str) -> None:
    with pytest.raises(Invalid):
        filter_of(["fine", pattern])


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*b",
        "(?:a|aa)*b",
        "(a*){20}",
        ".*.*.*.*x",
        "a{1,9}" * 4,
        "([*])*x",
        "a?" * 30 + "a" * 30,
        "(a|aa)" * 30 + "b",
    ],
)
def test_a_pattern_that_might_take_for_ever_is_a_typed_error(pattern: str) -> None:
    re.compile(pattern)
    with pytest.raises(Invalid, match="very long"):
        filter_of([pattern])


@pytest.mark.parametrize(
    "pattern", ["node:.*/.*", r"a\)+", r"(eu|us|ap)-.*:[0-9]+", r"\*\*\*\*\*", r"app/.*/[a-z*+?]+\)*", "[]*+?]x", "(?i)a.*?b"]
)
def test_ordinary_patterns_are_taken(pattern: str) -> None:
    assert filter_of([pattern]).patterns == (re.compile(pattern),)


def test_the_worst_pattern_that_is_taken_is_quick() -> None:
    [pattern] = filter_of(["a*a*a*b"]).patterns
    assert cpu_seconds(lambda: pattern.match("a" * MAX_KEY)) < 1.0
