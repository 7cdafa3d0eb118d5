"""The js filter: what scripts see and may return, and that none of them can do harm to another, or to us."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from running_filters import applied, run
from trunkline.core.errors import Invalid
from trunkline.routes.chain import Chain, ErrorPolicy, Step
from trunkline.routes.event import Event
from trunkline.routes.filters import js_engine
from trunkline.routes.filters.js import JS, JsConfig, compile_js
from trunkline.routes.filters.js_host import Engine, engine_of_this_thread
from trunkline.routes.plugin import Around, Filter
from waiting import eventually

ENDLESS_REGEX = "return /(a+)+$/.test(_.payload.foo) ? null : _.event;"
"""Of many a and one b it makes more than its engine can interrupt."""
MANY_A = {"foo": "a" * 60 + "b"}


def script(source: str, around: Around | None = None, **limits: Any) -> Filter:
    return compile_js(JsConfig(source=source, **limits), around or Around())


def five() -> list[Event]:
    return [Event({"foo": "bar"}, {"m": n}) for n in range(5)]


def reason(source: str, payload: Any = None, **limits: Any) -> str:
    event = Event(payload)
    out, told = run(script(source, **limits), [event])
    assert out == []
    assert told.events == [event]
    return told.reasons[0]


def value(source: str, payload: Any = None) -> Any:
    (made,) = applied(script(f"return {{payload: {source}}};"), [Event(payload)])
    return made.payload


@pytest.mark.parametrize("source", ["return null;", "return undefined;", "return;", "if (false) return _.event;", "return [];"])
def test_s31_null_drops(source: str) -> None:
    assert applied(script(source), five()) == []


def test_s31_an_object_changes_the_event() -> None:
    out = applied(script("_.event.payload.tag = 'ears'; return _.event;"), five())
    assert [event.payload for event in out] == [{"foo": "bar", "tag": "ears"}] * 5
    assert [event.metadata for event in out] == [{"m": n} for n in range(5)]


def test_s31_an_array_splits_the_event() -> None:
    batch = five()
    out = applied(script("return [{payload: 1}, {payload: 2, metadata: {b: true}}];"), batch)
    assert [event.payload for event in out] == [1, 2] * 5
    assert [event.metadata for event in out] == [part for n in range(5) for part in ({"m": n}, {"b": True})]
    assert [event.origin for event in out] == [event for event in batch for _ in range(2)]


@pytest.mark.parametrize("policy", list(ErrorPolicy))
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("return 10;", "it returned a number; an event is {payload, metadata}, null drops it"),
        ("\n\nthrow new TypeError('no id');", "TypeError: no id (line 3)"),
    ],
)
def test_s31_another_type_or_a_throw_is_left_to_the_error_policy(source: str, why: str, policy: ErrorPolicy) -> None:
    batch = five()
    ran = Chain([Step("js[0]", script(source), policy)]).run(batch)
    assert ran.out == []
    assert [(fault.event, fault.reason, fault.policy) for fault in ran.faults] == [(event, why, policy) for event in batch]


@pytest.mark.parametrize(
    ("source", "payload"),
    [("while (true) {}", {}), ("while (true) { try { while (true) {} } catch (e) {} }", {}), (ENDLESS_REGEX, MANY_A)],
    ids=["loop", "loop that catches", "regex that backtracks"],
)
def test_s31_an_endless_loop_is_cut_off_within_a_second(source: str, payload: Any) -> None:
    filter = script(source)
    before = time.monotonic()
    out, told = run(filter, [Event(payload)])
    assert time.monotonic() - before <= 1.0
    assert (out, told.reasons) == ([], ["it took longer than it may"])


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("var a = ;", r"SyntaxError: .*\(line 1\)"),
        ("return 1;\n\nreturn ) 2;", r"SyntaxError: .*\(line 3\)"),
        ("}), (function () {", "SyntaxError"),
        ("} function g() {", "SyntaxError"),
        ("with (_) { return event; }", "SyntaxError"),
    ],
)
def test_s31_a_syntax_error_is_refused_when_the_route_is_added(source: str, why: str) -> None:
    with pytest.raises(Invalid, match=why) as error:
        script(source)
    assert error.value.next_step == "mend it; it is the body of a JavaScript function"


def test_s31_a_result_without_metadata_keeps_the_old() -> None:
    for source in ("return {payload: 1};", "return {payload: 1, metadata: null};", "return {payload: 1, metadata: undefined};"):
        (made,) = applied(script(source), [Event(0, {"old": "one"})])
        assert (made.payload, made.metadata) == (1, {"old": "one"})


def test_a_script_sees_the_event_in_two_ways_that_are_the_same() -> None:
    same = "[_.payload === _.event.payload, _.metadata === _.event.metadata, _.payload.foo, _.metadata]"
    (made,) = applied(script(f"return {{payload: {same}}};"), [Event({"foo": "bar"}, {"m": 1})])
    assert made.payload == [True, True, "bar", {"m": 1}]


@pytest.mark.parametrize("payload", [None, True, 0, -1.5, 'ü\u0000\n\u2028"', [], {"": [None]}, 2**53])
def test_a_payload_comes_back_as_it_went_in(payload: Any) -> None:
    (made,) = applied(script("return _.event;"), [Event(payload)])
    assert made.payload == payload
    assert type(made.payload) is type(payload)


def test_the_event_that_came_in_is_not_changed() -> None:
    event = Event({"a": {"b": 1}}, {"m": [1]})
    applied(script("_.payload.a.b = 2; _.metadata.m.push(2); return _.event;"), [event])
    assert (event.payload, event.metadata) == ({"a": {"b": 1}}, {"m": [1]})


def test_the_time_is_that_of_the_place() -> None:
    (made,) = applied(script("return {payload: [_.now(), _.nowms()]};", Around(now=lambda: 1_700_000_000.25)), [Event(0)])
    assert made.payload == ["2023-11-14T22:13:20.250Z", 1_700_000_000_250]


def test_esc_escapes_for_a_query() -> None:
    assert value("_.esc('a b&c/d=é\\'!~')") == "a+b%26c%2Fd%3D%C3%A9%27%21~"
    assert reason("_.esc(5); return null;").startswith("TypeError: esc needs a text")


def test_scripts_write_to_the_log() -> None:
    lines: list[Mapping[str, Any]] = []
    source = "_.log('one ' + _.payload); _.logInfo('two'); _.logError({a: 1}); return null;"
    assert applied(script(source, Around(log=lines.append)), [Event(1)]) == []
    assert lines == [
        {"level": "info", "message": "one 1"},
        {"level": "info", "message": "two"},
        {"level": "error", "message": "[object Object]"},
    ]


def test_the_log_of_one_event_has_an_end() -> None:
    lines: list[Mapping[str, Any]] = []
    applied(script("for (let n = 0; n < 1e4; n++) _.log(n); return null;", Around(log=lines.append)), [Event(1)])
    assert [line["message"] for line in lines] == [str(n) for n in range(100)]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("return 'text';", "it returned a text; an event is {payload, metadata}, null drops it"),
        ("return true;", "it returned true or false; an event is {payload, metadata}, null drops it"),
        ("return function () {};", "returned a function"),
        ("return 10n;", "returned what is not JSON: bigint are forbidden in JSON.stringify"),
        ("return _.payload;", "it returned an object without payload; an event is {payload, metadata}"),
        ("return Promise.resolve(_.event);", "it returned an object without payload; an event is {payload, metadata}"),
        ("return [{payload: 1}, 2];", "it returned a number; an event is {payload, metadata}, null drops it"),
        ("return [[{payload: 1}]];", "it returned an array; an event is {payload, metadata}, null drops it"),
        ("return {payload: 1, metadata: 'm'};", "it returned a text as metadata; that is a map"),
        ("return {payload: '\\ud800'};", "JSON document: "),
        ("throw 'a text';", 'threw "a text"'),
        ("throw null;", "it threw null, or needs more memory than it may have"),
        ("return missing;", "ReferenceError: 'missing' is not defined (line 1)"),
        ("function again() { return again() + 1; }\nreturn again();", "it calls itself too deeply"),
    ],
)
def test_a_fault_says_what_is_wrong(source: str, why: str) -> None:
    assert reason(source, {"foo": "bar"}).startswith(why)


def test_too_much_memory_is_a_fault_and_the_next_event_has_room_again() -> None:
    source = "const all = []; while (_.payload) all.push('x'.repeat(1000) + all.length); return _.event;"
    out, told = run(script(source, memory_limit=4), [Event(n) for n in (0, 1, 0)])
    assert [event.payload for event in out] == [0, 0]
    assert [event.payload for event in told.events] == [1]
    # The engine itself may not survive that it has no memory left; that is the same event's fault.
    assert told.reasons[0] in ("it needs more memory than it may have", "the script engine broke down")


def test_what_others_left_in_memory_is_nobodys_fault() -> None:
    """Promises are kept until they are run, which they never are."""
    source = "Promise.resolve('x'.repeat(100000) + _.payload).then((kept) => kept); return _.event;"
    out = applied(script(source, memory_limit=2), [Event(n) for n in range(100)])
    assert [event.payload for event in out] == list(range(100))


@pytest.mark.parametrize("source", ["if (_.payload.foo[0] === 'a') while (true) {} return _.event;", ENDLESS_REGEX])
def test_only_who_takes_too_long_is_cut_off(source: str) -> None:
    batch = [Event({"foo": foo}) for foo in ("b", "c", "a" * 60 + "b", "d", "a" * 60 + "b", "e")]
    filter = script(source, time_limit=0.5)
    for _ in range(2):
        out, told = run(filter, batch)
        assert [event.payload["foo"] for event in out] == ["b", "c", "d", "e"]
        assert told.events == [batch[2], batch[4]]
        assert told.reasons == ["it took longer than it may"] * 2


def test_an_engine_that_breaks_down_costs_the_event_that_broke_it() -> None:
    filter = script(ENDLESS_REGEX, time_limit=60)
    engine = engine_of_this_thread()

    def break_down() -> None:
        eventually(lambda: engine.begun() == 2)
        engine.process.kill()

    breaking = threading.Thread(target=break_down)
    breaking.start()
    out, told = run(filter, [Event({"foo": "b"}), Event(MANY_A), Event({"foo": "c"})])
    breaking.join()
    assert [event.payload["foo"] for event in out] == ["b", "c"]
    assert told.reasons == ["the script engine broke down"]
    assert engine_of_this_thread() is not engine


@pytest.mark.parametrize(
    "leaves",
    [
        "globalThis.left = 1",
        "left = 1",
        "Array.prototype.left = 1",
        "Object.prototype.left = 1",
        "JSON.left = 1",
        "parseInt.left = 1",
        "_.log.left = 1",
        "Object.getPrototypeOf(Object.getPrototypeOf((function* () {})())).left = 1",
        "Object.getPrototypeOf([][Symbol.iterator]()).left = 1",
        "(0, eval)('let left = 1')",
        "new Function('left = 1')()",
        "new Function('this.left = 1')()",
    ],
)
def test_nothing_stays_from_one_event_to_the_next(leaves: str) -> None:
    seen = (
        "[typeof left, [].left, ({}).left, JSON.left, parseInt.left, _.log.left, globalThis.left, "
        "[][Symbol.iterator]().left, (function* () {})().left]"
    )
    source = f"if (_.payload) {{ try {{ {leaves}; }} catch (e) {{}} return null; }} return {{payload: {seen}}};"
    filter = compile_js(JsConfig(source=source), Around())
    (first,) = applied(filter, [Event(0)])
    (later,) = applied(filter, [Event(1), Event(0)])
    assert first.payload == ["undefined", *[None] * 8]
    assert later.payload == first.payload


def test_what_is_frozen_is_in_nobodys_way() -> None:
    source = """
        const o = {}; o.toString = function () { return 'mine'; }; o.constructor = 1; o.valueOf = 2;
        const e = new TypeError('m'); e.name = 'Mine'; e.message = 'changed';
        class Point { constructor(x) { this.x = x; } toString() { return 'p' + this.x; } }
        return {payload: ['' + o.toString(), String(e), '' + new Point(3), Object.keys(o)]};"""
    (made,) = applied(script(source), [Event(0)])
    assert made.payload == ["mine", "Mine: changed", "p3", ["toString", "constructor", "valueOf"]]


def test_a_script_reaches_nothing_outside() -> None:
    assert value("[typeof require, typeof process, typeof std, typeof os, typeof print, typeof eval]") == ["undefined"] * 6


def test_the_engine_has_none_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hush")
    engine = Engine()
    with open(f"/proc/{engine.process.pid}/environ") as environment:
        assert {entry.partition("=")[0] for entry in environment.read().split("\0")} <= {"PYTHONPATH", "LC_CTYPE", ""}


def test_scripts_run_from_any_thread_and_from_several_at_once() -> None:
    filter = script("return {payload: _.payload * 2};")
    results: dict[int, list[Any]] = {}

    def work(number: int) -> None:
        for _ in range(5):
            results[number] = [event.payload for event in applied(filter, [Event(number * 100 + n) for n in range(50)])]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [(number * 100 + n) * 2 for n in range(50)] for number in range(3)}


def test_an_engine_ends_with_its_thread() -> None:
    engines: list[int] = []

    def work() -> None:
        applied(script("return null;"), [Event(1)])
        engines.append(engine_of_this_thread().process.pid)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(engines[0], 0)


def test_more_than_the_pipes_hold_goes_both_ways() -> None:
    batch = [Event({"n": n, "text": "x" * 10_000}) for n in range(500)]
    out = applied(script("return [_.event, _.event];"), batch)
    assert [event.payload["n"] for event in out] == [n for n in range(500) for _ in range(2)]


def test_an_engine_keeps_as_many_contexts_as_it_has_room_for() -> None:
    requests = [js_engine.Request(n, f"return {{payload: {n}}};", 1.0, 32 << 20, 0, 1) for n in range(5)]
    engine = js_engine.Engine(room=3)
    for _ in range(2):
        answers = [engine.answer(request, '{"payload": 0, "metadata": {}}') for request in requests]
        assert answers == [f'R{{"payload":{n}}}' for n in range(5)]
    assert list(engine._contexts) == [2, 3, 4]


def test_the_plugin_declares_itself() -> None:
    assert (JS.name, JS.config, JS.stateful) == ("js", JsConfig, False)
    limits = JsConfig(source="return null;")
    assert (limits.time_limit, limits.memory_limit) == (1.0, 32)
