"""All shipped filters: named, documented, and sound when they are used carelessly."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from running_filters import run
from trunkline.core.jsoncodec import dumps
from trunkline.routes.event import Event
from trunkline.routes.filters import FILTERS
from trunkline.routes.plugin import Around, FilterPlugin, StatefulFilter

SHIPPED = {
    "batch", "block", "decode", "dedup", "deny", "encode", "expr", "filter", "hash", "js", "log", "mapping", "match", "merge",
    "metric", "modify", "pass", "regex", "split", "trace", "transform", "ttl", "unwrap", "validate",
}  # fmt: skip

EXAMPLES: dict[str, dict[str, Any]] = {
    "decode": {"fromPath": ".a", "toPath": ".b.c"},
    "encode": {"fromPath": ".a", "toPath": ".b.c"},
    "expr": {"expression": "payload.a == 1"},
    "hash": {"fromPath": ".a", "toPath": "metadata.b.c", "hashAlgorithm": "fnv"},
    "js": {"source": "return _.event"},
    "mapping": {"path": ".a", "map": [{"from": "x", "to": "{.b}"}], "defaultValue": 1},
    "merge": {"fromPath": ".a", "toPath": ".b"},
    "modify": {"paths": [".a", ".b[0]"], "toUpper": True},
    "regex": {"fromPath": ".a", "regex": "(x)?", "replaceAllString": "<$1>"},
    "split": {"path": ".a"},
    "trace": {"path": ".b.id"},
    "transform": {"transformation": {"x": "{.a.b}-{.b}"}, "fromPath": ".a", "toPath": ".b"},
    "ttl": {"path": ".a"},
    "unwrap": {"path": ".a"},
    "validate": {"schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)

by_name = pytest.mark.parametrize("plugin", FILTERS, ids=lambda plugin: plugin.name)


def test_every_filter_is_there_once() -> None:
    names = [plugin.name for plugin in FILTERS]
    assert set(names) == SHIPPED
    assert len(names) == len(SHIPPED)


@by_name
def test_every_filter_and_every_option_is_described(plugin: FilterPlugin[Any]) -> None:
    assert plugin.config.__doc__
    assert {name for name, field in plugin.config.model_fields.items() if not field.description} == set()
    assert plugin.config.model_json_schema(by_alias=True)["description"]


@by_name
def test_the_table_says_which_filters_remember(plugin: FilterPlugin[Any]) -> None:
    made = plugin.compile(plugin.config.model_validate(EXAMPLES.get(plugin.name, {})), Around())
    assert isinstance(made, StatefulFilter) is plugin.stateful


@by_name
@settings(max_examples=15)
@given(payloads=st.lists(JSON, max_size=4), metadata=st.dictionaries(st.sampled_from("ab"), JSON))
def test_no_event_is_changed_or_makes_a_filter_raise(
    plugin: FilterPlugin[Any], payloads: list[Any], metadata: dict[str, Any]
) -> None:
    made = plugin.compile(plugin.config.model_validate(EXAMPLES.get(plugin.name, {})), Around(now=lambda: 1.0))
    batch = [Event(payload=payload, metadata=metadata) for payload in payloads]
    before = dumps([[event.payload, event.metadata] for event in batch])
    out, told = run(made, batch)
    assert dumps([[event.payload, event.metadata] for event in batch]) == before
    came = {id(event) for event in batch}
    assert {id(one) for event in [*out, *told.events] for one in event.entered or (event,)} <= came
    assert not {id(event.origin) for event in out} & {id(event) for event in told.events}
