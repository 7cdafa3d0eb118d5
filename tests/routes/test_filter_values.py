"""decode, encode, merge, regex, modify and trace: one value becomes another."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from running_filters import applied, run
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps
from trunkline.routes.event import Event, Source
from trunkline.routes.filters.decode import DECODE
from trunkline.routes.filters.encode import ENCODE
from trunkline.routes.filters.mapping import MAPPING
from trunkline.routes.filters.merge import MERGE, merged
from trunkline.routes.filters.modify import MODIFY
from trunkline.routes.filters.regex import REGEX
from trunkline.routes.filters.trace import TRACE
from trunkline.routes.plugin import Around, Filter, FilterPlugin

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def made(plugin: FilterPlugin[Any], **config: Any) -> Filter:
    return plugin.compile(plugin.config.model_validate(config), Around())


def payload(plugin: FilterPlugin[Any], before: Any, **config: Any) -> Any:
    (event,) = applied(made(plugin, **config), [Event(payload=before)])
    return event.payload


def reason(plugin: FilterPlugin[Any], bad: Any, good: Any, **config: Any) -> str:
    """Why the bad one is refused; the good one beside it passes."""
    out, told = run(made(plugin, **config), [Event(payload=bad), Event(payload=good)])
    assert len(out) == 1
    assert [event.payload for event in told.events] == [bad]
    return told.reasons[0]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def test_s30_decode_to_the_whole_payload() -> None:
    assert payload(DECODE, {"value": "eyJmb28iOiJiYXIifQ=="}, fromPath=".value", toPath=".") == {"foo": "bar"}


def test_s30_merge_of_arrays_puts_the_new_in_front() -> None:
    before = {"new": ["a", "b"], "old": ["b", "c"]}
    assert payload(MERGE, before, fromPath=".new", toPath=".old") == {"new": ["a", "b"], "old": ["a", "b", "b", "c"]}
    assert before == {"new": ["a", "b"], "old": ["b", "c"]}


def test_s30_regex_gives_its_first_find() -> None:
    assert payload(REGEX, {"foo": "bar-4242.baz"}, fromPath=".foo", regex="[0-9]+") == {"foo": "4242"}


def test_s30_mapping_of_an_array_with_a_default() -> None:
    before = {"places": [{"name": "earth"}, {"name": "mars"}, {"name": "sun"}, {}]}
    config = {"arrayPath": ".places", "path": ".name", "map": [{"from": name, "to": "planet"} for name in ("earth", "mars")]}
    kinds = payload(MAPPING, before, **config, defaultValue="other")["places"]
    assert [place["name"] for place in kinds] == ["planet", "planet", "other", "other"]
    kinds = payload(MAPPING, before, **config)["places"]
    assert kinds == [{"name": "planet"}, {"name": "planet"}, {"name": "sun"}, {}]


@pytest.mark.parametrize("value", [{"foo": "bar"}, [1, None], "text", "", 0, 2.5, False])
@pytest.mark.parametrize("encoding", ["base64", "string"])
def test_encode_and_decode_are_the_reverse_of_each_other(value: Any, encoding: str) -> None:
    encoded = payload(ENCODE, {"v": value, "x": 1}, fromPath=".v", toPath=".e", encoding=encoding)
    text = dumps(value).decode()
    assert encoded == {"v": value, "x": 1, "e": text if encoding == "string" else base64.b64encode(text.encode()).decode()}
    assert payload(DECODE, encoded, fromPath=".e", encoding=encoding) == {"v": value, "x": 1, "e": value}


def test_base64_may_have_several_lines() -> None:
    assert payload(DECODE, {"v": "eyJmb28i\r\nOiJiYXIifQ==\n"}, fromPath=".v") == {"v": {"foo": "bar"}}


@pytest.mark.parametrize(
    ("value", "encoding", "why"),
    [
        (None, "base64", "a text is needed, found nothing"),
        (5, "base64", "a text is needed, found a number"),
        ("eyJ%", "base64", "it is not base64: "),
        ("M%Q==", "base64", "it is not base64: "),
        ("eyJmb28iOiJiYXIifQ", "base64", "it is not base64: "),
        ("ü", "base64", "it is not base64: "),
        ("Zm9v", "base64", "what it holds is not JSON: "),
        ("/w==", "base64", "what it holds is not JSON: "),
        ("", "base64", "what it holds is not JSON: "),
        ("{", "string", "what it holds is not JSON: "),
        ("[" * 2000, "string", "what it holds is not JSON: "),
    ],
)
def test_what_cannot_be_decoded_is_refused_with_its_reason(value: Any, encoding: str, why: str) -> None:
    said = reason(DECODE, {"v": value}, {"v": base64.b64encode(b"1").decode() if encoding == "base64" else "1"},
                  fromPath=".v", encoding=encoding)  # fmt: skip
    assert said.startswith(f"payload.v: {why}")


def test_what_cannot_be_encoded_is_refused_with_its_reason() -> None:
    assert reason(ENCODE, {}, {"v": 1}, fromPath=".v") == "payload.v: a value is needed, found nothing"
    assert reason(ENCODE, nested(300), {"a": 1}, fromPath=".a") == (
        "payload.a: it cannot be written as JSON: Recursion limit reached"
    )


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": {"x": 1, "y": [1]}}, {"a": {"y": [2], "z": 3}}, {"a": {"x": 1, "y": [1, 2], "z": 3}}),
        ({"a": 1}, {"a": None}, {"a": 1}),
        ({"a": None}, {"a": 1}, {"a": 1}),
        ([1], {"a": 1}, {"a": 1}),
        ("new", "old", "old"),
        (True, False, False),
        ({"a": 1}, None, {"a": 1}),
        (None, {"a": 1}, {"a": 1}),
        ([], [1], [1]),
    ],
)
def test_merge_keeps_what_is_there(new: Any, old: Any, expected: Any) -> None:
    before = {"new": new, "old": old}
    copy = dumps(before)
    assert payload(MERGE, before, fromPath=".new", toPath=".old") == {"new": new, "old": expected}
    assert dumps(before) == copy


def test_merge_makes_what_is_missing_and_lets_pass_what_has_nothing_to_merge() -> None:
    assert payload(MERGE, {"new": [1]}, fromPath=".new", toPath=".a.b") == {"new": [1], "a": {"b": [1]}}
    untouched = Event(payload={"x": 1})
    assert applied(made(MERGE, fromPath=".new", toPath=".a.b"), [untouched]) == [untouched]
    (event,) = applied(made(MERGE, fromPath="metadata", toPath=""), [Event(payload={"a": 1}, metadata={"a": 2, "b": 3})])
    assert (event.payload, event.metadata) == ({"a": 1, "b": 3}, {"a": 2, "b": 3})


def test_merge_refuses_what_it_cannot_do() -> None:
    good = {"new": 1, "old": {}}
    assert reason(MERGE, {"new": 1, "old": "x"}, good, fromPath=".new", toPath=".old.a") == (
        "payload.old: a map is needed, found a text"
    )
    deep = {"new": nested(5000), "old": nested(5000)}
    assert reason(MERGE, deep, good, fromPath=".new", toPath=".old") == "payload.old: nested too deeply to be merged"


@given(JSON, JSON)
def test_nothing_that_is_there_is_lost_by_a_merge(new: Any, old: Any) -> None:
    def within(small: Any, large: Any) -> bool:
        if isinstance(small, dict):
            return all(value is None or within(value, large[key]) for key, value in small.items())
        return bool(large[len(large) - len(small) :] == small if isinstance(small, list) else large == small)

    before = dumps([new, old])
    result = merged(new, old)
    assert old is None or within(old, result)
    assert merged(None, old) == old
    assert dumps([new, old]) == before


@pytest.mark.parametrize(
    ("text", "regex", "replacement", "expected"),
    [
        ("bar-4242.baz", "[0-9]+", "", "bar-.baz"),
        ("a1b22", "[0-9]+", "#", "a#b#"),
        ("a1b22", "([a-z])([0-9]+)", "$2$1", "1a22b"),
        ("a1b22", "(?P<letter>[a-z])[0-9]+", "<${letter}>", "<a><b>"),
        ("a1", "([a-z])[0-9]", "${1}x $$1", "ax $1"),
        ("ab", "(a)|(b)", "[$1$2]", "[a][b]"),
        ("a1", "1", "cost: $", "acost: $"),
        ("a1", "1", r"\1\n", r"a\1\n"),
        ("a1", "[0-9]", "$0$0", "a11"),
        ("baaac", "a*", "x", "xbxcx"),
        ("abc", ".*", "x", "x"),
        ("", ".*", "x", "x"),
        ("abc", "z", "x", "abc"),
        (4242, "4", "5", "5252"),
        ({"b": 1, "a": 2}, '"', "", "{a:2,b:1}"),
    ],
)
def test_regex_replaces_all_that_it_finds(text: Any, regex: str, replacement: str, expected: str) -> None:
    assert payload(REGEX, {"v": text}, fromPath=".v", toPath=".r", regex=regex, replaceAllString=replacement)["r"] == expected


def test_regex_knows_letters_by_what_they_are_and_not_by_their_bytes() -> None:
    found = {"fromPath": ".v", "regex": "[^a]*", "replaceAllString": "<$0>"}
    assert payload(REGEX, {"v": "aünda→b"}, **found) == {"v": "<>a<ünd>a<→b>"}


def test_regex_gives_a_text_up_that_takes_too_long() -> None:
    slow = {"fromPath": ".v", "regex": "a.*b|a", "replaceAllString": "x"}
    assert (
        reason(REGEX, {"v": "a" * 200_000}, {"v": "aab"}, **slow) == "payload.v: to find all of 'a.*b|a' takes more than 0.5 s"
    )


@pytest.mark.parametrize(
    ("text", "regex", "expected"),
    [("abc", "^.*$", "abc"), ("abc", "[0-9]", ""), ("a1b2", "[0-9]", "1"), (True, ".*", "true"), ([1, 2], "[0-9]", "1")],
)
def test_regex_without_a_replacement_gives_its_first_find_or_an_empty_text(text: Any, regex: str, expected: str) -> None:
    assert payload(REGEX, text, regex=regex) == expected


def test_regex_refuses_an_event_without_a_text() -> None:
    assert reason(REGEX, {"v": None}, {"v": "x"}, fromPath=".v") == "payload.v: a text is needed, found nothing"


def test_modify_changes_texts_at_its_paths_and_skips_the_rest() -> None:
    before = Event(payload={"a": "aBc", "b": {"c": "Ünd", "n": 5}, "l": ["x", "y"]}, metadata={"m": "Mm"})
    paths = [".b.c", ".b.n", ".gone", ".l[1]", "metadata.m"]
    (upper,) = applied(made(MODIFY, path=".a", paths=paths, toUpper=True), [before])
    assert upper.payload == {"a": "ABC", "b": {"c": "ÜND", "n": 5}, "l": ["x", "Y"]}
    assert upper.metadata == {"m": "MM"}
    assert upper.origin is before
    assert before.payload == {"a": "aBc", "b": {"c": "Ünd", "n": 5}, "l": ["x", "y"]}
    (lower,) = applied(made(MODIFY, paths=[".a"], toLower=True), [before])
    assert lower.payload == {**before.payload, "a": "abc"}


def test_modify_lets_pass_what_it_need_not_change() -> None:
    unchanged = [Event(payload={"a": "ABC"}), Event(payload={}), Event(payload=5)]
    out = applied(made(MODIFY, path=".a", toUpper=True), unchanged)
    assert all(after is before for after, before in zip(out, unchanged, strict=True))


def test_modify_without_a_path_means_the_payload() -> None:
    assert payload(MODIFY, "abc", toUpper=True) == "ABC"


def test_trace_writes_the_trace_id() -> None:
    one = Event(payload={"tx": {"n": 1}}, metadata={"m": 1}, source=Source(id="e", trace_id="t-1"))
    none = Event(payload={})
    out = applied(made(TRACE, path=".tx.traceId"), [one, none])
    assert [event.payload for event in out] == [{"tx": {"n": 1, "traceId": "t-1"}}, {"tx": {"traceId": None}}]
    assert (out[0].metadata, out[0].source, out[0].origin) == (one.metadata, one.source, one)
    (event,) = applied(made(TRACE, path="metadata.trace"), [one])
    assert event.metadata == {"m": 1, "trace": "t-1"}


def test_trace_refuses_what_it_cannot_set() -> None:
    assert reason(TRACE, {"tx": "x"}, {}, path=".tx.traceId") == "payload.tx: a map is needed, found a text"


@given(
    path=st.sampled_from([".a.b", ".a.b.c", ".a", "metadata.a.b", "metadata.a", ".", ".a[1]", ".a[1].b", ".l[k=v].x"]),
    content=JSON | st.fixed_dictionaries({"a": JSON}) | st.just({"l": [{}, {"k": "v"}]}),
)
def test_what_is_set_is_read_there_and_the_old_event_stays(path: str, content: Any) -> None:
    before = Event(payload=content, metadata={"a": content}, source=Source(trace_id="t"))
    copy = dumps([before.payload, before.metadata])
    out, told = run(made(TRACE, path=path), [before])
    assert len(out) + len(told.reasons) == 1
    assert dumps([before.payload, before.metadata]) == copy
    for event in out:
        assert applied(made(TRACE, path=path), [event])[0].payload == event.payload
        (found,) = applied(made(REGEX, fromPath=path, toPath="."), [event])
        assert found.payload == "t"


WRONG: list[tuple[FilterPlugin[Any], dict[str, Any]]] = [
    (DECODE, {"encoding": "hex"}),
    (DECODE, {"toPath": "nowhere.a"}),
    (ENCODE, {"encoding": "base65"}),
    (ENCODE, {"toPath": "timestamp"}),
    (MERGE, {}),
    (MERGE, {"fromPath": ".a", "toPath": "payload.a"}),
    (REGEX, {"regex": "("}),
    (REGEX, {"regex": "a", "replaceAllString": "$1"}),
    (REGEX, {"regex": "(a)", "replaceAllString": "$1x"}),
    (REGEX, {"regex": "(?P<n>a)", "replaceAllString": "${m}"}),
    (MODIFY, {}),
    (MODIFY, {"path": ".a", "toUpper": True, "toLower": True}),
    (MODIFY, {"paths": [".a", "trace.id"], "toUpper": True}),
    (TRACE, {}),
    (TRACE, {"path": "trace.id"}),
]


@pytest.mark.parametrize(("plugin", "config"), WRONG, ids=lambda value: getattr(value, "name", str(value)))
def test_a_wrong_configuration_is_refused(plugin: FilterPlugin[BaseModel], config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        plugin.config.model_validate(config)


@pytest.mark.parametrize("plugin", [DECODE, ENCODE, REGEX], ids=lambda plugin: plugin.name)
def test_a_result_cannot_take_the_place_of_what_is_only_read(plugin: FilterPlugin[BaseModel]) -> None:
    with pytest.raises(Invalid, match=r"trace\.id.*only be read"):
        made(plugin, fromPath="trace.id")
