"""hash: digests of values."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from running_filters import applied, run
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps
from trunkline.routes.event import Event
from trunkline.routes.filters.hash import HashConfig, compile_hash, fnv
from trunkline.routes.plugin import Around, Filter


def hashing(**config: Any) -> Filter:
    return compile_hash(HashConfig.model_validate(config), Around({"site": "leaf"}))


def digest(value: Any, **config: Any) -> Any:
    (made,) = applied(hashing(fromPath=".v", toPath=".h", **config), [Event(payload={"v": value})])
    assert made.payload["v"] == value
    return made.payload["h"]


def test_s30_sha1_of_a_text_in_hex() -> None:
    assert digest("bar", hashAlgorithm="sha1", encoding="hex") == "62cdb7020ff920e5aa642c3d4066950dd1f01f4d"


PLAIN = {"md5": hashlib.md5, "sha1": hashlib.sha1, "sha256": hashlib.sha256}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("value", ["bar", "", "Zürich", {"b": 1, "a": [None, 2.5]}, [1], 7, 2.5, True, 0])
def test_texts_are_hashed_as_they_are_and_all_else_as_json(name: str, value: Any) -> None:
    data = value.encode() if isinstance(value, str) else dumps(value)
    raw = PLAIN[name](data).digest()
    keyed = hmac.digest(b"s3cret", data, name)
    assert digest(value, hashAlgorithm=name, encoding="hex") == raw.hex()
    assert digest(value, hashAlgorithm=name, encoding="base64") == base64.b64encode(raw).decode()
    assert digest(value, hashAlgorithm=name) == base64.b64encode(raw).decode()
    assert digest(value, hashAlgorithm=f"hmac-{name}", key="s3cret", encoding="hex") == keyed.hex()
    assert digest(value, hashAlgorithm=f"hmac-{name}", key="s3cret") == base64.b64encode(keyed).decode()


def test_equal_values_have_equal_digests() -> None:
    assert digest({"a": 1, "b": [2.0]}) == digest({"b": [2], "a": 1.0})
    assert digest(1) == digest(1.0) == digest("1")
    assert digest(1) != digest(True)


@pytest.mark.parametrize(
    ("text", "number"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("b", 0xE70C2DE5), ("foobar", 0xBF9CF968), ("hello", 0x4F9F2CAB)]
)
def test_fnv_is_a_number_unless_an_encoding_is_given(text: str, number: int) -> None:
    raw = number.to_bytes(4, "big")
    assert digest(text, hashAlgorithm="fnv") == number
    assert digest(text, hashAlgorithm="fnv", encoding="hex") == raw.hex()
    assert digest(text, hashAlgorithm="fnv", encoding="base64") == base64.b64encode(raw).decode()


@given(st.binary(max_size=200))
def test_fnv_by_its_definition(data: bytes) -> None:
    value = 2166136261
    for byte in data:
        value = ((value ^ byte) * 16777619) % 2**32
    assert fnv(data) == fnv(data) == value


def test_md5_is_what_is_taken_and_the_value_is_replaced_where_it_is() -> None:
    (made,) = applied(hashing(fromPath=".a.v", encoding="hex"), [Event(payload={"a": {"v": "bar", "w": 1}, "b": 2})])
    assert made.payload == {"a": {"v": hashlib.md5(b"bar").hexdigest(), "w": 1}, "b": 2}


def test_the_digest_can_be_the_payload_and_be_made_of_it() -> None:
    (made,) = applied(hashing(hashAlgorithm="fnv"), [Event(payload="foobar", metadata={"m": 1})])
    assert (made.payload, made.metadata) == (0xBF9CF968, {"m": 1})
    (made,) = applied(hashing(fromPath=".v", toPath=".", hashAlgorithm="fnv"), [Event(payload={"v": "foobar"})])
    assert made.payload == 0xBF9CF968


@pytest.mark.parametrize("metadata", [{}, {"kafka": None}, {"kafka": {"topic": "t"}}, {"other": 1, "kafka": {"partition": 5}}])
def test_a_partition_is_set_in_the_metadata_and_nothing_is_changed_in_place(metadata: dict[str, Any]) -> None:
    event = Event(payload={"to": {"location": "foobar"}}, metadata=metadata)
    before = dumps([event.payload, metadata])
    config = {"fromPath": ".to.location", "toPath": "metadata.kafka.partition", "hashAlgorithm": "fnv"}
    (made,) = applied(hashing(**config), [event])
    assert made.metadata == {**metadata, "kafka": {**(metadata.get("kafka") or {}), "partition": 0xBF9CF968}}
    assert made.payload is event.payload
    assert made.origin is event
    assert dumps([event.payload, event.metadata]) == before


def test_a_template_gives_what_is_hashed() -> None:
    event = Event(payload={"id": 7, "name": "x", "all": {"k": 1}})
    for template, data in [
        ("{.name}-{.id}@{site}", b"x-7@leaf"),
        ("{.all}", b'{"k":1}'),
        ("{.id}", b"7"),
        ("{.gone}-", b"null-"),
        ("fixed", b"fixed"),
    ]:
        (made,) = applied(hashing(**{"from": template, "toPath": ".h", "encoding": "hex"}), [event])
        assert made.payload["h"] == hashlib.md5(data).hexdigest(), template


def test_an_event_without_a_value_is_refused_and_its_neighbours_pass() -> None:
    batch = [Event(payload={"v": "a"}), Event(payload={}), Event(payload={"v": 0})]
    out, told = run(hashing(fromPath=".v", toPath=".h"), batch)
    assert [event.payload["v"] for event in out] == ["a", 0]
    assert (told.events, told.reasons) == ([batch[1]], ["payload.v: a value is needed, found nothing"])
    out, told = run(hashing(**{"from": "{.gone}", "toPath": ".h"}), batch[:1])
    assert (out, told.reasons) == ([], ["{.gone}: a value is needed, found nothing"])


def test_what_cannot_be_set_is_refused_by_name() -> None:
    bad = Event(payload={"v": "a", "h": [1]})
    out, told = run(hashing(fromPath=".v", toPath=".h.x"), [bad])
    assert (out, told.events, told.reasons) == ([], [bad], ["payload.h: a map is needed, found an array"])


@pytest.mark.parametrize("depth", [260, 100_000])
def test_a_value_nested_too_deeply_for_json_is_refused(depth: int) -> None:
    deep: Any = 1
    for _ in range(depth):
        deep = [deep]
    out, told = run(hashing(fromPath=".v", toPath=".h"), [Event(payload={"v": deep}), Event(payload={"v": 1})])
    assert len(out) == len(told.reasons) == 1
    assert told.reasons[0].startswith("payload.v: it cannot be written as JSON: ")


@pytest.mark.parametrize(
    "wrong",
    [
        {"hashAlgorithm": "sha512"},
        {"encoding": "base32"},
        {"hashAlgorithm": "hmac-sha1"},
        {"hashAlgorithm": "hmac-sha1", "key": ""},
        {"toPath": "trace.id"},
        {"toPath": "somewhere.else"},
        {"from": "{.a"},
        {"fromPath": ".a[-1]"},
        {"toWhere": ".a"},
    ],
)
def test_a_wrong_configuration_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HashConfig.model_validate(wrong)


@pytest.mark.parametrize("wrong", [{"from": "{nowhere}", "toPath": ".h"}, {"fromPath": "trace.id"}])
def test_what_only_its_place_can_tell_is_refused_when_it_is_compiled(wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        hashing(**wrong)


def test_the_key_is_never_shown() -> None:
    config = HashConfig.model_validate({"hashAlgorithm": "hmac-md5", "key": "s3cret"})
    assert "s3cret" not in repr(config) + str(config.model_dump()) + config.model_dump_json()
