"""The expr filter: CEL over just the fields that an expression refers to."""

from __future__ import annotations

from typing import Any

import cel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from running_filters import applied, run
from trunkline.core.errors import Invalid
from trunkline.routes.event import Event
from trunkline.routes.filters.cel_source import rewritten
from trunkline.routes.filters.expr import EXPR, ExprConfig, compile_expr
from trunkline.routes.paths import Path
from trunkline.routes.plugin import Around, Filter

AROUND = Around({"site": "hub"})
EVENT = Event(
    {
        "kind": "alarm",
        "level": 5,
        "share": 2.5,
        "on": True,
        "none": None,
        "at": {"site": "a", "a key": 7, "rack": [1, 2]},
        "items": [{"x": 1}, {"y": 2}],
        "which": "site",
    },
    {"from": "api"},
)


def expression(source: str, **config: Any) -> Filter:
    return compile_expr(ExprConfig.model_validate({"expression": source, **config}), AROUND)


def value(source: str) -> Any:
    (made,) = applied(expression(source, toPath=".answer"), [EVENT])
    return made.payload["answer"]


def reason(source: str, **config: Any) -> str:
    out, told = run(expression(source, **config), [EVENT])
    assert out == []
    assert told.events == [EVENT]
    return told.reasons[0]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('payload.kind == "alarm" && payload.level > 3', True),
        ('payload.kind == "alarm" && payload.level > 5', False),
        ("payload.level == 5.0 && payload.level < 5.5", True),
        ("payload.level in [1, 5.0]", True),
        ("payload.on == true && payload.on != 1", True),
        ("payload.on", True),
        ('payload.at.site == "a"', True),
        ('payload["at"]["a key"] == 7', True),
        ("payload.at.rack[1] == 2", True),
        ('payload.at[payload.which] == "a"', True),
        ('metadata.from == "api"', True),
        ('payload.kind.startsWith("al") && payload.kind.size() == 5', True),
        ('payload.kind.matches("^a.*m$")', True),
        ("payload.items.exists(i, has(i.x) && i.x == 1)", True),
        ("payload.items.all(i, has(i.x))", False),
        ('site == "hub"', True),
        ('"payload.level" == payload.kind // payload.level', False),
        ('payload.kind.upperAscii() == "ALARM" && math.greatest(payload.level, 7) == 7', True),
    ],
)
def test_a_condition_allows_or_denies(source: str, expected: bool) -> None:
    assert applied(expression(source), [EVENT]) == [EVENT][: int(expected)]
    assert applied(expression(source, mode="deny"), [EVENT]) == [EVENT][int(expected) :]


def test_a_condition_keeps_the_order_of_its_batch() -> None:
    batch = [Event({"n": n}) for n in range(9)]
    assert applied(expression("payload.n % 3 == 1"), batch) == [batch[n] for n in (1, 4, 7)]
    assert applied(expression("payload.n % 3 == 1", mode="deny"), batch) == [batch[n] for n in (0, 2, 3, 5, 6, 8)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("payload.level * 2", 10),
        ("payload.level * 2.0", 10),
        ("payload.share * 2", 5),
        ("payload.share + payload.level", 7.5),
        ("payload.level / 2", 2.5),
        ("payload.level % 2", 1),
        ("-payload.share - 1", -3.5),
        ("payload.at.rack.map(r, r * 1.5)", [1.5, 3]),
        ('payload.kind + "-" + string(payload.level)', "alarm-5"),
        ('{"kind": payload.kind, "racks": payload.at.rack}', {"kind": "alarm", "racks": [1, 2]}),
        ("payload.level > 3 ? [payload.level] : []", [5]),
        ("size(payload.at.rack) * 2", 4),
        ('payload.kind.split("a")', ["", "l", "rm"]),
        ("payload.at", EVENT.payload["at"]),
        ("payload", EVENT.payload),
        ("metadata", EVENT.metadata),
    ],
)
def test_an_expression_gives_a_value(source: str, expected: Any) -> None:
    assert value(source) == expected


def test_a_number_is_worth_the_same_however_it_is_written() -> None:
    for source in ("payload.n / 2", "payload.n * 2.5", "payload.n + 1", "payload.n > 4.5", "payload.n == 5"):
        whole, broken = (applied(expression(source, toPath=".r"), [Event({"n": n})])[0].payload["r"] for n in (5, 5.0))
        assert whole == broken


def test_a_value_is_set_where_it_is_wanted_and_the_event_stays() -> None:
    event = Event({"n": 2}, {"m": 1})
    (made,) = applied(expression("payload.n * 3", toPath="metadata.made.here"), [event])
    assert (made.payload, made.metadata) == ({"n": 2}, {"m": 1, "made": {"here": 6}})
    assert (event.payload, event.metadata) == ({"n": 2}, {"m": 1})
    assert made.origin is event


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("payload.gone == null", True),
        ("payload.none == null", True),
        ("payload.gone.deeper[3].still == null", True),
        ("payload.kind.deeper == null", True),
        ("has(payload.gone)", False),
        ("has(payload.none)", False),
        ("has(payload.gone.deeper)", False),
        ("has(payload.at.site)", True),
        ("!has(payload.gone) || payload.gone > 3", True),
        ("payload.gone > 3 || payload.level == 5", True),
        ("payload.gone > 3 && payload.level == 6", False),
    ],
)
def test_what_is_not_there_is_null(source: str, expected: bool) -> None:
    assert value(source) is expected


