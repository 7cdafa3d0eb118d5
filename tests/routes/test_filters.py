"""Match and transform, as closures over batches."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.routes.event import Event
from trunkline.routes.filters import compile_match, compile_transform
from trunkline.routes.model import MatchConfig, TransformConfig


def matches(value: Any, **config: Any) -> bool:
    event = Event(payload=value)
    return compile_match(MatchConfig.model_validate(config), {})([event]) == [event]


ALARM = {"kind": "alarm", "level": 3, "on": True, "at": {"site": "a", "rack": 1}, "tags": ["x", "y"], "none": None}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({"kind": "alarm"}, True),
        ({"kind": "alert"}, False),
        ({"at": {"site": "a"}}, True),
        ({"at": {"site": "a", "rack": 2}}, False),
        ({"at": "a"}, False),
        ({"kind": {"alarm": 1}}, False),
        ({"kind": "alarm", "gone": None}, True),
        ({"none": None}, True),
        ({"kind": None}, False),
        ({"gone": "*"}, False),
        ({"none": "*"}, False),
        ({"at": "*"}, True),
        ({}, True),
        ("alarm", False),
        ({"level": 3.0}, True),
        ({"level": "3"}, False),
        ({"on": True}, True),
        ({"on": 1}, False),
        ({"at": {"rack": True}}, False),
        ({"tags": ["y", "x"]}, True),
        ({"tags": ["x"]}, False),
        ({"tags": ["x", "z"]}, False),
    ],
)
def test_a_pattern_is_contained_in_the_payload(pattern: Any, expected: bool) -> None:
    assert matches(ALARM, matcher="pattern", pattern=pattern) is expected


def test_an_array_may_be_longer_than_its_pattern_if_told_so() -> None:
    assert matches(ALARM, matcher="pattern", pattern={"tags": ["x"]}, exactArrayMatch=False)
    assert not matches(ALARM, matcher="pattern", pattern={"tags": ["z"]}, exactArrayMatch=False)


@pytest.mark.parametrize(
    ("path", "regex", "expected"),
    [
        (".kind", "^al", True),
        (".kind", "larm$", True),
        (".kind", "^larm", False),
        (".level", "^3$", True),
        (".tags[1]", "y", True),
        (".at", '"site":"a"', True),
        (".gone", ".*", False),
        (".none", ".*", False),
    ],
)
def test_a_regex_looks_into_the_text_at_its_path(path: str, regex: str, expected: bool) -> None:
    assert matches(ALARM, path=path, pattern=regex) is expected


def test_deny_keeps_back_what_allow_lets_pass() -> None:
    batch = [Event(payload={"n": n % 3}) for n in range(9)]
    config = {"matcher": "pattern", "pattern": {"n": 1}}
    allowed = compile_match(MatchConfig.model_validate(config), {})(batch)
    denied = compile_match(MatchConfig.model_validate({**config, "mode": "deny"}), {})(batch)
    assert [e.payload["n"] for e in allowed] == [1, 1, 1]
    assert [e.payload["n"] for e in denied] == [0, 2] * 3


def test_a_pattern_can_look_at_metadata() -> None:
    config = MatchConfig.model_validate({"matcher": "pattern", "path": "metadata", "pattern": {"from": "api"}})
    mine, other = Event(payload=1, metadata={"from": "api"}), Event(payload=1, metadata={"from": "x"})
    assert compile_match(config, {})([other, mine]) == [mine]


def test_transform_builds_a_new_payload_and_keeps_the_metadata() -> None:
    event = Event(payload={"a": {"b": [1]}}, metadata={"m": "x"})
    config = TransformConfig(transformation={"was": "{payload.a.b}", "by": "{site}"})
    (made,) = compile_transform(config, {"site": "leaf"})([event])
    assert made.payload == {"was": [1], "by": "leaf"}
    assert made.metadata == {"m": "x"}
    assert event.payload == {"a": {"b": [1]}}


def test_transform_can_replace_the_metadata_too() -> None:
    config = TransformConfig(transformation="{payload}", metadata={"key": "{payload.id}", "old": "{metadata.m}"})
    (made,) = compile_transform(config, {})([Event(payload={"id": 5}, metadata={"m": "x"})])
    assert made.payload == {"id": 5}
    assert made.metadata == {"key": 5, "old": "x"}


def test_the_event_as_it_entered_survives_several_transforms() -> None:
    first = Event(payload={"id": 1})
    step = compile_transform(TransformConfig(transformation={"inner": "{payload}"}), {})
    (twice,) = step(step([first]))
    assert twice.payload == {"inner": {"inner": {"id": 1}}}
    assert twice.origin is first
