"""Match and transform, over batches."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pydantic import ValidationError

from running_filters import applied, run
from trunkline.core.errors import Invalid
from trunkline.routes.event import Event
from trunkline.routes.filters.match import DENY, FILTER, MatchConfig, compile_match
from trunkline.routes.filters.transform import TransformConfig, compile_transform
from trunkline.routes.plugin import Around


def matches(value: Any, **config: Any) -> bool:
    event = Event(payload=value)
    return applied(compile_match(MatchConfig.model_validate(config), Around()), [event]) == [event]


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
    allowed = applied(compile_match(MatchConfig.model_validate(config), Around()), batch)
    denied = applied(compile_match(MatchConfig.model_validate({**config, "mode": "deny"}), Around()), batch)
    assert [e.payload["n"] for e in allowed] == [1, 1, 1]
    assert [e.payload["n"] for e in denied] == [0, 2] * 3


def test_a_pattern_can_look_at_metadata() -> None:
    config = MatchConfig.model_validate({"matcher": "pattern", "path": "metadata", "pattern": {"from": "api"}})
    mine, other = Event(payload=1, metadata={"from": "api"}), Event(payload=1, metadata={"from": "x"})
    assert applied(compile_match(config, Around()), [other, mine]) == [mine]


def test_transform_builds_a_new_payload_and_keeps_the_metadata() -> None:
    event = Event(payload={"a": {"b": [1]}}, metadata={"m": "x"})
    config = TransformConfig(transformation={"was": "{payload.a.b}", "by": "{site}"})
    (made,) = applied(compile_transform(config, Around({"site": "leaf"})), [event])
    assert made.payload == {"was": [1], "by": "leaf"}
    assert made.metadata == {"m": "x"}
    assert event.payload == {"a": {"b": [1]}}


def test_transform_can_replace_the_metadata_too() -> None:
    config = TransformConfig(transformation="{payload}", metadata={"key": "{payload.id}", "old": "{metadata.m}"})
    (made,) = applied(compile_transform(config, Around()), [Event(payload={"id": 5}, metadata={"m": "x"})])
    assert made.payload == {"id": 5}
    assert made.metadata == {"key": 5, "old": "x"}


def test_the_event_as_it_entered_survives_several_transforms() -> None:
    first = Event(payload={"id": 1})
    step = compile_transform(TransformConfig(transformation={"inner": "{payload}"}), Around())
    (twice,) = applied(step, applied(step, [first]))
    assert twice.payload == {"inner": {"inner": {"id": 1}}}
    assert twice.origin is first


def transformed(payload: Any, beside: dict[str, Any] | None = None, **config: Any) -> Event:
    made = applied(compile_transform(TransformConfig.model_validate(config), Around()), [Event(payload, beside or {})])
    assert len(made) == 1
    return made[0]


def test_s25_patternregex_is_found_in_texts_and_a_bad_one_is_refused() -> None:
    config = {"matcher": "patternregex", "pattern": {"TopicArn": ".*_ACCOUNT$"}}
    assert matches({"TopicArn": "x_ACCOUNT"}, **config)
    assert not matches({"TopicArn": "x_ACCOUNTS"}, **config)
    assert not matches({"TopicArn": 5}, **config)
    with pytest.raises(ValidationError, match=r"TopicArn regex '\(': missing \)"):
        MatchConfig.model_validate({"matcher": "patternregex", "pattern": {"TopicArn": "("}})


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({"kind": "lar"}, True),
        ({"kind": "^lar"}, False),
        ({"kind": ".", "level": 3.0, "on": True, "gone": None}, True),
        ({"kind": ".", "level": 4}, False),
        ({"level": "3"}, False),
        ({"gone": ""}, False),
        ({"tags": ["[yz]", "^x$"]}, True),
        ({"tags": ["[yz]", "^z$"]}, False),
        ({"at": {"site": "[a-c]"}}, True),
    ],
)
def test_texts_of_a_patternregex_are_regexes_and_the_rest_is_a_pattern(pattern: Any, expected: bool) -> None:
    assert matches(ALARM, matcher="patternregex", pattern=pattern) is expected


def test_a_regex_says_the_same_however_often_it_is_asked() -> None:
    filter = compile_match(MatchConfig(matcher="patternregex", pattern={"v": "7$"}), Around())
    batch = [Event({"v": f"value {n}"}) for n in range(500)] + [Event({"v": "long " * 50 + "7"})]
    for _ in range(2):
        assert applied(filter, batch) == [event for event in batch if event.payload["v"].endswith("7")]


def test_s26_patterns_of_arrays_numbers_nulls_and_anything() -> None:
    config = {"matcher": "pattern", "pattern": {"a": [1]}}
    assert not matches({"a": [1, 2]}, **config)
    assert not matches({"a": [1, 2]}, **config, exactArrayMatch=True)
    assert matches({"a": [1, 2]}, **config, exactArrayMatch=False)
    for number in (5, 5.0):
        assert matches({"n": number}, matcher="pattern", pattern={"n": 5})
        assert matches({"n": 5}, matcher="pattern", pattern={"n": number})
    assert matches({}, matcher="pattern", pattern={"k": None})
    assert matches({"foo": "bar"}, matcher="pattern", pattern={"foo": "*"})
    assert not matches({}, matcher="pattern", pattern={"foo": "*"})


def test_s27_comparisons_and_trees_of_them() -> None:
    sides = {"equal": [{"{.p.id}": None}, {"{.p.id}": ""}]}
    deny = {"mode": "deny", "matcher": "comparison", "comparison": sides, "patternsLogic": "OR"}
    assert not matches({}, **deny)
    assert not matches({"p": {}}, **deny)
    assert not matches({"p": {"id": ""}}, **deny)
    assert matches({"p": {"id": "7"}}, **deny)

    def left(customer: str) -> dict[str, Any]:
        return {"logic": "AND", "comparison": {"equal": [{"{.prev}": customer}], "notEqual": [{"{.cur}": customer}]}}

    for matcher in ("comparison", "comparisonTree"):
        tree = {"matcher": matcher, "comparisonTree": {"logic": "OR", "childNodes": [left("C1"), left("C2")]}}
        assert matches({"prev": "C2", "cur": "C9"}, **tree)
        assert matches({"prev": "C1", "cur": "C2"}, **tree)
        assert not matches({"prev": "C2", "cur": "C2"}, **tree)
        assert not matches({"prev": "C3", "cur": "C9"}, **tree)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ({"equal": [{"{.kind}": "alarm"}]}, True),
        ({"equal": [{"{.kind}": "alarm", "{.level}": 4}]}, False),
        ({"equal": [{"{.level}": 3.0}]}, True),
        ({"equal": [{"{.level}": "3"}]}, False),
        ({"equal": [{"{.at.rack}": True}]}, False),
        ({"equal": [{"{.at.rack}": 1.0}]}, True),
        ({"equal": [{"{.on}": 1}]}, False),
        ({"equal": [{"{.at}": {"site": "a", "rack": 1.0}}]}, True),
        ({"equal": [{"{.at}": {"site": "a", "rack": True}}]}, False),
        ({"equal": [{"{.at}": {"site": "{.tags[0]}", "rack": 1}}]}, False),
        ({"equal": [{"{.tags}": ["x", "y"]}]}, True),
        ({"equal": [{"{.tags}": ["y", "x"]}]}, False),
        ({"equal": [{"{.gone}": "{.none}"}]}, True),
        ({"equal": [{"{.kind}-{.level}": "alarm-3"}]}, True),
        ({"equal": [{"fixed": "fixed"}]}, True),
        ({"notEqual": [{"{.kind}": "alert"}, {"{.gone}": 0}]}, True),
        ({"notEqual": [{"{.kind}": "alert"}, {"{.gone}": None}]}, False),
        ({}, True),
    ],
)
def test_a_comparison_is_of_json_values(pairs: Any, expected: bool) -> None:
    assert matches(ALARM, matcher="comparison", comparison=pairs) is expected


@pytest.mark.parametrize(
    ("logic", "values", "expected"),
    [("and", [1, 1], True), ("and", [1, 2], False), ("or", [2, 1], True), ("or", [2, 2], False), ("Or", [2, 1], True)],
)
def test_a_node_of_a_tree_joins_its_comparison_and_its_children(logic: str, values: list[int], expected: bool) -> None:
    own, child = values
    tree = {
        "logic": logic,
        "comparison": {"equal": [{"{.v}": own}]},
        "childNodes": [{"comparison": {"equal": [{"{.v}": child}]}}],
    }
    assert matches({"v": 1}, matcher="comparisonTree", comparisonTree=tree) is expected


def test_an_empty_tree_is_true() -> None:
    assert matches(5, matcher="comparisonTree")
    assert matches(5, matcher="comparisonTree", comparisonTree={"logic": "or", "comparison": None, "childNodes": []})


def test_a_tree_may_be_deep_but_not_endless() -> None:
    tree: dict[str, Any] = {"comparison": {"equal": [{"{.v}": 1}]}}
    for _ in range(63):
        tree = {"logic": "or", "childNodes": [tree]}
    assert matches({"v": 1}, matcher="comparisonTree", comparisonTree=tree)
    assert not matches({"v": 2}, matcher="comparisonTree", comparisonTree=tree)
    with pytest.raises(ValidationError, match="nested deeper than 64"):
        matches({"v": 1}, matcher="comparisonTree", comparisonTree={"childNodes": [tree]})


def test_a_constant_that_nobody_gave_is_refused_when_compiled() -> None:
    for pairs in ({"{sight}": 1}, {"{.x}": "{sight}"}):
        config = MatchConfig.model_validate({"matcher": "comparison", "comparison": {"equal": [pairs]}})
        with pytest.raises(Invalid, match=r"there is no 'sight'.*'site'"):
            compile_match(config, Around({"site": "leaf"}))


@pytest.mark.parametrize("matcher", ["patternregex", "regex"])
@pytest.mark.parametrize(("logic", "expected"), [("and", (True, False)), ("or", (True, True)), ("OR", (True, True))])
def test_several_regexes_are_joined(matcher: str, logic: str, expected: tuple[bool, bool]) -> None:
    config = {"matcher": matcher, "patterns": ["a", "ab"], "patternsLogic": logic}
    assert (matches("ab", **config), matches("a", **config)) == expected
    assert not matches("b", **config)


@pytest.mark.parametrize(("logic", "expected"), [("and", (True, False)), ("or", (True, True))])
def test_several_patterns_are_joined(logic: str, expected: tuple[bool, bool]) -> None:
    config = {"matcher": "pattern", "patterns": [{"v": "ab"}, {"w": 1}], "patternsLogic": logic}
    assert (matches({"v": "ab", "w": 1}, **config), matches({"v": "ab"}, **config)) == expected
    assert not matches({"v": "b", "w": 2}, **config)


@pytest.mark.parametrize("config", [{"pattern": "("}, {"patterns": ["a", "("]}, {"pattern": 5}, {"pattern": None}])
def test_a_bad_regex_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="regex"):
        MatchConfig.model_validate(config)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("matcher", ["patternregex", "regex"])
@pytest.mark.parametrize("regex", ["(a+)+$", "(a|aa)+$", "(.*)*x", "(a*)*(a*)*$"])
def test_a_regex_takes_no_longer_than_its_text(matcher: str, regex: str) -> None:
    began = time.monotonic()
    assert not matches("a" * 5_000 + "b\n", matcher=matcher, pattern=regex + "c")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("regex", ["(?=a)", "(?<!a)b", r"(a)\1", "(?>a)", r"a\Z"])
def test_a_regex_that_takes_more_than_linear_time_is_refused(regex: str) -> None:
    with pytest.raises(ValidationError, match="without looking around and back references"):
        MatchConfig.model_validate({"pattern": regex})


@pytest.mark.parametrize("regex", ["(a{900}|b){900}", "(" + "|".join("abcde"[n % 5] * n for n in range(1, 99)) + ")"])
def test_a_regex_that_is_too_large_is_refused(regex: str) -> None:
    with pytest.raises(ValidationError, match="regex"):
        MatchConfig.model_validate({"pattern": regex})


def test_half_of_a_surrogate_pair_is_looked_at_as_a_question_mark() -> None:
    assert matches("a\ud800b", pattern=r"^a\?b$")


def test_filter_and_deny_are_matches_by_other_names() -> None:
    batch = [Event({"n": n % 3}) for n in range(9)]
    raw = {"matcher": "pattern", "pattern": {"n": 1}}
    kept, left = (
        [e.payload["n"] for e in applied(plugin.compile(plugin.config.model_validate(raw), Around()), batch)]
        for plugin in (FILTER, DENY)
    )
    assert (kept, left) == ([1, 1, 1], [0, 2] * 3)
    with pytest.raises(ValidationError):
        DENY.config.model_validate({"mode": "allow"})


def test_s28_what_a_transformation_makes() -> None:
    made = transformed({"content": {"a": 1}}, transformation={"payload": "{.content}", "account": "{.content.foo}"})
    assert made.payload == {"payload": {"a": 1}, "account": None}
    assert transformed({"n": 4}, transformation="id-{.n}").payload == "id-4"
    assert transformed({"o": {"k": 1}}, transformation="x{.o}y").payload == 'x{"k":1}y'
    assert transformed({"a": "{.a}"}, transformation={"is": "{.a}", "in": "<{.a}>"}).payload == {"is": "{.a}", "in": "<{.a}>"}
    values = {"v": [{"name": "name1", "foo": 1}, {"name": "name2", "foo": 2}, 7]}
    assert transformed(values, transformation=["{.v[2]}", "{.v[name=name2].foo}"]).payload == [7, 2]
    two = transformed({"list": [{"x": 1}, {"x": 2}]}, fromPath=".list", transformation={"y": "{.x}"})
    assert two.payload == [{"y": 1}, {"y": 2}]


def test_a_part_is_transformed_and_set_elsewhere() -> None:
    payload = {"in": {"x": 1}, "list": [{"x": 2}, {"x": 3}], "out": {"old": True}}
    one = transformed(payload, fromPath=".in", toPath=".out.new", transformation={"y": "{.x}", "all": "{payload}"})
    assert one.payload == {**payload, "out": {"old": True, "new": {"y": 1, "all": {"x": 1}}}}
    each = transformed(payload, fromPath=".list", toPath=".list", transformation="{.x}")
    assert each.payload == {**payload, "list": [2, 3]}
    last = transformed(payload, {"m": 1}, toPath="metadata.first[1]", transformation="{.list[0].x}")
    assert (last.payload, last.metadata) == (payload, {"m": 1, "first": [None, 2]})
    assert payload == {"in": {"x": 1}, "list": [{"x": 2}, {"x": 3}], "out": {"old": True}}


def test_an_array_is_transformed_as_a_whole_unless_a_path_is_given() -> None:
    assert transformed([1, 2], transformation={"n": "{.[0]}"}).payload == {"n": 1}
    assert transformed([1, 2], fromPath="", transformation={"n": "{payload}"}).payload == [{"n": 1}, {"n": 2}]
    assert transformed([], fromPath="", transformation={"n": "{payload}"}).payload == []
    assert transformed({}, fromPath=".gone", transformation={"n": "{.x}"}).payload == {"n": None}


def test_metadata_are_built_from_the_event_as_it_came() -> None:
    config = {"fromPath": ".a", "toPath": ".b", "transformation": "{.x}", "metadata": {"all": "{payload}"}}
    made = transformed({"a": {"x": 1}}, **config)
    assert (made.payload, made.metadata) == ({"a": {"x": 1}, "b": 1}, {"all": {"a": {"x": 1}}})
    assert made.origin == Event({"a": {"x": 1}})
    assert transformed(5, {"a": 1}, metadata={"b": "{metadata.a}"}) == Event(5, {"b": 1}, entered=(Event(5, {"a": 1}),))


def test_what_cannot_be_set_is_a_fault_of_that_event_alone() -> None:
    config = TransformConfig.model_validate({"toPath": ".a.b", "transformation": 1})
    good, bad = Event({"a": {}}), Event({"a": "text"})
    out, told = run(compile_transform(config, Around()), [good, bad, good])
    assert [e.payload for e in out] == [{"a": {"b": 1}}] * 2
    assert (told.events, told.reasons) == ([bad], ["payload.a: a map is needed, found a text"])


def test_without_a_transformation_events_pass() -> None:
    batch = [Event(n) for n in range(3)]
    assert applied(compile_transform(TransformConfig(), Around()), batch) == batch
