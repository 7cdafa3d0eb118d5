"""Other envelopes become ours, or are left as they are; nothing that comes makes the reader stumble."""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline.bridge.envelope import normalise
from trunkline.bridge.fleettypes import GLOBAL_HUB, GLOBAL_HUB_PREFIX
from trunkline.bridge.shipped import SHIPPED
from trunkline.core.bundle import UNTOLD, Chunk, Dependency, Mode, Version, parse_bundle
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps, loads


def foreign(suffix: str, **more: str) -> dict[str, str]:
    return {
        "ce_specversion": "1.0", "ce_id": "7f", "ce_source": "h1", "ce_type": GLOBAL_HUB_PREFIX + suffix,
        "ce_time": "2026-01-01T00:00:00Z", "content-type": "application/json",
    } | {f"ce_{name}": value for name, value in more.items()}  # fmt: skip


def test_v2_a_global_hub_message_becomes_a_bundle() -> None:
    headers, payload = normalise(foreign("policy.localcompliance", extversion="2.15"), b"[]")
    bundle = SHIPPED.accept(parse_bundle(headers, payload, "h1"))
    assert (bundle.type, bundle.mode, bundle.id, bundle.time) == (
        "clusters-per-policy", Mode.COMPLETE, "7f", "2026-01-01T00:00:00Z",
    )  # fmt: skip
    assert bundle.version == Version(UNTOLD, 2)
    assert bundle.named == Version(UNTOLD, 15)
    assert (bundle.dependency, bundle.chunk, bundle.session, bundle.data) == (None, None, "", b"[]")


def test_v2_a_dependency_names_a_value_of_any_run() -> None:
    headers, payload = normalise(
        foreign("policy.localcompletecompliance", extversion="0.3", extdependencyversion="1.5", sessionid="s"), b"[]"
    )
    bundle = SHIPPED.accept(parse_bundle(headers, payload, "h1"))
    assert bundle.dependency == Dependency("clusters-per-policy", Version(0, 5))
    assert bundle.session == "s"


def test_v2_a_part_says_where_it_ends() -> None:
    headers, payload = normalise(foreign("policy.localcompliance", extversion="0.1", extsize="30", extoffset="20"), b"x" * 20)
    assert parse_bundle(headers, payload, "h1").chunk == Chunk(20, 30)


@pytest.mark.parametrize(
    ("mode", "payload", "expected"),
    [("single", b' {"a":1}', [{"a": 1}]), ("batch", b'[{"a":1}]', [{"a": 1}]), ("single", b'[{"a":1}]', [{"a": 1}])],
)
def test_v2_an_event_sent_by_itself_is_a_list_of_one(mode: str, payload: bytes, expected: object) -> None:
    _, listed = normalise(foreign("event.localreplicatedpolicy", extversion="0.1", sendmode=mode), payload)
    assert loads(listed) == expected


@pytest.mark.parametrize(("suffix", "name"), GLOBAL_HUB.items(), ids=list(GLOBAL_HUB))
def test_v2_every_type_of_the_table_is_declared_and_gets_its_mode(suffix: str, name: str) -> None:
    headers, payload = normalise(foreign(suffix, extversion="1.2", extdependencyversion="1.1"), b"[]")
    bundle = SHIPPED.accept(parse_bundle(headers, payload, "h1"))
    assert (bundle.type, bundle.mode) == (name, SHIPPED[name].mode)
    assert (bundle.dependency is not None) == (SHIPPED[name].depends_on is not None)


@pytest.mark.parametrize(
    ("suffix", "more", "reason"),
    [
        ("managedcluster", {}, "no header ce_incarnation, ce_generation"),
        ("managedcluster", {"extversion": "5"}, "no header ce_incarnation, ce_generation"),
        ("managedcluster", {"extversion": "a.b"}, "version"),
        ("managedclustermigration", {"extversion": "1.1"}, "no header ce_mode"),
        ("policy.localcompletecompliance", {"extversion": "1.1", "extdependencyversion": "x"}, "version"),
        ("policy.localcompletecompliance", {"extversion": "1.1"}, "it names no version of clusters-per-policy"),
        ("policy.localcompliance", {"extversion": "1.1", "extsize": "9"}, "chunk '/9'"),
    ],
)
def test_v4_what_is_wrong_is_refused_with_its_reason(suffix: str, more: dict[str, str], reason: str) -> None:
    headers, payload = normalise(foreign(suffix, **more), b"[]")
    with pytest.raises(Invalid) as refused:
        SHIPPED.accept(parse_bundle(headers, payload, "h1"))
    assert reason in str(refused.value)


OURS = {
    "ce_specversion": "1.0", "ce_id": "1", "ce_source": "a", "ce_type": "clusters", "ce_time": "", "ce_mode": "complete",
    "ce_incarnation": "1", "ce_generation": "2", "traceparent": "t",
}  # fmt: skip


