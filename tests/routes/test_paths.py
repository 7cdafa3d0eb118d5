"""Paths and templates: P1, P2 and T1 to T3 of the module."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads
from trunkline.routes.event import Event
from trunkline.routes.paths import Path, compile_tree, event_path, parse_path, parse_template, reader

EVENT = Event(
    payload={"id": 7, "name": "pump", "a.b": ["dotted"], "list": [{"x": 1}, [2, 3]], "none": None, "ok": True},
    metadata={"from": "api", "content-type": "application/json"},
)


def read(path: str, event: Event = EVENT) -> Any:
    return reader(event_path(path))(event)


def fill(template: Any, **constants: str) -> Any:
    return compile_tree(template, constants)(EVENT)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("payload.name", "pump"),
        (".name", "pump"),
        ("", EVENT.payload),
        (".", EVENT.payload),
        ("payload", EVENT.payload),
        ("metadata", EVENT.metadata),
        ("metadata.content-type", "application/json"),
        (r".a\.b[0]", "dotted"),
        (".list[0].x", 1),
        (".list[1][1]", 3),
        ("payload.list", EVENT.payload["list"]),
    ],
)
def test_a_path_reads_what_it_names(path: str, value: Any) -> None:
    assert read(path) == value


@pytest.mark.parametrize(
    "path", [".gone", ".gone.deeper", ".name.x", ".name[0]", ".list.x", ".list[9]", ".list[1][2]", ".none.x", ".id[0]"]
)
def test_p1_what_is_not_there_or_of_another_kind_reads_as_null(path: str) -> None:
    assert read(path) is None


@pytest.mark.parametrize(
    "path", [".a..b", "payload.", ".a[-1]", ".a[x]", ".a[k=v]", ".a[01]", ".a[", ".a]", "payloadx y", r".a\b", "[", ".{a}"]
)
def test_p2_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(Invalid, match="path"):
        event_path(path)


def test_p2_an_unknown_root_is_refused_with_the_nearest_known() -> None:
    with pytest.raises(Invalid) as refused:
        event_path("paylod.x")
    assert "'paylod'" in refused.value.why
    assert "'payload'" in refused.value.next_step


segments = st.lists(st.text(st.characters(exclude_characters="{}"), min_size=1) | st.integers(0, 999_999_999), max_size=5)


@given(st.sampled_from(["payload", "metadata"]), segments)
def test_a_path_survives_being_written_and_read(root: str, parts: list[str | int]) -> None:
    path = Path(root, tuple(parts))
    assert parse_path(str(path)) == path


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_t1_one_whole_reference_keeps_value_and_type(value: Any) -> None:
    event = Event(payload={"v": value})
    found = compile_tree("{payload.v}", {})(event)
    assert found == value
    assert type(found) is type(value)


def test_t1_a_missing_reference_is_null() -> None:
    assert fill("{payload.gone}") is None


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{payload.name}-{payload.id}", "pump-7"),
        ("ok={payload.ok} none={payload.none} gone={.gone}", "ok=true none=null gone=null"),
        ("x{payload.list}", 'x[{"x":1},[2,3]]'),
        (" {payload.name}", " pump"),
        ("", ""),
        ("plain", "plain"),
        ("{{payload.name}}", "{payload.name}"),
        ("{{{payload.name}}}", "{pump}"),
        ("{site}", "leaf"),
        ("{site}/{metadata.from}", "leaf/api"),
    ],
)
def test_t2_references_within_a_text_are_put_in_as_text(template: str, text: str) -> None:
    assert fill(template, site="leaf") == text


@given(json_values)
def test_t2_what_is_not_a_string_is_put_in_as_json(value: Any) -> None:
    text = compile_tree(">{payload.v}", {})(Event(payload={"v": value}))
    assert text[1:] == value if isinstance(value, str) else loads(text[1:]) == value


def test_t3_what_was_put_in_is_never_looked_at_again() -> None:
    event = Event(payload={"a": "{payload.a}", "b": "}{"})
    assert compile_tree("<{payload.a}{payload.b}>", {})(event) == "<{payload.a}}{>"
    assert compile_tree("{trap}", {"trap": "{payload.a}"})(event) == "{payload.a}"


@pytest.mark.parametrize("template", ["{", "}", "a{b", "}{", "{payload.x", "{}", "{foo.x}", "{payload..x}", "{a b}"])
def test_a_template_that_cannot_be_read_is_refused(template: str) -> None:
    with pytest.raises(Invalid):
        parse_template(template)


def test_a_tree_keeps_its_shape_and_its_literals() -> None:
    tree = {"who": "{payload.name}", "fixed": [1, True, None, math.pi], "deep": {"list": ["{payload.id}", "x{.id}"]}}
    assert fill(tree) == {"who": "pump", "fixed": [1, True, None, math.pi], "deep": {"list": [7, "x7"]}}
