"""explain: what becomes of one event in each route, and why."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from running_filters import applied
from trunkline.routes.compile import CompiledRoute, compile_route
from trunkline.routes.event import Event
from trunkline.routes.explain import Explanation, Passed, Verdict, explain
from trunkline.routes.filters.match import MatchConfig, compile_match
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.model import parse_routes
from trunkline.routes.paths import Path
from trunkline.routes.plugin import Around
from trunkline.routes.why import difference, shown, why_kept_back
from written_routes import written

NOW = 1_700_000_000.0
AROUND = Around({"site": "lyon"}, now=lambda: NOW)


def compiled(*chain: tuple[str, dict[str, Any]], **changes: Any) -> CompiledRoute:
    steps = [{"plugin": plugin, "config": config} for plugin, config in chain]
    (route,) = parse_routes(written(**{"filterChain": steps, **changes}), "routes")
    return compile_route(route, AROUND)


def explained(payload: Any, *chain: tuple[str, dict[str, Any]], **changes: Any) -> Explanation:
    (found,) = explain(Event(payload), [compiled(*chain, **changes)], AROUND)
    return found


def why(payload: Any, plugin: str, **config: Any) -> str:
    found = explained(payload, (plugin, config))
    assert (found.verdict, found.step) == (Verdict.DROPPED, f"filterChain[0] {plugin}")
    return found.reason


class TestVerdicts:
    def test_an_event_that_gets_through_is_taken_with_what_the_sender_would_be_given(self) -> None:
        found = explained({"a": 1}, ("match", {"matcher": "pattern", "pattern": {"a": 1}}), ("unwrap", {"path": ".a"}))
        assert (found.verdict, found.reason, found.step) == (Verdict.TAKEN, "", "")
        assert found.messages == ({"payload": 1, "metadata": {}},)
        assert found.steps == (Passed("filterChain[0] match", 1, 1), Passed("filterChain[1] unwrap", 1, 1))

    def test_a_message_for_a_queue_is_shown_with_its_address(self) -> None:
        sender = {"plugin": "queue", "config": {"client": "c", "destinations": ["{.to}"], "headers": {"at": "{site}"}}}
        found = explained({"to": "hub"}, sender=sender)
        assert found.messages == (
            {"payload": {"to": "hub"}, "client": "c", "destinations": ["hub"], "headers": {"at": "lyon"}},
        )

    def test_a_message_that_cannot_be_made_is_a_dead_letter_of_the_sender(self) -> None:
        sender = {"plugin": "queue", "config": {"client": "c", "destinations": ["hub"], "headers": {"id": "{.id}"}}}
        found = explained({}, sender=sender)
        assert (found.verdict, found.step) == (Verdict.DEAD_LETTER, "sender queue")
        assert "header id: the event has no value for it" in found.reason

    @pytest.mark.parametrize(
        ("policy", "verdict"),
        [("drop", Verdict.DROPPED), ("dead_letter", Verdict.DEAD_LETTER), ("fail", Verdict.FAILED)],
    )
    def test_what_a_filter_cannot_process_goes_by_its_policy(self, policy: str, verdict: Verdict) -> None:
        step = {"plugin": "split", "config": {"path": ".many"}, "onError": policy}
        found = explained({"many": 7}, filterChain=[step])
        assert (found.verdict, found.step) == (verdict, "filterChain[0] split")
        assert found.reason == "payload.many: an array is needed, found a number"

    def test_what_a_batch_keeps_back_is_held_and_an_inactive_route_does_not_run(self) -> None:
        assert explained(1, ("batch", {"batchSize": 5})).verdict is Verdict.HELD
        assert explained(1, inactive=True).verdict is Verdict.INACTIVE

    def test_parts_of_a_split_event_that_fail_are_told_beside_those_that_are_taken(self) -> None:
        found = explained([{"v": 1}, {"v": "x"}, {}], ("split", {}), ("unwrap", {"path": ".v"}))
        assert (found.verdict, len(found.messages)) == (Verdict.TAKEN, 2)
        assert found.faults == ("filterChain[1] unwrap: payload.v: a value is needed, found nothing",)
        assert found.steps[1] == Passed("filterChain[1] unwrap", 3, 2)

    def test_of_parts_that_are_all_dropped_the_first_is_explained(self) -> None:
        found = explained([3, 4], ("split", {}), ("expr", {"expression": "payload > 5"}))
        assert found.reason == "the first of 2: payload > 5 is not true: payload is 3"

    def test_every_route_is_explained_and_none_disturbs_another(self) -> None:
        routes = [compiled(("match", {"matcher": "pattern", "pattern": {"k": k}}), id=f"r{k}") for k in range(3)]
        found = explain(Event({"k": 1}), routes, AROUND)
        assert [one.verdict for one in found] == [Verdict.DROPPED, Verdict.TAKEN, Verdict.DROPPED]
        assert found[1].route == RouteKey(Tenant("trunkline", "trunkline"), "r1")

    def test_as_json_it_names_route_and_tenant_and_can_be_encoded(self) -> None:
        found = explained({"a": 1}, ("unwrap", {"path": ".a"})).as_json()
        assert found["id"] == "r"
        assert found["tenant"] == {"orgId": "trunkline", "appId": "trunkline"}
        assert (found["verdict"], found["receiver"]) == ("taken", "nop")
        assert msgspec.json.decode(msgspec.json.encode(found)) == found


class TestReasons:
    def test_a_pattern_names_the_first_place_that_differs(self) -> None:
        pattern = {"kind": "alarm", "at": {"site": "lyon"}}
        assert why({"kind": "reading"}, "match", matcher="pattern", pattern=pattern) == (
            'payload.kind is "reading", wanted "alarm"'
        )
        assert why({"kind": "alarm"}, "match", matcher="pattern", pattern=pattern) == (
            "payload.at is missing, wanted a map with site"
        )
        assert why({}, "match", matcher="pattern", pattern={"level": "*"}) == "payload.level is missing"

    def test_arrays_of_a_pattern_are_explained(self) -> None:
        assert why({"a": [1, 2]}, "match", matcher="pattern", pattern={"a": [1]}) == (
            "payload.a has 2 elements, wanted 1 (exactArrayMatch)"
        )
        assert why({"a": [1, 2]}, "match", matcher="pattern", pattern={"a": [9]}, exactArrayMatch=False) == (
            "payload.a has no element that matches 9"
        )
        assert why({"a": 1}, "match", matcher="pattern", pattern={"a": [1]}) == "payload.a is 1, wanted an array"

    def test_regexes_say_where_they_looked(self) -> None:
        assert why({"s": "x"}, "match", path=".s", pattern="^y") == "payload.s is \"x\": '^y' is not found in it"
        assert why({"s": 5}, "match", matcher="patternregex", pattern={"s": "y$"}) == (
            "payload.s is 5: the regex 'y$' is not found in it"
        )

    def test_of_a_comparison_the_failing_pair_is_named(self) -> None:
        comparison = {"equal": [{"{.a}": 1}, {"{.b}": "{.c}"}]}
        assert why({"a": 1, "b": 2, "c": 3}, "match", matcher="comparison", comparison=comparison) == (
            "payload.b is 2, wanted 3"
        )
        differs = {"notEqual": [{"{site}": "lyon"}]}
        assert why({}, "match", matcher="comparison", comparison=differs) == 'site is "lyon", wanted anything but that'

    def test_of_a_tree_joined_by_or_all_failures_are_named(self) -> None:
        nodes = [{"comparison": {"equal": [{"{.prev}": name}]}} for name in ("C1", "C2")]
        assert why({"prev": "C9"}, "match", matcher="comparisonTree", comparisonTree={"logic": "or", "childNodes": nodes}) == (
            'payload.prev is "C9", wanted "C1"; payload.prev is "C9", wanted "C2"'
        )

    def test_a_deny_says_what_holds(self) -> None:
        assert why({"s": "test-1"}, "deny", path=".s", pattern="^test-") == (
            "'^test-' is found in payload.s, and such events are denied"
        )
        either = {"patterns": [{"k": 1}, {"k": 2}], "patternsLogic": "or"}
        assert why({"k": 2}, "match", mode="deny", matcher="pattern", **either) == (
            'payload matches {"k":2}, and such events are denied'
        )

    def test_an_expression_is_told_with_what_it_saw(self) -> None:
        assert why({"level": 2}, "expr", expression="payload.level > 3 && has(payload.id)") == (
            "payload.level > 3 && has(payload.id) is not true: payload.level is 2, payload.id is missing"
        )
        assert why({}, "expr", expression="true", mode="deny") == "true is true, and such events are denied"

    def test_the_others_say_their_reason(self) -> None:
        assert why({"at": (NOW - 400) * 1000}, "ttl", path=".at") == "payload.at is 400.000 s ago, and 300 s are allowed"
        assert why([], "split") == "payload is an empty array"
        assert why({}, "block") == "it lets nothing pass"
        assert why({}, "js", source="return null;") == "the script returned no event"

    def test_a_duplicate_within_one_event_is_explained(self) -> None:
        found = explained([1, 1], ("split", {}), ("dedup", {}))
        assert found.verdict is Verdict.TAKEN
        assert found.steps[1] == Passed("filterChain[1] dedup", 2, 1)

    def test_long_values_are_cut(self) -> None:
        assert len(shown("x" * 500)) == 60


scalars = st.one_of(st.none(), st.booleans(), st.integers(0, 2), st.floats(0, 2), st.sampled_from(["", "a", "*", "ab"]))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(value=values, pattern=values, exact=st.booleans(), regexes=st.booleans())
def test_a_difference_is_found_exactly_where_the_compiled_pattern_does_not_match(
    value: Any, pattern: Any, exact: bool, regexes: bool
) -> None:
    if regexes and "*" in str(pattern):
        pattern = "a"
    matcher = "patternregex" if regexes else "pattern"
    config = MatchConfig.model_validate({"matcher": matcher, "pattern": pattern, "exactArrayMatch": exact})
    passes = bool(applied(compile_match(config, Around()), [Event(value)]))
    assert (difference(value, pattern, Path("payload"), exact, regexes) == "") is passes
    if not passes:
        assert why_kept_back(config, Event(value), Around())
