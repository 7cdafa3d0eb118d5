"""Paths and templates: P1 to P4 and T1 to T3 of the module."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads
from trunkline.routes.event import Event, Source
from trunkline.routes.keys import Tenant
from trunkline.routes.paths import (
    MAX_FILL,
    CannotSet,
    Path,
    Selector,
    compile_tree,
    event_path,
    parse_path,
    parse_template,
    reader,
    target_path,
    writer,
)

EVENT = Event(
    payload={"id": 7, "name": "pump", "a.b": ["dotted"], "list": [{"x": 1}, [2, 3]], "none": None, "ok": True},
    metadata={"from": "api", "content-type": "application/json"},
    source=Source("e-1", Tenant("myorg", "myapp"), "t-9", 1_700_000_000.1234),
)
PEOPLE = Event(
    payload={"p": [{"n": "ann", "age": 7}, 5, {"n": "bob", "age": 8.0, "ok": True}, {"n": "bob", "age": 9}, {"n": "7"}]}
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
    ("path", "value"),
    [
        ("trace.id", "t-9"),
        ("tenant.orgId", "myorg"),
        ("tenant.appId", "myapp"),
        ("timestamp", "1700000000123"),
    ],
)
def test_what_is_known_about_an_event_can_be_read_but_not_set(path: str, value: str) -> None:
    assert read(path) == value
    assert fill(f"<{{{path}}}>") == f"<{value}>"
    with pytest.raises(Invalid, match="only be read"):
        target_path(path)


def test_an_event_without_a_trace_has_none() -> None:
    assert read("trace.id", Event(payload=1)) is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".p[n=bob].age", 8.0),
        (".p[n=bob]", PEOPLE.payload["p"][2]),
        (".p.[n=ann].age", 7),
        (".p[age=8].n", "bob"),
        (".p[age=9.0].n", "bob"),
        (".p[ok=true].age", 8.0),
        (".p[ok=1].age", None),
        (".p[n=7].n", "7"),
        (".p[n=eve].age", None),
        (".p[gone=x]", None),
        (".p[0][n=ann]", None),
        ("[n=ann]", None),
    ],
)
def test_a_selector_takes_the_first_map_with_that_value(path: str, value: Any) -> None:
    assert read(path, PEOPLE) == value


def test_a_dot_may_stand_before_a_bracket() -> None:
    assert read(".list.[1].[0]") == read(".list[1][0]") == 2
    assert read(".[1]", Event(payload=[5, 6])) == 6


def test_p2_an_index_from_the_end_is_refused_and_says_what_to_write() -> None:
    with pytest.raises(Invalid) as refused:
        event_path(".a[0].[-1]")
    assert refused.value.why == "'.[-1]' counts from the end"
    assert "[0]" in refused.value.next_step


def test_p2_a_path_without_end_is_refused() -> None:
    assert len(event_path(".a" * 64).segments) == 64
    with pytest.raises(Invalid, match="more than 64"):
        event_path(".a" * 65)


@pytest.mark.parametrize(
    "path",
    [
        ".a..b",
        "payload.",
        ".a[-1]",
        ".a[=v]",
        ".a[k=[]",
        "trace",
        "trace.ids",
        "tenant",
        "timestamp.x",
        ".a[x]",
        ".a[01]",
        ".a[",
        ".a]",
        "payloadx y",
        r".a\b",
        "[",
        ".{a}",
    ],
)
def test_p2_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(Invalid, match="path"):
        event_path(path)


def test_p2_an_unknown_root_is_refused_with_the_nearest_known() -> None:
    with pytest.raises(Invalid) as refused:
        event_path("paylod.x")
    assert "'paylod'" in refused.value.why
    assert "'payload'" in refused.value.next_step


names = st.text(st.characters(exclude_characters="{}"), min_size=1)
selectors = st.builds(Selector, names, st.text(st.characters(exclude_characters="{}")))
segments = st.lists(names | st.integers(0, 999_999_999) | selectors, max_size=5)


@given(st.sampled_from(["payload", "metadata"]), segments)
def test_a_path_survives_being_written_and_read(root: str, parts: list[str | int | Selector]) -> None:
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


def put(path: str, value: Any, event: Event = EVENT) -> Event:
    return writer(target_path(path))(event, value)


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        (".a", {"b": 1}, {"a": "new", "b": 1}),
        (".a.b.c", {}, {"a": {"b": {"c": "new"}}}),
        (".a.b", {"a": None}, {"a": {"b": "new"}}),
        (".a", None, {"a": "new"}),
        ("", {"a": 1}, "new"),
        (".a[1]", {"a": [1, 2, 3]}, {"a": [1, "new", 3]}),
        (".a[3]", {"a": [1]}, {"a": [1, None, None, "new"]}),
        (".a[1]", {}, {"a": [None, "new"]}),
        (".a[0].b", {"a": [{"c": 1}]}, {"a": [{"c": 1, "b": "new"}]}),
        (".a[0].[1]", {"a": [[1, 2]]}, {"a": [[1, "new"]]}),
        (".a[k=v].x", {"a": [{"k": 1}, {"k": "v"}]}, {"a": [{"k": 1}, {"k": "v", "x": "new"}]}),
        (".a[k=1]", {"a": [{"k": 1}, 2]}, {"a": ["new", 2]}),
    ],
)
def test_p4_setting_makes_what_is_missing_on_the_way(path: str, before: Any, after: Any) -> None:
    assert put(path, "new", Event(payload=before)).payload == after


def test_metadata_are_set_as_the_payload_is() -> None:
    made = put("metadata.kafka.partition", 3)
    assert made.metadata == {**EVENT.metadata, "kafka": {"partition": 3}}
    assert made.payload is EVENT.payload
    assert put("metadata", {"x": 1}).metadata == {"x": 1}
    with pytest.raises(CannotSet, match="metadata: a map is needed, found a text"):
        put("metadata", "no map")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".name.x", "payload.name: a map is needed, found a text"),
        (".list.x", "payload.list: a map is needed, found an array"),
        (".name[0]", "payload.name: an array is needed, found a text"),
        (".list[0][1]", "payload.list[0]: an array is needed, found a map"),
        (".ok.x", "payload.ok: a map is needed, found true or false"),
        (".list[x=9].y", "payload.list[x=9]: there is no such element"),
        (f".list[{MAX_FILL + 3}]", f"payload.list[{MAX_FILL + 3}]: the array has 2 elements; at most {MAX_FILL} are filled up"),
    ],
)
def test_p4_what_is_of_another_kind_is_not_replaced(path: str, reason: str) -> None:
    with pytest.raises(CannotSet) as refused:
        put(path, 1)
    assert str(refused.value) == reason


def test_p4_an_index_as_far_as_may_be_filled_up() -> None:
    made = put(f".list[{MAX_FILL + 2}]", 1)
    assert made.payload["list"] == [*EVENT.payload["list"], *[None] * MAX_FILL, 1]


def test_p3_only_the_way_down_is_new() -> None:
    event = Event(payload={"a": {"b": {"c": 1}, "d": {}}, "e": [{}]}, metadata={"m": 1}, source=EVENT.source)
    before = copy.deepcopy(event.payload)
    made = put(".a.b.c", 2, event)
    assert event.payload == before
    assert made.payload == {"a": {"b": {"c": 2}, "d": {}}, "e": [{}]}
    assert made.payload["e"] is event.payload["e"]
    assert made.payload["a"]["d"] is event.payload["a"]["d"]
    assert (made.metadata, made.source, made.origin) == (event.metadata, event.source, event)


small = st.sampled_from(["a", "b", 0, 1, Selector("a", "1")])
shapes = st.recursive(
    st.sampled_from([None, 1, "1", True]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=6,
)


@given(st.lists(small, max_size=3), shapes)
def test_what_was_set_is_read_and_the_old_event_stays(way: list[Any], payload: Any) -> None:
    path, event = Path("payload", tuple(way)), Event(payload=copy.deepcopy(payload))
    try:
        made = writer(path)(event, {"a": 1, "new": True})
    except CannotSet:
        made = None
    assert event.payload == payload
    if made is not None:
        assert reader(path)(made) == {"a": 1, "new": True}


def test_a_template_of_very_many_pieces() -> None:
    assert fill("{.id}-" * 1000) == "7-" * 1000


def test_a_tree_as_deep_as_may_be() -> None:
    tree: Any = "{.id}"
    expected: Any = 7
    for n in range(64):
        tree, expected = ({"k": tree}, {"k": expected}) if n % 2 else ([tree], [expected])
    assert fill(tree) == expected


def test_nothing_of_a_configuration_runs_as_code() -> None:
    nasty = "'); import os #\n\"\\"
    event = Event(payload={nasty: {"v": 1}})
    assert compile_tree({nasty: f"{nasty}"}, {})(event) == {nasty: nasty}
    assert reader(Path("payload", (nasty, "v")))(event) == 1
    assert reader(Path("payload", (nasty, Selector(nasty, nasty))))(event) is None
    assert writer(Path("payload", (nasty, nasty)))(event, 2).payload == {nasty: {"v": 1, nasty: 2}}
