"""mapping: M1 to M3 of the module."""

from __future__ import annotations

from typing import Any

import pytest

from running_filters import applied, run
from trunkline.core.errors import Invalid
from trunkline.routes.event import Event
from trunkline.routes.filters.mapping import MappingConfig, compile_mapping
from trunkline.routes.plugin import Around

PLANETS = [{"from": "earth", "to": "planet"}, {"from": "mars", "to": "planet"}, {"from": "sun", "to": "star"}]


def mapped(payload: Any, map: Any = PLANETS, metadata: Any = None, **config: Any) -> Event:
    filter = compile_mapping(MappingConfig.model_validate({"map": map, **config}), Around({"site": "leaf"}))
    (made,) = applied(filter, [Event(payload, metadata or {})])
    return made


@pytest.mark.parametrize(
    ("payload", "config", "expected"),
    [
        ({"k": "mars"}, {"path": ".k"}, {"k": "planet"}),
        ({"k": "moon"}, {"path": ".k"}, {"k": "moon"}),
        ({"k": "moon"}, {"path": ".k", "defaultValue": "other"}, {"k": "other"}),
        ({}, {"path": ".k", "defaultValue": "other"}, {"k": "other"}),
        ({}, {"path": ".k"}, {}),
        ("sun", {}, "star"),
        (
            {"l": [{"k": "sun"}, {"k": "moon"}, {}]},
            {"arrayPath": ".l", "path": ".k"},
            {"l": [{"k": "star"}, {"k": "moon"}, {}]},
        ),
        ({"l": ["sun", "moon"]}, {"arrayPath": ".l", "defaultValue": "other"}, {"l": ["star", "other"]}),
        (["earth", "mars"], {}, ["planet", "planet"]),
        ([{"k": "mars"}], {"path": ".k"}, [{"k": "planet"}]),
        ({"l": []}, {"arrayPath": ".l", "path": ".k"}, {"l": []}),
        ({"x": 1}, {"arrayPath": ".l", "path": ".k"}, {"x": 1}),
    ],
)
def test_m2_a_value_becomes_what_the_map_says(payload: Any, config: dict[str, Any], expected: Any) -> None:
    assert mapped(payload, **config).payload == expected


def test_m1_the_last_entry_that_fits_counts() -> None:
    entries = [{"from": 1, "to": "first"}, {"from": 2, "to": "other"}, {"from": 1.0, "to": "last"}]
    assert mapped({"v": 1}, entries, path=".v").payload == {"v": "last"}
    assert mapped({"v": True}, entries, path=".v").payload == {"v": True}


def test_null_stands_for_what_is_missing_too() -> None:
    assert mapped({}, [{"from": None, "to": "none"}], path=".a.b").payload == {"a": {"b": "none"}}
    assert mapped({"v": 1}, [{"from": 1, "to": None}], path=".v").payload == {"v": None}


def test_values_may_be_of_any_kind_and_templates() -> None:
    entries = [{"from": {"id": "{.wanted}"}, "to": {"site": "{site}", "was": "{.v}", "text": "<{metadata.m}>"}}]
    made = mapped({"v": {"id": 7.0}, "wanted": 7}, entries, metadata={"m": 1}, path=".v")
    assert made.payload == {"v": {"site": "leaf", "was": {"id": 7.0}, "text": "<1>"}, "wanted": 7}
    assert mapped({"v": 1, "d": 9}, [], path=".v", defaultValue="{.d}").payload == {"v": 9, "d": 9}


def test_m1_a_comparison_must_hold_too() -> None:
    guard = {"equal": [{"{.kind}": "a"}], "notEqual": [{"{.off}": True}]}
    entries = [{"from": 1, "to": "yes", "comparison": guard}]
    assert mapped({"v": 1, "kind": "a"}, entries, path=".v").payload["v"] == "yes"
    assert mapped({"v": 1, "kind": "b"}, entries, path=".v").payload["v"] == 1
    assert mapped({"v": 1, "kind": "a", "off": True}, entries, path=".v").payload["v"] == 1


def test_m3_each_element_is_seen_by_itself() -> None:
    guard = {"equal": [{"{.on}": True}]}
    entries = [{"from": "{.old}", "to": "{.new}-{metadata.m}", "comparison": guard}]
    first, second = {"v": 1, "old": 1, "new": "x", "on": True}, {"v": 1, "old": 1, "new": "y"}
    made = mapped({"l": [first, second]}, entries, metadata={"m": 5}, arrayPath=".l", path=".v")
    assert made.payload == {"l": [{**first, "v": "x-5"}, second]}
    assert made.payload["l"][1] is second


def test_metadata_are_mapped_too_whatever_the_payload_is() -> None:
    for payload in ({}, ["sun"]):
        made = mapped(payload, metadata={"k": "sun"}, path="metadata.k")
        assert (made.payload, made.metadata) == (payload, {"k": "star"})


def test_elements_have_no_metadata_to_map() -> None:
    with pytest.raises(Invalid, match="no metadata"):
        mapped({}, arrayPath=".l", path="metadata.k")


def test_what_cannot_be_mapped_is_a_fault_of_that_event_alone() -> None:
    config = MappingConfig.model_validate({"path": ".a.k", "defaultValue": 1})
    out, told = run(compile_mapping(config, Around()), [Event({"a": []}), Event({"a": {}})])
    assert [e.payload for e in out] == [{"a": {"k": 1}}]
    assert told.reasons == ["payload.a: a map is needed, found an array"]
    config = MappingConfig.model_validate({"arrayPath": ".a", "defaultValue": 1})
    out, told = run(compile_mapping(config, Around()), [Event({"a": {}})])
    assert (out, told.reasons) == ([], ["payload.a: an array is needed, found a map"])


def test_the_event_that_came_stays_as_it_was() -> None:
    payload = {"l": [{"k": "sun"}], "x": {}}
    made = mapped(payload, arrayPath=".l", path=".k")
    assert payload == {"l": [{"k": "sun"}], "x": {}}
    assert made.payload["x"] is payload["x"]
