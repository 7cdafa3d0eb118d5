"""Cases beside routes: what they say, and what running them tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trunkline.routes.cases import BEGINNING, Case, FileCase, read_cases
from trunkline.routes.keys import RouteKey
from trunkline.routes.model import parse_routes
from trunkline.routes.runcases import Cases, Verdict
from written_routes import written

QUEUE = {"plugin": "queue", "config": {"client": "c", "destinations": ["hub"], "headers": {"id": "{.id}"}}}


def verdict(case: dict[str, Any], *chain: tuple[str, dict[str, Any]], **changes: Any) -> Verdict:
    steps = [{"plugin": plugin, "config": config} for plugin, config in chain]
    (route,) = parse_routes(written(**{"filterChain": steps, **changes}), "routes")
    one = FileCase(Case.model_validate({"name": "it holds", **case}), "a.test.yaml", 2)
    return Cases({route.key: route}).run(one, [route.key])


def holds(case: dict[str, Any], *chain: tuple[str, dict[str, Any]], **changes: Any) -> bool:
    found = verdict(case, *chain, **changes)
    assert found.wrong == ""
    return found.ok


class TestWhatCaseExpects:
    DOUBLE = ("expr", {"expression": "payload.n * 2", "toPath": ".n"})

    def test_payloads_that_come_out_are_compared_in_order_by_value(self) -> None:
        case = {"in": [{"n": 1}, {"n": 2}]}
        assert holds({**case, "out": [{"n": 2.0}, {"n": 4}]}, self.DOUBLE)
        assert not holds({**case, "out": [{"n": 4}, {"n": 2}]}, self.DOUBLE)
        assert not holds({**case, "out": [{"n": 2}]}, self.DOUBLE)

    def test_of_messages_only_what_is_written_is_compared(self) -> None:
        case = {"in": [{"id": "7"}]}
        assert holds({**case, "messages": [{"headers": {"id": "7"}}]}, sender=QUEUE)
        assert not holds({**case, "messages": [{"headers": {}}]}, sender=QUEUE)
        assert not holds({**case, "messages": []}, sender=QUEUE)
        assert holds({**case, "messages": [{"client": "c"}], "out": [{"id": "7"}]}, sender=QUEUE)

    def test_what_is_not_mentioned_must_not_happen(self) -> None:
        assert not holds({"in": [1], "dropped": 0})
        assert not holds({"in": [{}], "out": []}, ("unwrap", {"path": ".a"}))
        assert not holds({"in": [1], "out": []}, ("batch", {"batchSize": 2}))

    def test_dropped_events_are_counted(self) -> None:
        odd = ("expr", {"expression": "payload % 2 == 1"})
        assert holds({"in": [1, 2, 3, 4], "out": [1, 3], "dropped": 2}, odd)
        assert not holds({"in": [1, 2], "out": [1], "dropped": 0}, odd)

    def test_a_dead_letter_must_hold_the_expected_text(self) -> None:
        unwrap = ("unwrap", {"path": ".a"})
        assert holds({"in": [{}], "dead_letters": ["payload.a: a value is needed"]}, unwrap)
        assert holds({"in": [{}], "deadLetters": ["filterChain[0] unwrap"]}, unwrap)
        assert not holds({"in": [{}], "dead_letters": ["something else"]}, unwrap)
        assert holds({"in": [{}], "dead_letters": ["header id: the event has no value"]}, sender=QUEUE)

    def test_a_fault_goes_by_its_policy(self) -> None:
        chain = [{"plugin": "unwrap", "config": {"path": ".a"}, "onError": policy} for policy in ("fail", "drop")]
        assert holds({"in": [{}], "failed": ["a value is needed"]}, filterChain=chain[:1])
        assert holds({"in": [{}], "dropped": 1}, filterChain=chain[1:])


class TestTime:
    def test_a_case_begins_at_the_same_time_every_day_or_when_it_says(self) -> None:
        ttl = ("ttl", {"path": "", "ttl": 1000, "nanoFactor": 1e9})
        assert holds({"in": [BEGINNING - 0.5, BEGINNING - 2], "out": [BEGINNING - 0.5]}, ttl)
        assert holds({"at": "2020-01-01T00:00:00Z", "in": [1577836800], "out": [1577836800]}, ttl)
        assert not holds({"at": 1577836802, "in": [1577836800], "out": [1577836800]}, ttl)

    def test_events_come_after_their_seconds(self) -> None:
        ttl = ("ttl", {"path": "", "ttl": 5000, "nanoFactor": 1e9})
        events = [{"payload": BEGINNING, "after": 6}, {"payload": BEGINNING, "after": 4}]
        assert holds({"events": events, "out": [BEGINNING], "dropped": 1}, ttl)

    def test_a_part_batch_comes_when_its_time_is_over_and_is_held_before(self) -> None:
        batch = ("batch", {"batchSize": 3, "timeoutMs": 2000})
        assert holds({"in": [1, 2, 3, 4], "out": [[1, 2, 3]], "held": 1}, batch)
        assert holds({"in": [1, 2, 3, 4], "out": [[1, 2, 3], [4]], "until": 2}, batch)
        late = [{"payload": 1}, {"payload": 2, "after": 3}]
        assert holds({"events": late, "out": [[1]], "held": 1}, batch)

    def test_two_cases_of_a_route_that_remembers_know_nothing_of_each_other(self) -> None:
        (route,) = parse_routes(written(filterChain=[{"plugin": "dedup", "config": {}}]), "routes")
        cases = Cases({route.key: route})
        one = FileCase(Case.model_validate({"name": "one", "in": [1, 1], "out": [1]}), "f", 1)
        assert [cases.run(one, [route.key]).ok for _ in range(2)] == [True, True]


class TestEvents:
    def test_metadata_trace_site_and_tenant_can_be_set(self) -> None:
        tree = {"m": "{metadata.k}", "t": "{trace.id}", "s": "{site}", "o": "{tenant.orgId}"}
        case = {
            "site": "lyon", "org": "x", "app": "y", "route": "r",
            "events": [{"payload": 1, "metadata": {"k": 2}, "traceId": "abc"}],
            "out": [{"m": 2, "t": "abc", "s": "lyon", "o": "x"}],
        }  # fmt: skip
        assert holds(case, ("transform", {"transformation": tree}), tenant={"orgId": "x", "appId": "y"})

    def test_a_route_that_is_not_there_is_told_with_those_that_are(self) -> None:
        found = verdict({"route": "rr", "in": [1], "out": [1]})
        assert not found.ok
        assert "route rr: there is none of trunkline/trunkline in these files (next: known: r)" in found.wrong

    def test_of_several_routes_the_case_must_name_one(self) -> None:
        routes = parse_routes([written(id="ra"), written(id="rb")], "routes")
        table = {route.key: route for route in routes}
        one = FileCase(Case.model_validate({"name": "n", "in": [1], "out": [1]}), "f", 1)
        assert "it is not said which one" in Cases(table).run(one, list(table)).wrong


def test_a_difference_shows_what_was_expected_and_what_came() -> None:
    found = verdict({"in": [{"a": 1, "b": 2}], "out": [{"a": 1, "b": 3}], "dropped": 4})
    first, second = found.differences
    assert (first.about, second.about) == ("out", "dropped")
    assert first.lines() == ["  [", "    {", '      "a": 1,', '-     "b": 3', '+     "b": 2', "    }", "  ]"]
    assert second.lines() == ["- 4", "+ 0"]


class TestFiles:
    def read(self, folder: Path, document: Any) -> tuple[list[FileCase], list[str]]:
        path = folder / "a.test.yaml"
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False))
        cases, mistakes = read_cases(path)
        return cases, [f"{one.line} {one.key}: {one.reason}" for one in mistakes]

    def test_cases_know_their_lines(self, tmp_path: Path) -> None:
        cases, wrong = self.read(tmp_path, "cases:\n- {name: one, in: [1], out: [1]}\n\n- {name: two, in: [1], out: [1]}\n")
        assert [(one.case.name, one.line) for one in cases] == [("one", 2), ("two", 4)]
        assert wrong == []

    @pytest.mark.parametrize(
        ("case", "reason"),
        [
            ({"name": "n", "in": [1]}, "it expects nothing"),
            ({"name": "n", "out": [1]}, "nothing goes in"),
            ({"name": "n", "in": [1], "events": [{"payload": 1}], "out": []}, "both `in` and `events`"),
            ({"name": "n", "in": [1], "outs": [1]}, "the nearest is 'out'"),
            ({"name": "n", "in": [1], "out": [], "at": "noon"}, "it is not a time"),
            ({"in": [1], "out": []}, "it is missing"),
        ],
    )
    def test_what_is_wrong_with_a_case_is_told_with_its_line(self, tmp_path: Path, case: dict[str, Any], reason: str) -> None:
        cases, wrong = self.read(tmp_path, {"cases": [case]})
        assert cases == []
        assert reason in wrong[0]
        assert wrong[0][0].isdigit()

    def test_a_file_without_cases_is_a_mistake(self, tmp_path: Path) -> None:
        assert "there are no cases in it" in self.read(tmp_path, {"routes": []})[1][0]
        assert "no such key beside cases" in self.read(tmp_path, {"cases": [], "routes": []})[1][0]


def test_the_key_of_a_case_is_that_of_its_tenant() -> None:
    case = Case.model_validate({"name": "n", "route": "r", "org": "x", "app": "y", "in": [1], "out": [1]})
    assert RouteKey(case.tenant, case.route) == RouteKey(case.tenant, "r")
    assert str(case.tenant) == "x/y"