def test_v3_what_is_ours_is_left_as_it_is() -> None:
    assert normalise(OURS, b"anything") == (OURS, b"anything")


STRUCTURED = {"specversion": "1.0", "id": "1", "source": "a", "type": "clusters", "mode": "complete", "incarnation": 1,
              "generation": "2"}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "data", "kind"),
    [
        ({"data": [{"b": 1}]}, b'[{"b":1}]', "application/json"),
        ({"data_base64": base64.b64encode(b"\x00\xff").decode()}, b"\x00\xff", "application/json"),
        ({"data": "[1]", "datacontenttype": "text/plain"}, b"[1]", "text/plain"),
        ({"data": "x", "datacontenttype": "application/json"}, b'"x"', "application/json"),
        ({}, b"", "application/json"),
    ],
    ids=["json", "base64", "text", "a JSON string", "no data"],
)
def test_v1_a_structured_cloud_event_becomes_a_binary_one(body: dict[str, object], data: bytes, kind: str) -> None:
    given = {"Content-Type": "application/cloudevents+json; charset=utf-8", "traceparent": "t"}
    headers, payload = normalise(given, dumps(STRUCTURED | body))
    assert payload == data
    assert headers == {
        "Content-Type": kind, "traceparent": "t", "ce_specversion": "1.0", "ce_id": "1", "ce_source": "a",
        "ce_type": "clusters", "ce_mode": "complete", "ce_incarnation": "1", "ce_generation": "2",
    }  # fmt: skip
    assert parse_bundle(headers, payload, "a").version == Version(1, 2)


def test_v1_a_structured_event_of_a_global_hub_agent_goes_both_ways() -> None:
    event = {"specversion": "1.0", "id": "1", "source": "h1", "type": GLOBAL_HUB_PREFIX + "event.managedcluster",
             "extversion": "0.1", "sendmode": "single", "data": {"eventName": "e"}}  # fmt: skip
    headers, payload = normalise({"content-type": "application/cloudevents+json"}, dumps(event))
    assert parse_bundle(headers, payload, "h1").type == "cluster-events"
    assert loads(payload) == [{"eventName": "e"}]


@pytest.mark.parametrize(
    "payload", [b"{", b"[]", b'{"data_base64":"?"}', b'{"data":' + b"[" * 500 + b"]" * 500 + b"}"],
    ids=["no JSON", "no object", "no base64", "too deep"],
)  # fmt: skip
def test_v4_a_structured_event_that_is_none_is_left_to_be_refused(payload: bytes) -> None:
    given = {"content-type": "application/cloudevents+json"}
    assert normalise(given, payload) == (given, payload)


KINDS = st.sampled_from(["application/cloudevents+json", "application/json", "APPLICATION/CloudEvents+JSON; x", ""])
NAMES = st.sampled_from(
    ["ce_extversion", "ce_extdependencyversion", "ce_extsize", "ce_extoffset", "ce_sendmode", "ce_sessionid", "ce_id",
     "ce_source", "ce_mode", "content-type", "Content-Type", "traceparent"]
)  # fmt: skip
TYPES = st.sampled_from([*(GLOBAL_HUB_PREFIX + suffix for suffix in GLOBAL_HUB), GLOBAL_HUB_PREFIX, "clusters", ""])
TEXTS = st.text(max_size=8) | st.from_regex(r"\A[0-9]{1,3}\.[0-9]{1,3}\Z") | KINDS | st.just("single")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
EVENTS = st.fixed_dictionaries(
    {}, optional={"type": TYPES, "id": JSON, "data": JSON, "data_base64": TEXTS, "datacontenttype": KINDS | JSON, "mode": JSON}
)  # fmt: skip


def _as_json(value: object) -> bytes:
    try:
        return dumps(value)
    except TypeError:  # a whole number of more than 64 bits
        return b"{}"


@settings(max_examples=300, deadline=None)
@given(
    headers=st.dictionaries(NAMES, TEXTS, max_size=8),
    kind=st.none() | TYPES,
    content=st.none() | KINDS,
    payload=st.binary(max_size=20) | EVENTS.map(_as_json) | JSON.map(_as_json),
)
def test_v3_v4_whatever_comes_nothing_raises_and_twice_is_once(
    headers: dict[str, str], kind: str | None, content: str | None, payload: bytes
) -> None:
    given = headers | ({"ce_type": kind} if kind is not None else {}) | ({"content-type": content} if content else {})
    once = normalise(given, payload)
    assert normalise(*once) == once
    assert all(isinstance(value, str) for value in once[0].values())
    with suppress(Invalid):
        SHIPPED.accept(parse_bundle(*once, once[0].get("ce_source", "")))
