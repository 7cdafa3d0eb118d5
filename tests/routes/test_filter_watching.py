"""log and metric tell what passes; pass lets all of it pass, block none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from running_filters import applied
from trunkline.routes.event import Event, Source
from trunkline.routes.filters.block import BLOCK
from trunkline.routes.filters.log import LOG
from trunkline.routes.filters.metric import METRIC
from trunkline.routes.filters.pass_ import PASS
from trunkline.routes.plugin import Around, FilterPlugin

BATCH = [
    Event(payload={"b": 1, "a": [2]}, metadata={"m": 1}, source=Source(id="e1", trace_id="t1")),
    Event(payload="text", source=Source(id="e2")),
]


def logged(**config: Any) -> list[Mapping[str, Any]]:
    entries: list[Mapping[str, Any]] = []
    filter = LOG.compile(LOG.config.model_validate(config), Around(log=entries.append))
    assert applied(filter, BATCH) == BATCH
    return entries


def test_log_writes_payload_and_metadata_as_a_text() -> None:
    assert logged() == [
        {"eventId": "e1", "traceId": "t1", "payload": '{"metadata":{"m":1},"payload":{"a":[2],"b":1}}'},
        {"eventId": "e2", "payload": '{"metadata":{},"payload":"text"}'},
    ]


def test_log_writes_a_part_under_a_key_with_a_tag() -> None:
    assert logged(path=".a", logKey="found", tag="mine", asString=False) == [
        {"tag": "mine", "eventId": "e1", "traceId": "t1", "found": [2]},
        {"tag": "mine", "eventId": "e2", "found": None},
    ]
    assert [entry["payload"] for entry in logged(path=".")] == ['{"a":[2],"b":1}', "text"]


def test_log_writes_what_cannot_be_json_as_well_as_it_can() -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    entries: list[Mapping[str, Any]] = []
    batch = [Event(payload=deep), Event(payload=1)]
    assert applied(LOG.compile(LOG.config(path="."), Around(log=entries.append)), batch) == batch
    assert [entry["payload"] for entry in entries] == ["(it cannot be written as JSON: Recursion limit reached)", "1"]


def test_metric_counts_what_passes() -> None:
    counts: list[tuple[str, int]] = []
    around = Around(count=lambda name, number: counts.append((name, number)))
    assert applied(METRIC.compile(METRIC.config(), around), BATCH) == BATCH
    assert (
        applied(METRIC.compile(METRIC.config.model_validate({"name": "alarms", "prefix": ""}), around), BATCH[:1]) == BATCH[:1]
    )
    assert counts == [("ears.custom.generic", 2), ("alarms", 1)]


def test_pass_lets_all_pass_and_block_nothing() -> None:
    assert applied(PASS.compile(PASS.config(), Around()), BATCH) == BATCH
    assert applied(BLOCK.compile(BLOCK.config(), Around()), BATCH) == []


WRONG: list[tuple[FilterPlugin[Any], dict[str, Any]]] = [
    (LOG, {"logKey": "tag"}),
    (LOG, {"logKey": ""}),
    (LOG, {"path": "nowhere.a"}),
    (METRIC, {"name": "a b"}),
    (METRIC, {"name": ""}),
    (METRIC, {"prefix": "1."}),
    (PASS, {"path": "."}),
    (BLOCK, {"path": "."}),
]


@pytest.mark.parametrize(("plugin", "config"), WRONG, ids=lambda value: getattr(value, "name", str(value)))
def test_a_wrong_configuration_is_refused(plugin: FilterPlugin[Any], config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        plugin.config.model_validate(config)
