"""dedup: what was seen before is kept back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from running_filters import applied, run
from trunkline.routes.event import Event
from trunkline.routes.filters.dedup import DEDUP, Dedup, DedupConfig, compile_dedup
from trunkline.routes.plugin import Around


def dedup(**config: Any) -> Dedup:
    return compile_dedup(DedupConfig.model_validate(config), Around())


def events(*payloads: Any) -> list[Event]:
    return [Event(payload=payload) for payload in payloads]


def passed(filter: Dedup, *payloads: Any) -> list[Any]:
    return [event.payload for event in applied(filter, events(*payloads))]


def test_s29_dedup_of_five_equal_events_gives_one() -> None:
    five = events(*[{"foo": "bar"}] * 5)
    assert applied(dedup(), five) == five[:1]

    by_one = dedup()
    assert [applied(by_one, [event]) for event in five] == [five[:1], [], [], [], []]


def test_s19_two_unnamed_dedups_have_states_of_their_own() -> None:
    assert DEDUP.stateful
    one, other = DEDUP.compile(DedupConfig(), Around()), DEDUP.compile(DedupConfig(), Around())
    five = events(*[{"foo": "bar"}] * 5)
    assert applied(one, five) == five[:1]
    assert applied(other, five) == five[:1]
    assert applied(one, five) == []


def test_the_path_says_what_is_compared() -> None:
    by_id = dedup(path=".id")
    assert passed(by_id, {"id": 1, "n": 1}, {"id": 1, "n": 2}, {"id": 2, "n": 3}) == [{"id": 1, "n": 1}, {"id": 2, "n": 3}]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        (1, 1.0, True),
        ({"a": [1, {"b": 2.0}]}, {"a": [1.0, {"b": 2}]}, True),
        (10**18, 1e18, True),
        (10**19, 1e19, True),
        (2**53 + 1, 2.0**53, False),
        (0, -0.0, True),
        (1, True, False),
        ({"a": 0}, {"a": False}, False),
        ("1", 1, False),
        ([1, 2], [2, 1], False),
        ({"a": None}, {}, False),
        (1.5, 1, False),
        (1e300, 2e300, False),
    ],
)
def test_values_are_compared_as_json_and_numbers_by_value(one: Any, other: Any, same: bool) -> None:
    assert len(passed(dedup(), one, other)) == (1 if same else 2)


def test_an_event_without_a_value_is_refused() -> None:
    good, bad = Event(payload={"id": 0}), Event(payload={})
    out, told = run(dedup(path=".id"), [bad, good, bad])
    assert out == [good]
    assert (told.events, told.reasons) == ([bad, bad], ["payload.id: a value is needed, found nothing"] * 2)


@pytest.mark.parametrize("depth", [300, 100_000])
def test_a_value_nested_too_deeply_is_refused_and_nothing_else(depth: int) -> None:
    deep: Any = 1
    for _ in range(depth):
        deep = [deep]
    good, bad = Event(payload=1), Event(payload=deep)
    out, told = run(dedup(), [bad, good])
    assert out == [good]
    assert len(told.events) == 1
    assert told.events[0] is bad
    assert told.reasons[0].startswith("payload: it cannot be written as JSON: ")


def test_the_oldest_is_forgotten_and_meeting_again_counts_as_new() -> None:
    two = dedup(cacheSize=2)
    assert passed(two, "a", "b", "a", "c") == ["a", "b", "c"]
    assert passed(two, "a") == []
    assert passed(two, "b") == ["b"]


def test_a_cache_of_nothing_lets_everything_pass() -> None:
    assert passed(dedup(cacheSize=0), 1, 1, 1) == [1, 1, 1]


def test_the_state_goes_on_elsewhere_and_a_batch_can_be_tried_again() -> None:
    first = dedup(cacheSize=3)
    passed(first, "a", "b")
    before = json.loads(json.dumps(first.state()))
    assert passed(first, "b", "c") == ["c"]
    first.restore(before)
    assert passed(first, "b", "c") == ["c"]

    smaller = dedup(cacheSize=1)
    smaller.restore(before)
    assert passed(smaller, "b", "a") == ["a"]
    nothing = dedup(cacheSize=0)
    nothing.restore(before)
    assert nothing.state() == []


@given(batches=st.lists(st.lists(st.integers(0, 6))), size=st.integers(0, 5))
def test_it_does_as_a_plain_list_would(batches: list[list[int]], size: int) -> None:
    filter, model = dedup(cacheSize=size), list[int]()
    for batch in batches:
        expected = []
        for value in batch:
            if value in model:
                model.remove(value)
            else:
                expected.append(value)
            model = [*model, value][-size:] if size else []
        assert passed(filter, *batch) == expected
        assert len(filter.state()) == len(model)


@pytest.mark.parametrize("size", [-1, 10_001, True])
def test_a_wrong_size_is_refused(size: Any) -> None:
    with pytest.raises(ValueError):
        DedupConfig.model_validate({"cacheSize": size})
