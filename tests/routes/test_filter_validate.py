"""validate: JSON Schema, checked when a route is added."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from running_filters import run
from trunkline.routes.event import Event
from trunkline.routes.filters.validate import MAX_REASON, ValidateConfig, compile_validate
from trunkline.routes.plugin import Around

PERSON = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "additionalProperties": False,
}


def refusals(schema: Any, *values: Any, path: str = ".v") -> list[str]:
    """The reasons; what is not refused passes as it is."""
    batch = [Event(payload={"v": value}) for value in values]
    out, told = run(compile_validate(ValidateConfig.model_validate({"path": path, "schema": schema}), Around()), batch)
    assert all(any(event is one for one in batch) for event in out)
    assert len(out) + len(told.events) == len(batch)
    return told.reasons


def test_what_fits_passes_and_what_does_not_is_refused_with_its_place() -> None:
    assert refusals(PERSON, {"name": "x"}, {"name": "x", "age": 5}, {"name": "x", "age": 5.0}) == []
    assert refusals(PERSON, {"name": "x", "age": -1}, {"name": "x"}) == ["payload.v.age: -1 is less than the minimum of 0"]
    assert refusals(PERSON, {}) == ["payload.v: 'name' is a required property"]
    assert refusals({"items": {"type": "string"}}, ["a", 5]) == ["payload.v[1]: 5 is not of type 'string'"]


def test_what_is_missing_is_checked_as_null() -> None:
    assert refusals({"type": "null"}, 1, path=".gone") == []
    assert refusals(PERSON, 1, path=".gone") == ["payload.gone: None is not of type 'object'"]


def test_without_a_path_the_payload_is_checked() -> None:
    config = ValidateConfig.model_validate({"schema": {"type": "number"}})
    good, bad = Event(payload=1.5), Event(payload=True)
    out, told = run(compile_validate(config, Around()), [bad, good])
    assert (out, told.events, told.reasons) == ([good], [bad], ["payload: True is not of type 'number'"])


def test_the_draft_is_the_one_that_the_schema_names() -> None:
    tuples = {"items": [{"type": "string"}, {"type": "integer"}]}
    draft_7 = {**tuples, "$schema": "http://json-schema.org/draft-07/schema#"}
    assert refusals(draft_7, ["a", 1]) == []
    assert refusals(draft_7, ["a", "b"]) == ["payload.v[1]: 'b' is not of type 'integer'"]
    with pytest.raises(ValidationError):
        ValidateConfig.model_validate({"schema": tuples})
    assert refusals({"prefixItems": tuples["items"]}, ["a", "b"]) == ["payload.v[1]: 'b' is not of type 'integer'"]


def test_schemas_may_refer_to_their_parts_and_to_themselves() -> None:
    tree = {
        "$id": "https://example.com/tree",
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {"type": "object", "properties": {"next": {"$ref": "tree#/$defs/node"}, "label": {"$ref": "#label"}}},
            "label": {"$anchor": "label", "type": "string"},
        },
    }
    assert refusals(tree, {"next": {"next": {"label": "x"}}}) == []
    assert refusals(tree, {"next": {"next": {"label": 5}}}) == ["payload.v.next.next.label: 5 is not of type 'string'"]
    assert refusals({"$ref": "https://json-schema.org/draft/2020-12/schema"}, {"type": "string"}) == []


def test_true_and_false_are_schemas() -> None:
    assert refusals(True, 1) == []
    assert len(refusals(False, 1)) == 1


def test_a_reason_has_a_bound() -> None:
    (reason,) = refusals({"type": "integer"}, "x" * 100_000)
    assert len(reason) < MAX_REASON + 50


def test_an_event_nested_too_deeply_is_refused_and_nothing_else() -> None:
    lists = {"type": ["array", "integer"], "items": {"$ref": "#"}}
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    assert refusals(lists, deep, [[1]]) == ["payload.v: nested too deeply to be checked"]


HANGS = "(a+)+$"


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("schema", "reasons"),
    [
        ({"items": {"pattern": HANGS}}, ["payload.v[0]: 'aaa"]),
        ({"items": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": HANGS}}, ["payload.v[0]: 'aaa"]),
        ({"items": {"propertyNames": {"pattern": HANGS}, "type": "string"}}, []),
        ({"$defs": {"a": {"pattern": HANGS}}, "contains": {"$ref": "#/$defs/a"}}, ["payload.v: ['aaa"]),
    ],
)
def test_a_pattern_of_a_schema_cannot_hold_a_node_up(schema: Any, reasons: list[str]) -> None:
    told = refusals(schema, ["a" * 60 + "b"])
    assert [reason[: len(wanted)] for reason, wanted in zip(told, reasons, strict=True)] == reasons


def many_of_many(depth: int) -> dict[str, Any]:
    parts = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(depth)}
    return {"$defs": {**parts, f"a{depth}": {}}, "items": {"$ref": "#/$defs/a0"}}


@pytest.mark.timeout(60)
def test_a_schema_that_asks_for_too_much_is_given_up_and_the_next_events_sooner() -> None:
    told = refusals(many_of_many(60), *[[1]] * 40, [])
    assert [told[0], told[1], told[39]] == [f"payload.v: to check it takes more than {s} s" for s in (0.5, 0.25, 0.002)]
    assert len(told) == 40
    with pytest.raises(ValidationError, match=r"schema: to check null takes more than 0\.5 s"):
        ValidateConfig.model_validate({"schema": {**many_of_many(60), "$ref": "#/$defs/a0"}})


@pytest.mark.timeout(30)
def test_that_items_are_unique_is_known_at_once() -> None:
    unique = {"uniqueItems": True}
    assert refusals(unique, [{"n": n, "of": [n]} for n in range(50_000)], [1, True, "1", None, [], {}, [0], [False]]) == []
    assert len(refusals(unique, [1, 1.0], [[True], [True]], [{"a": [1], "b": 2}, {"b": 2, "a": [1]}])) == 3


@pytest.mark.timeout(30)
def test_patterns_of_properties_cannot_hold_a_node_up() -> None:
    schema = {"patternProperties": {HANGS: {"type": "integer"}, "^x": True}, "properties": {"p": True}}
    key = "a" * 60
    assert refusals(schema, {key + "b": "s", "p": 1}, {key: 5}) == []
    assert refusals(schema, {key: "s"}) == [f"payload.v.{key}: 's' is not of type 'integer'"]
    closed = {**schema, "additionalProperties": False}
    assert refusals(closed, {"x1": 1, "p": 1, key: 5}) == []
    (reason,) = refusals(closed, {"x1": 1, "p": 1, key + "b": 5})
    assert "Additional properties are not allowed" in reason
    assert refusals({**schema, "additionalProperties": {"type": "null"}}, {"other": 1}) == [
        "payload.v.other: 1 is not of type 'null'"
    ]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"pattern": "(?=a)"}, "without looking around"),
        ({"items": {"patternProperties": {r"(a)\1": True}}}, "without looking around"),
        ({"patternProperties": {"a": True}, "unevaluatedProperties": False}, "additionalProperties instead"),
        (5, "is not of type 'object', 'boolean'"),
        ({"type": "objekt"}, r"schema at \$\.type: 'objekt'"),
        ({"properties": {"a": {"minimum": "x"}}}, r"schema at \$\.properties\.a\.minimum"),
        ({"pattern": "("}, "is not a 'regex'"),
        ({"patternProperties": {"(": True}}, "is not a 'regex'"),
        ({"properties": {"a": {"$ref": "#/$defs/gone"}}}, "'#/\\$defs/gone': it leads nowhere"),
        ({"$ref": "http://127.0.0.1:1/schema.json"}, "it leads nowhere"),
        ({"$ref": "#/x", "x": {"$ref": "#/y"}}, "'#/y': it leads nowhere"),
        ({"$defs": {"a": {"$ref": "#nobody"}}}, "it leads nowhere"),
        ({"$ref": "#"}, "without end"),
        ({"$schema": "http://example.com/my-draft"}, "there is no draft"),
        ({"$schema": ["x"]}, "there is no draft"),
    ],
)
def test_a_bad_schema_is_refused_when_the_route_is_added(schema: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ValidateConfig.model_validate({"schema": schema})


def test_a_schema_is_needed() -> None:
    with pytest.raises(ValidationError):
        ValidateConfig.model_validate({"path": "."})