@pytest.mark.parametrize(
    "source",
    [
        "payload.gone > 3",
        "!(payload.gone > 3)",
        'payload.gone.startsWith("a")',
        "payload.gone + 1 == 2",
        "payload.gone.size() == 0",
        "payload.none",
        "payload.items.all(i, i.x == 1)",
        'payload.at[payload.kind] == "a"',
        "payload.at.rack[payload.level] == 1",
    ],
)
def test_without_an_answer_nothing_is_allowed_and_nothing_denied(source: str) -> None:
    assert applied(expression(source), [EVENT]) == []
    assert applied(expression(source, mode="deny"), [EVENT]) == [EVENT]
    assert value(source) is None


@pytest.mark.parametrize(
    ("source", "config", "why"),
    [
        ("payload.kind > 3", {}, "No such overload"),
        ("payload.kind + 1", {"toPath": ".r"}, "Unsupported operation: string + int"),
        ("payload.level", {}, "the expression gave a number; a condition is true or false"),
        ("payload.kind", {"mode": "deny"}, "the expression gave a text; a condition is true or false"),
        ("payload.level % 0", {"toPath": ".r"}, ""),
        ("payload.level / 0", {"toPath": ".r"}, "the expression gave inf, which is not JSON"),
        ('timestamp("2020-01-01T00:00:00Z")', {"toPath": ".r"}, "the expression gave datetime.datetime(2020, 1, 1"),
        ("{1: 2}", {"toPath": ".r"}, "the expression gave {1: 2}, which is not JSON"),
        ("payload.level", {"toPath": ".kind.deeper"}, "payload.kind: a map is needed, found a text"),
    ],
)
def test_what_fails_though_all_is_there_is_a_fault(source: str, config: dict[str, Any], why: str) -> None:
    assert reason(source, **config).startswith(why)


@pytest.mark.parametrize(
    ("source", "what", "why", "hint"),
    [
        ("1 +", "expression", "at 1:4: Syntax error: mismatched input '<EOF>'", "mend it, in the syntax of CEL"),
        ("true &&\n x y", "expression", "at 2:4: Syntax error: extraneous input 'y'", "mend it, in the syntax of CEL"),
        ("paylod.n == 1", "expression, name 'paylod'", "there is no such thing", "write 'payload'"),
        ("[1].all(x, y > 1)", "expression, name 'y'", "there is no such thing", "use one of metadata, payload, site, x"),
        ('payload.s.startWith("a")', "expression, function 'startWith'", "there is no such thing", "write 'startsWith'"),
        ('contains(payload.s, "a")', "expression, function 'contains'", "it is not called like this", "write x.contains(...)"),
        (
            "payload.l.all(payload, payload.x > 1)",
            "expression, name 'payload'",
            "it is the event's",
            "take another name for what a macro goes through",
        ),
        ("payload.s.string()", "expression, function 'string'", "it is not called like this", "write string(x)"),
        ('payload.s.matches("[")', 'regex "["', "unclosed character class", "mend it, in the syntax of RE2"),
    ],
)
def test_a_wrong_expression_is_refused_when_the_route_is_added(source: str, what: str, why: str, hint: str) -> None:
    with pytest.raises(Invalid) as error:
        expression(source)
    assert (error.value.what, error.value.why, error.value.next_step) == (what, why, hint)


def test_an_expression_becomes_one_over_the_fields_that_it_refers_to() -> None:
    found = rewritten(
        'payload.at.site == "payload.x" && has(metadata.key) && payload.l[0]["k"].size() > 2 && payload.at.site != x.payload',
        ["x"],
    )
    assert found.text == '_p0 == "payload.x" &&  ( _p1 != null ) && _p2 . size ( ) > 2 && _p0 != x . payload'
    assert found.broken == '_p0 == "payload.x" &&  ( _p1 != null ) && _p2 . size ( ) > 2.0 && _p0 != x . payload'
    assert found.paths == {
        "_p0": Path("payload", ("at", "site")),
        "_p1": Path("metadata", ("key",)),
        "_p2": Path("payload", ("l", 0, "k")),
    }


@pytest.mark.parametrize("text", ["'''payload.a'''", '"""payload\n.a"""', "r'payload.a\\'", "b'payload.a'", "'\\'payload.a'"])
def test_texts_are_left_as_they_are(text: str) -> None:
    found = rewritten(f"payload.a == {text}")
    assert found.text == f"_p0 == {text}"
    assert list(found.paths.values()) == [Path("payload", ("a",))]


_LEAVES = st.sampled_from(
    [
        *(
            "1",
            "2.5",
            "true",
            '"a"',
            '"payload.kind"',
            "'it\\'s'",
            "null",
            "payload.level",
            "payload.share",
            "payload . kind",
            "payload.on",
        ),
        *(
            "payload.at.rack[1]",
            'payload["at"].site',
            "payload.at['a key']",
            "metadata.from",
            "payload.at.rack",
            "[payload.level, 2]",
        ),
        *(
            "payload.items.exists(i, has(i.x))",
            "payload.at.rack.map(p, p)",
            "has(payload.at.site)",
            "payload.kind.size()",
        ),
        *(
            '{"payload": payload.on}',
            "payload.items[0].x // payload.level\n",
            'payload.kind.contains("al")',
            "payload.at[payload.which]",
        ),
    ]
)
_OPERATORS = st.sampled_from(["+", "-", "*", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in"])
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, _OPERATORS, inner).map(lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]} ? {parts[1]} : {parts[2]})"),
        inner.map(lambda part: f"!({part})"),
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(_TREES)
def test_where_cel_has_an_answer_over_the_whole_event_it_is_ours(source: str) -> None:
    whole = {"payload": EVENT.payload, "metadata": EVENT.metadata}
    try:
        expected = cel.evaluate(source, whole)
    except Exception:
        return
    assert value(source) == expected


def test_the_plugin_declares_itself() -> None:
    assert (EXPR.name, EXPR.config, EXPR.stateful) == ("expr", ExprConfig, False)
