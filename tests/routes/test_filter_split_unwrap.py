"""split and unwrap: parts of an event become events."""

from __future__ import annotations

from typing import Any

import pytest

from running_filters import applied, run
from trunkline.routes.chain import Chain, ErrorPolicy, Step
from trunkline.routes.event import Event, Source
from trunkline.routes.filters.split import SplitConfig, compile_split
from trunkline.routes.filters.unwrap import UnwrapConfig, compile_unwrap
from trunkline.routes.plugin import Around, Filter


def split(path: str = "") -> Filter:
    return compile_split(SplitConfig(path=path), Around())


def unwrap(path: str) -> Filter:
    return compile_unwrap(UnwrapConfig(path=path), Around())


def test_s29_split_of_arrays_and_of_what_is_none() -> None:
    two = [Event(payload=[{"n": n}, {"n": n + 100}]) for n in range(5)]
    parts = applied(split("."), two)
    assert [part.payload["n"] for part in parts] == [0, 100, 1, 101, 2, 102, 3, 103, 4, 104]
    assert [part.origin for part in parts] == [event for event in two for _ in range(2)]

    none, told = run(split("."), [Event(payload=[])])
    assert (none, told.reasons) == ([], [])

    an_object = Event(payload={"a": 1})
    ran = Chain([Step("split", split("."), ErrorPolicy.DROP)]).run([an_object])
    assert ran.out == []
    (fault,) = ran.faults
    assert (fault.event, fault.reason, fault.policy) == (
        an_object,
        "payload: an array is needed, found a map",
        ErrorPolicy.DROP,
    )


def test_s29_unwrap_and_then_split() -> None:
    deep = [Event(payload={"a": {"b": {"c": [{"n": n}, {"n": -n}]}}}) for n in range(5)]
    parts = applied(split(), applied(unwrap(".a.b.c"), deep))
    assert [part.payload for part in parts] == [{"n": n * sign} for n in range(5) for sign in (1, -1)]
    assert all(part.origin is deep[n // 2] for n, part in enumerate(parts))


@pytest.mark.parametrize(("payload", "found"), [({}, "nothing"), ({"a": "x"}, "a text"), ({"a": True}, "true or false")])
def test_what_is_not_an_array_is_refused_by_name(payload: Any, found: str) -> None:
    good, bad = Event(payload={"a": [1]}), Event(payload=payload)
    out, told = run(split(".a"), [bad, good])
    assert [event.payload for event in out] == [1]
    assert (told.events, told.reasons) == ([bad], [f"payload.a: an array is needed, found {found}"])


def test_parts_keep_metadata_and_source_and_share_them() -> None:
    event = Event(payload=[{"x": 1}, 2], metadata={"m": {"k": 1}}, source=Source(id="e1", trace_id="t"))
    first, second = applied(split(), [event])
    assert (first.payload, second.payload) == ({"x": 1}, 2)
    assert first.payload is event.payload[0]
    assert first.metadata is second.metadata is event.metadata
    assert first.source is second.source is event.source


def test_an_array_in_the_metadata_can_be_split_too() -> None:
    event = Event(payload="whole", metadata={"to": ["a", "b"]})
    assert [part.payload for part in applied(split("metadata.to"), [event])] == ["a", "b"]


def test_unwrap_takes_a_part_and_refuses_what_has_none() -> None:
    good, zero, bad, null = (Event(payload={"a": value}) for value in ({"b": {"x": 1}}, {"b": 0}, {"c": 1}, {"b": None}))
    out, told = run(unwrap(".a.b"), [good, bad, zero, null])
    assert [event.payload for event in out] == [{"x": 1}, 0]
    assert [event.origin for event in out] == [good, zero]
    assert told.events == [bad, null]
    assert told.reasons == ["payload.a.b: a value is needed, found nothing"] * 2
