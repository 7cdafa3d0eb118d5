"""The match index gives exactly what running every route gives (X1 to X4), without running every route."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event as note
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps
from trunkline.routes.compile import compile_route
from trunkline.routes.event import Event
from trunkline.routes.index import MatchIndex, RouteTable
from trunkline.routes.model import Route, parse_routes
from trunkline.routes.needs import Needs, needs_of
from trunkline.routes.paths import event_path

# Few keys and few values, so that patterns meet payloads; values that Python confuses and JSON does not.
keys = st.sampled_from(["a", "b", "a.b"])
scalars = st.sampled_from([None, True, False, 0, 1, 1.0, 2, "a", "1", "*", ""])
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
)
patterns = st.dictionaries(keys, trees, max_size=3) | trees


def contains(pattern: Any, value: Any, exact: bool) -> bool:
    """What a pattern means, written a second time and as plainly as possible."""
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(contains(pattern[k], value.get(k), exact) for k in pattern)
    if isinstance(pattern, list):
        fits = isinstance(value, list) and (len(value) == len(pattern) or not exact)
        return fits and all(any(contains(p, v, exact) for v in value) for p in pattern)
    if pattern == "*":
        return value is not None
    return isinstance(pattern, bool) == isinstance(value, bool) and pattern == value


match_configs = st.fixed_dictionaries(
    {"matcher": st.just("pattern"), "pattern": patterns},
    optional={
        "mode": st.sampled_from(["allow", "allow", "deny"]),
        "path": st.sampled_from(["", ".a", "metadata", r".a\.b[0]"]),
        "exactArrayMatch": st.booleans(),
    },
) | st.just({"path": ".a", "pattern": "^1"})

pairs = st.lists(st.dictionaries(st.sampled_from(["{.a}", "{.b}", r"{.a\.b}", "{metadata.a}", "x"]), scalars), max_size=2)
comparisons = st.fixed_dictionaries({"equal": pairs}, optional={"notEqual": pairs})
logics = st.sampled_from(["and", "or"])
trees_of_comparisons = st.recursive(
    st.fixed_dictionaries({"comparison": comparisons, "logic": logics}),
    lambda inner: st.fixed_dictionaries({"logic": logics, "childNodes": st.lists(inner, max_size=2)}),
    max_leaves=3,
)
modes = st.sampled_from(["allow", "allow", "deny"])
regexes = st.sampled_from(["^a", "1", ""])
other_configs = st.one_of(
    st.fixed_dictionaries(
        {"matcher": st.just("comparison"), "comparison": comparisons, "mode": modes, "patternsLogic": logics}
    ),
    st.fixed_dictionaries({"matcher": st.just("comparisonTree"), "comparisonTree": trees_of_comparisons, "mode": modes}),
    st.fixed_dictionaries(
        {"matcher": st.just("pattern"), "patterns": st.lists(patterns, max_size=2), "patternsLogic": logics, "mode": modes}
    ),
    st.fixed_dictionaries(
        {"matcher": st.just("patternregex"), "pattern": st.dictionaries(keys, regexes | st.sampled_from([1, None, True]))}
    ),
)


def routes_of(chains: list[list[dict[str, Any]]]) -> tuple[Route, ...]:
    sender = {"plugin": "queue", "config": {"client": "c", "destinations": ["hub"]}}
    raw = [
        {
            "id": f"r{n}",
            "receiver": {"plugin": "http"},
            "filterChain": [{"plugin": "match", "config": config} for config in chain],
            "sender": sender,
        }
        for n, chain in enumerate(chains)
    ]
    return parse_routes({"routes": raw}, "test")


@st.composite
def grown(draw: st.DrawFn, pattern: Any) -> Any:
    """A payload that the pattern matches, unless a draw spoils it."""
    if isinstance(pattern, dict):
        return {**draw(st.dictionaries(keys, scalars, max_size=1)), **{k: draw(grown(v)) for k, v in pattern.items()}}
    if isinstance(pattern, list):
        return draw(st.permutations([draw(grown(v)) for v in pattern]))
    return draw(trees) if pattern == "*" or draw(st.integers(0, 9)) == 0 else pattern


def events_near(wanted: list[Any]) -> st.SearchStrategy[list[Event]]:
    payloads = st.one_of(patterns, *(grown(pattern) for pattern in wanted))
    metadata = st.dictionaries(keys, scalars, max_size=2)
    return st.lists(st.builds(lambda p, m: Event(payload=p, metadata=m), payloads, metadata), max_size=8)


@given(st.lists(st.lists(match_configs | other_configs, max_size=3), max_size=8), st.data())
def test_the_table_equals_running_every_route(chains: list[list[dict[str, Any]]], data: st.DataObject) -> None:
    batch = data.draw(events_near([config.get("pattern") for chain in chains for config in chain]))
    routes = routes_of(chains)
    naive = [(route.id, out) for route in routes for out in compile_route(route).run(batch)]
    note("something went out" if naive else "nothing went out")
    assert RouteTable(routes).route(batch) == naive


@given(st.lists(st.tuples(patterns, st.booleans()), max_size=6), st.data())
def test_the_table_takes_what_the_patterns_mean(wanted: list[tuple[Any, bool]], data: st.DataObject) -> None:
    batch = data.draw(events_near([pattern for pattern, _ in wanted]))
    routes = routes_of([[{"matcher": "pattern", "pattern": p, "exactArrayMatch": exact}] for p, exact in wanted])
    expected = [
        (f"r{n}", dumps(event.payload))
        for n, (pattern, exact) in enumerate(wanted)
        for event in batch
        if contains(pattern, event.payload, exact)
    ]
    assert [(route, out.payload) for route, out in RouteTable(routes).route(batch)] == expected


@pytest.mark.parametrize("leaf", ["*", None, [1], [], {"b": "*"}, {"b": None}, {}, True, 1, 1.0, 0, False, ""])
def test_every_kind_of_leaf_beside_an_indexed_one_is_decided_by_the_route(leaf: Any) -> None:
    values = [None, True, False, 0, 1, 1.0, "", "*", [], [1], {}, {"b": 1}, {"b": None}]
    batch = [Event(payload={"k": "x", "leaf": value}) for value in values] + [Event(payload={"k": "x"})]
    (route,) = routes_of([[{"matcher": "pattern", "pattern": {"k": "x", "leaf": leaf}}]])
    taken = [out.payload for _, out in RouteTable([route]).route(batch)]
    assert taken == [dumps(e.payload) for e in batch if contains({"k": "x", "leaf": leaf}, e.payload, exact=True)]
    assert taken


def test_only_candidates_run() -> None:
    chains = [[{"matcher": "pattern", "pattern": {"kind": "k", "n": n}}] for n in range(1000)]
    table = RouteTable(routes_of([*chains, [{"path": ".n", "pattern": "^7$"}]]))
    seven, other = Event(payload={"kind": "k", "n": 7}), Event(payload={"kind": "other", "n": 8})
    assert list(table.candidates(seven)) == [7]
    assert list(table.candidates(other)) == []
    assert [route for route, _ in table.route([other, seven])] == ["r7", "r1000"]


def test_a_table_with_a_wrong_route_is_refused_whole_and_says_all() -> None:
    good, bad = routes_of([[], []])
    sender = bad.sender.model_copy(update={"config": bad.sender.config.model_copy(update={"headers": {"h": "{nope}"}})})
    with pytest.raises(Invalid) as refused:
        RouteTable([good, good, bad.model_copy(update={"sender": sender})])
    assert "more than one route has the id r0" in refused.value.why
    assert "sender.headers.h" in refused.value.why


def needs(*configs: dict[str, Any], transform_first: bool = False) -> dict[str, object]:
    raw = [{"plugin": "match", "config": config} for config in configs]
    if transform_first:
        raw.insert(1, {"plugin": "transform", "config": {"transformation": "{payload}"}})
    sender = {"plugin": "queue", "config": {"client": "c", "destinations": ["hub"]}}
    route = {"id": "r", "receiver": {"plugin": "http"}, "filterChain": raw, "sender": sender}
    (parsed,) = parse_routes({"routes": [route]}, "test")
    return {str(path): key for path, key in needs_of(parsed.filter_chain).items()}


def test_what_a_comparison_needs_is_indexed() -> None:
    equal = {"equal": [{"{.a.b}": "x", "{metadata.k}": 5}, {"{.c}": "{.d}"}, {"{site}": "x"}], "notEqual": [{"{.e}": 1}]}
    compared = {"matcher": "comparison", "comparison": equal}
    assert needs(compared) == {"payload.a.b": "x", "metadata.k": 5}
    assert needs({**compared, "patternsLogic": "or"}) == needs({**compared, "mode": "deny"}) == {}
    tree = {"childNodes": [{"comparison": equal}, {"logic": "or", "comparison": {"equal": [{"{.o}": 1}]}}]}
    assert needs({"matcher": "comparisonTree", "comparisonTree": tree}) == needs(compared)


def test_what_several_matches_need_is_indexed_together() -> None:
    first, second = {"matcher": "pattern", "pattern": {"a": 1}}, {"matcher": "pattern", "path": ".b", "pattern": "x"}
    deny = {"matcher": "pattern", "pattern": {"c": 1}, "mode": "deny"}
    assert needs(deny, first, {"pattern": "x"}, second) == {"payload.a": 1, "payload.b": "x"}
    assert needs(first, second, transform_first=True) == {"payload.a": 1}


def test_of_a_patternregex_only_what_is_no_regex_is_indexed() -> None:
    assert needs({"matcher": "patternregex", "pattern": {"a": "^x", "b": 5}}) == {"payload.b": 5}


def need(**values: Any) -> Needs:
    return {event_path(f".{key}"): value for key, value in values.items()}


def test_x4_routes_join_and_leave_one_by_one() -> None:
    index = MatchIndex[str]()
    event, other = Event({"a": 1, "b": "x"}), Event({"a": 2})
    index.add("one", need(a=1))
    index.add("two", need(a=1, b="x"))
    index.add("all", {})
    assert sorted(index.candidates(event)) == ["one", "two"]
    assert index.batches([event, other]) == {"all": [event, other], "one": [event], "two": [event]}
    index.add("one", need(a=2))
    assert (list(index.candidates(event)), list(index.candidates(other))) == (["two"], ["one"])
    for name in ("two", "two", "all", "never"):
        index.discard(name)
    assert (list(index.candidates(event)), list(index.residual()), len(index)) == ([], [], 1)
    assert "one" in index
    assert "two" not in index


def test_x4_rare_shapes_wait_in_the_residual_until_they_are_common() -> None:
    index = MatchIndex[str](max_shapes=2)
    for n in range(3):
        index.add(f"a{n}", need(a=n))
    index.add("b0", need(b=0))
    index.add("c0", need(c=0))
    index.add("c1", need(c=1))
    assert sorted(index.residual()) == ["c0", "c1"]
    index.add("c2", need(c=2))  # more than twice as many as of b
    assert list(index.residual()) == ["b0"]
    assert list(index.candidates(Event({"c": 1}))) == ["c1"]
    for n in range(3):
        index.discard(f"a{n}")
    assert list(index.residual()) == []
    assert list(index.candidates(Event({"b": 0}))) == ["b0"]


steps = st.lists(st.tuples(st.booleans(), st.integers(0, 7), st.dictionaries(keys, scalars, max_size=2)), max_size=30)


@given(steps, st.integers(1, 3), st.lists(st.dictionaries(keys, scalars), max_size=4))
def test_x4_however_it_came_about_an_index_finds_who_wants_an_event(
    steps: list[tuple[bool, int, dict[str, Any]]], shapes: int, payloads: list[dict[str, Any]]
) -> None:
    index, wanted = MatchIndex[int](shapes), dict[int, dict[str, Any]]()
    for join, route, pattern in steps:
        if join:
            (parsed,) = routes_of([[{"matcher": "pattern", "pattern": pattern}]])
            index.add(route, needs_of(parsed.filter_chain))
            wanted[route] = pattern
        else:
            index.discard(route)
            wanted.pop(route, None)
    residual = set(index.residual())
    for payload in payloads:
        takers = {route for route, pattern in wanted.items() if contains(pattern, payload, exact=True)}
        found = list(index.candidates(Event(payload)))
        assert takers <= residual | set(found) <= set(wanted)
        assert len(found) == len(set(found))
        assert residual.isdisjoint(found)
    for route in list(wanted):
        index.discard(route)
    assert (len(index), list(index.residual()), index.batches([Event(p) for p in payloads])) == (0, [], {})
