"""`trunkline routes lint`, `test` and `explain` over files, and `trunkline plugins`: what they print, and how they end."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from click.testing import CliRunner, Result

from costs import cpu_seconds
from trunkline.cli.main import app
from trunkline.core.errors import Invalid
from trunkline.core.mistakes import Mistakes
from trunkline.routes import registry as registry_module
from trunkline.routes.catalogue import catalogue
from trunkline.routes.model import parse_routes
from trunkline.routes.registry import OURS, Kind, Registry
from written_routes import written

EXAMPLES = Path(__file__).parents[2] / "examples" / "routes"
COMMAND = typer.main.get_command(app)  # made once: it takes longer than most commands do


def trunkline(*words: str | Path, given: bytes | None = None) -> Result:
    done = CliRunner().invoke(COMMAND, [str(word) for word in words], input=given)
    if isinstance(done.exception, Exception) and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def told(*words: str | Path, ends_with: int = 0, given: bytes | None = None) -> str:
    done = trunkline(*words, given=given)
    assert done.exit_code == ends_with, done.output
    return done.stdout


def document(*words: str | Path, ends_with: int = 0) -> Any:
    return json.loads(told(*words, "--json", ends_with=ends_with))


def put(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
    return path


ALARMS = written(
    id="alarms", userId="ada", filterChain=[{"plugin": "match", "config": {"matcher": "pattern", "pattern": {"kind": "alarm"}}}]
)


class TestLint:
    def test_right_files_end_with_0_and_tell_the_secrets_they_need(self) -> None:
        assert told("routes", "lint", EXAMPLES) == (
            "needs secret://redis.password: trunkline/trunkline/doors-for-guards\nok: 10 routes\n"
        )

    def test_a_mistake_comes_with_file_line_key_reason_and_hint(self, tmp_path: Path) -> None:
        file = put(tmp_path / "a.yaml", "id: aa\nuserId: ada\nreceiver: {plugin: nop}\nsender:\n  plugin: sqs\n")
        said = told("routes", "lint", tmp_path, ends_with=1)
        assert said.splitlines()[0].startswith(f"{file}:5: sender.plugin: 'sqs' is not known, write 'queue' (messages")
        assert said.splitlines()[-1] == "1 mistake"

    def test_warnings_alone_are_no_mistake(self, tmp_path: Path) -> None:
        file = put(tmp_path / "a.yaml", written(userId="ada", colour="red"))
        assert told("routes", "lint", file).startswith(f"warning: {file}:7: colour: there is no such key")

    def test_mistakes_of_cases_are_found_too(self, tmp_path: Path) -> None:
        put(tmp_path / "a.yaml", ALARMS)
        put(tmp_path / "a.test.yaml", {"cases": [{"name": "n", "in": [1]}]})
        assert "it expects nothing" in told("routes", "lint", tmp_path, ends_with=1)

    def test_as_json_it_names_routes_mistakes_warnings_and_secrets(self, tmp_path: Path) -> None:
        found = document("routes", "lint", EXAMPLES)
        assert (found["ok"], len(found["routes"]), found["mistakes"], found["warnings"]) == (True, 10, [], [])
        assert found["secrets"][0]["reference"] == "secret://redis.password"
        assert found["secrets"][0]["line"] == 21
        put(tmp_path / "b.yaml", "routes: [")
        broken = document("routes", "lint", tmp_path, ends_with=1)
        assert broken["mistakes"][0]["line"] == 1

    def test_a_path_that_is_not_there_is_an_error(self) -> None:
        with pytest.raises(Invalid, match="there is no such file or folder"):
            trunkline("routes", "lint", "nowhere")


class TestCases:
    def test_the_cases_of_the_examples_hold(self) -> None:
        assert told("routes", "test", EXAMPLES) == "14 of 14 cases hold\n"

    def test_a_failing_case_shows_where_it_stands_and_what_differs(self, tmp_path: Path) -> None:
        put(tmp_path / "a.yaml", ALARMS)
        cases = put(
            tmp_path / "a.test.yaml", {"cases": [{"name": "it comes", "in": [{"kind": "alarm"}], "out": [{"kind": "x"}]}]}
        )
        said = told("routes", "test", tmp_path, ends_with=1)
        assert said.startswith(f"{cases}:2: it comes (alarms)\n  out: - expected, + came\n")
        assert '-     "kind": "x"' in said
        assert '+     "kind": "alarm"' in said
        assert said.endswith("0 of 1 cases hold\n")
        (one,) = document("routes", "test", tmp_path, ends_with=1)["cases"]
        assert one["differences"] == [{"about": "out", "expected": [{"kind": "x"}], "got": [{"kind": "alarm"}]}]

    @pytest.mark.parametrize("named", ["alarms.yaml", "alarms.test.yaml"])
    def test_a_file_of_routes_stands_for_its_cases_and_the_other_way_round(self, named: str, tmp_path: Path) -> None:
        put(tmp_path / "alarms.yaml", ALARMS)
        put(tmp_path / "alarms.test.yaml", {"cases": [{"name": "it goes", "in": [{}], "out": []}]})
        assert told("routes", "test", tmp_path / named) == "1 of 1 cases hold\n"

    def test_a_route_whose_fragment_was_not_read_is_not_tested_and_that_is_told(self) -> None:
        said = told("routes", "test", EXAMPLES / "alarms.yaml", ends_with=1)
        assert "sender.fragmentName: fragment to-hub is not filled in" in said
        assert said.endswith("0 of 2 cases hold\n")

    def test_only_some_of_them_are_run(self) -> None:
        assert told("routes", "test", EXAMPLES, "--only", "order").endswith("\n5 of 5 cases hold\n")

    def test_where_no_case_is_run_that_is_no_success(self, tmp_path: Path) -> None:
        put(tmp_path / "a.yaml", ALARMS)
        said = told("routes", "test", tmp_path, ends_with=1)
        assert said == "without a case: alarms\nno case was run: write them beside the routes, in <name>.test.yaml\n"

    def test_two_hundred_cases_take_well_below_a_second(self, tmp_path: Path) -> None:
        for n in range(20):
            put(tmp_path / f"r{n}.yaml", {**ALARMS, "id": f"r{n}"})
            cases = [
                {"name": f"case {k}", "in": [{"kind": "alarm", "n": k}], "out": [{"kind": "alarm", "n": k}]} for k in range(10)
            ]
            put(tmp_path / f"r{n}.test.yaml", {"cases": cases})
        told("routes", "lint", EXAMPLES)
        said: list[str] = []
        assert cpu_seconds(lambda: said.append(told("routes", "test", tmp_path))) < 2.0  # about 0.3 s on a quiet machine
        assert set(said) == {"200 of 200 cases hold\n"}


class TestExplain:
    def test_routes_that_take_it_come_first_and_the_others_say_why_not(self) -> None:
        said = told("routes", "explain", '{"kind": "alarm", "id": "a", "level": 3, "subject": "x"}', "--routes", EXAMPLES)
        lines = said.splitlines()
        assert lines[0] == "alarms-to-hub: taken, from http"
        assert '"destinations":["hub"]' in lines[1]
        assert "account-feed: dropped by filterChain[0] match: payload.TopicArn is missing: the regex '_ACCOUNT$'" in said
        assert "doors-for-guards: inactive: it is inactive: it does not run" in said

    def test_it_ends_with_1_if_no_route_takes_it(self, tmp_path: Path) -> None:
        file = put(tmp_path / "a.yaml", ALARMS)
        assert told("routes", "explain", '{"kind": "a"}', "--routes", file, ends_with=1) == (
            'alarms: dropped by filterChain[0] match: payload.kind is "a", wanted "alarm"\n'
        )

    def test_the_event_may_come_from_a_file_or_standard_input(self, tmp_path: Path) -> None:
        file, event = put(tmp_path / "a.yaml", ALARMS), put(tmp_path / "event.json", '{"kind": "alarm"}')
        said = 'alarms: taken, from nop\n  sends {"payload":{"kind":"alarm"}}\n'
        assert told("routes", "explain", f"@{event}", "--routes", file) == said
        assert told("routes", "explain", "-", "--routes", file, given=b'{"kind": "alarm"}') == said

    def test_metadata_site_and_route_can_be_said(self, tmp_path: Path) -> None:
        tree = {"k": "{metadata.k}", "s": "{site}"}
        route = written(id="rr", filterChain=[{"plugin": "transform", "config": {"transformation": tree}}])
        put(tmp_path / "a.yaml", [route, written(id="other")])
        words = ("1", "--routes", str(tmp_path), "--metadata", '{"k": 5}', "--site", "lyon", "--route", "rr")
        (one,) = document("routes", "explain", *words)["routes"]
        assert one["messages"] == [{"payload": {"k": 5, "s": "lyon"}, "metadata": {"k": 5}}]

    def test_wrong_input_is_an_error_with_its_reason(self, tmp_path: Path) -> None:
        for words, reason in (
            (("{", "--routes", str(EXAMPLES)), "not JSON"),
            (("@nowhere.json", "--routes", str(EXAMPLES)), "No such file"),
            (("1", "--routes", str(EXAMPLES), "--metadata", "[]"), "it is not a map"),
            (("1",), "it is not said which one to ask"),
        ):
            with pytest.raises(Invalid, match=reason):
                trunkline("routes", "explain", *words)
        put(tmp_path / "a.yaml", "routes: [")
        with pytest.raises(Mistakes):
            trunkline("routes", "explain", "1", "--routes", tmp_path)


class TestPlugins:
    def test_all_are_listed_with_where_they_run_and_whose_they_are(self) -> None:
        rows = told("plugins").splitlines()
        assert rows[0].split() == ["kind", "name", "runs", "in", "package"]
        assert any(row.startswith("filter    expr") and "node, pipeline  trunkline  Lets an event pass" in row for row in rows)

    def test_one_is_shown_with_its_keys_and_an_example(self) -> None:
        said = told("plugins", "batch")
        assert "config.batchSize: whole number, default 1, at least 0 and at most 1000" in said
        assert said.endswith("filterChain:\n  - plugin: batch\n")
        assert "receiver redis" in told("plugins", "redis")
        assert "sender redis" in told("plugins", "redis")

    def test_as_json_one_has_its_json_schema(self) -> None:
        (one,) = document("plugins", "expr")["plugins"]
        assert one["schema"]["properties"]["toPath"]["description"].startswith("where the value is set")
        assert {"kind", "name", "summary", "runs", "package"} == set(document("plugins")["plugins"][0])

    def test_an_unknown_one_is_an_error_that_names_the_nearest(self) -> None:
        with pytest.raises(Invalid, match="'kafka'"):
            trunkline("plugins", "kafak")

    @pytest.mark.parametrize("entry", list(catalogue(Registry(OURS))), ids=lambda entry: f"{entry.kind}-{entry.name}")
    def test_the_example_of_every_plugin_can_stand_in_a_route(self, entry: Any) -> None:
        place = "filterChain" if entry.kind is Kind.FILTER else entry.kind.value
        example = entry.example()
        assert parse_routes(written(**{place: [example] if entry.kind is Kind.FILTER else example}), "routes")
        assert entry.in_full()["schema"]["type"] == "object"
        assert entry.summary

    def test_what_a_package_does_wrong_is_shown_and_ends_with_1(self, monkeypatch: pytest.MonkeyPatch) -> None:
        broken = Registry(OURS, [EntryPoint("bad", "no.such.module:PLUGIN", registry_module.GROUP)])
        monkeypatch.setattr(registry_module, "registry", lambda: broken)
        done = trunkline("plugins")
        assert done.exit_code == 1
        assert "cannot be used: bad of no.such.module: ModuleNotFoundError" in done.stderr
        assert document("plugins", ends_with=1)["failures"][0]["entry"] == "bad"


def test_the_commands_work_as_processes(tmp_path: Path) -> None:
    put(tmp_path / "a.yaml", {**ALARMS, "sender": {"plugin": "nob"}})
    words = [sys.executable, "-m", "trunkline.cli.main", "routes"]
    lint = subprocess.run([*words, "lint", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
    assert (lint.returncode, lint.stderr) == (1, "")
    wrong = subprocess.run([*words, "explain", "{"], capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2
    assert "error: event: not JSON" in wrong.stderr
    assert "next: " in wrong.stderr
