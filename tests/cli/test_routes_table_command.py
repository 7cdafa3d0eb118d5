"""`trunkline routes apply`, `diff`, `ls`, `show`, `rm`, `status` and `explain` against a real API over a real table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer.main
import yaml
from click.testing import CliRunner, Result

from served_routes import ServedRoutes, served_routes
from trunkline.cli.main import app
from trunkline.cli.routes.plan import differences
from trunkline.core.errors import Invalid, TrunklineError
from trunkline.core.mistakes import Mistakes
from written_routes import written

EXAMPLES = Path(__file__).parents[2] / "examples" / "routes"
COMMAND = typer.main.get_command(app)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedRoutes]:
    with served_routes(instances=3) as site:
        monkeypatch.setenv("TRUNKLINE_API_URL", site.url)
        yield site


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The ten routes of the examples, to be changed."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "routes"))


def routes(*words: str | Path, given: bytes | None = None) -> Result:
    done = CliRunner().invoke(COMMAND, ["routes", *map(str, words)], input=given)
    if isinstance(done.exception, Exception) and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def told(*words: str | Path, ends_with: int = 0, given: bytes | None = None) -> str:
    done = routes(*words, given=given)
    assert done.exit_code == ends_with, done.output
    return done.stdout


def document(*words: str | Path, ends_with: int = 0) -> Any:
    return json.loads(told(*words, "--json", ends_with=ends_with))


def put(path: Path, content: Any) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def ids() -> list[str]:
    return [route["id"] for route in document("ls")["routes"]]


@pytest.mark.usefixtures("site")
class TestApply:
    def test_a_folder_becomes_the_table_on_all_instances_and_a_second_time_changes_nothing(
        self, site: ServedRoutes, folder: Path
    ) -> None:
        said = told("apply", folder)
        assert said.splitlines()[-2:] == ["10 to add", "live on 3 of 3 instances"]
        assert [len(runner.running) for runner in site.runners] == [9, 9, 9]  # one of the ten is inactive
        before = document("ls")
        assert told("apply", folder) == "no difference: 10 routes are as they are written\n"
        assert document("ls") == before

    def test_a_change_is_shown_by_its_fields_and_made(self, site: ServedRoutes, folder: Path) -> None:
        told("apply", folder)
        file = folder / "alarms.yaml"
        file.write_text(file.read_text().replace("kind: alarm,", "kind: alert,"))
        said = told("diff", folder, ends_with=1)
        assert said.splitlines() == [
            "~ alarms-to-hub",
            '    ~ filterChain[0].config.pattern.kind: "alarm" → "alert"',
            "1 to change, 9 unchanged",
        ]
        assert told("apply", folder).splitlines()[-1] == "live on 3 of 3 instances"
        assert told("diff", folder) == "no difference: 10 routes are as they are written\n"

    def test_a_dry_run_changes_nothing(self, folder: Path) -> None:
        assert told("apply", folder, "--dry-run").splitlines()[-1] == "10 to add"
        assert ids() == []
        found = document("apply", folder, "--dry-run")
        assert (found["equal"], {route["what"] for route in found["routes"]}) == (False, {"added"})

    def test_what_is_not_in_the_folder_is_removed_only_if_that_is_meant(self, folder: Path) -> None:
        told("apply", folder)
        (folder / "doors.yaml").unlink()
        with pytest.raises(Invalid, match="it would remove 2 routes, and nobody can be asked"):
            routes("apply", folder)
        with pytest.raises(Invalid, match="nobody can be asked"):
            routes("apply", folder, "--json")
        assert len(ids()) == 10
        assert told("apply", folder, "--keep") == "no difference: 8 routes are as they are written\n"
        said = told("apply", folder, "--yes")
        assert said.splitlines() == [
            "- doors-at-night", "- doors-for-guards", "2 to remove, 8 unchanged", "live on 3 of 3 instances",
        ]  # fmt: skip
        assert len(ids()) == 8

    def test_only_tenants_of_the_folder_are_touched(self, site: ServedRoutes, tmp_path: Path) -> None:
        httpx.put(f"{site.url}/v1/orgs/acme/applications/shop", json={}).raise_for_status()
        mine = {"orgId": "acme", "appId": "shop"}
        told("apply", put(tmp_path / "a.yaml", written(id="aa", userId="ada", tenant=mine)))
        told("apply", put(tmp_path / "b.yaml", written(id="bb", userId="ada")))
        found = [(one["tenant"]["orgId"], one["id"]) for one in document("ls", "--all")["routes"]]
        assert found == [("acme", "aa"), ("trunkline", "bb")]
        assert told("ls", "--org", "acme", "--app", "shop").splitlines()[1].split()[0] == "aa"

    def test_who_changed_a_route_meanwhile_is_not_overridden(
        self, site: ServedRoutes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = put(tmp_path / "a.yaml", written(id="aa", userId="ada"))
        told("apply", file)
        put(file, written(id="aa", userId="ada", name="new"))

        def meanwhile(*_: Any) -> None:
            body = written(id="aa", userId="eve", name="other")
            httpx.put(f"{site.url}/v1/orgs/trunkline/applications/trunkline/routes/aa", json=body).raise_for_status()

        monkeypatch.setattr("trunkline.cli.routes.applying._confirm", meanwhile)
        with pytest.raises(TrunklineError, match="aa"):
            routes("apply", file)
        assert document("show", "aa")["userId"] == "eve"

    def test_a_refusal_at_an_instance_is_told_and_ends_with_1(self, site: ServedRoutes, tmp_path: Path) -> None:
        site.runners[1].refuses = "no memory left"
        said = told("apply", put(tmp_path / "a.yaml", written(id="aa", userId="ada")), ends_with=1)
        assert "live on 2 of 3 instances" in said
        assert "refused, at i2: " in said
        assert "no memory left" in said
        standing = told("status", ends_with=1)
        assert "no memory left" in standing

    def test_mistakes_that_only_the_node_finds_are_told_at_their_lines(self, tmp_path: Path) -> None:
        sender = {"plugin": "redis", "config": {"password": "secret://no.such"}}
        file = put(tmp_path / "a.yaml", [written(id="aa", userId="ada"), written(id="bb", userId="ada", sender=sender)])
        with pytest.raises(Mistakes) as caught:
            routes("apply", file)
        (mistake,) = caught.value.mistakes
        assert (mistake.source, mistake.line, mistake.key) == (str(file), 7, "bb: sender.config")
        assert ids() == []

    def test_mistakes_of_files_and_empty_folders_change_nothing(self, folder: Path, tmp_path: Path) -> None:
        told("apply", folder)
        put(folder / "broken.yaml", written(sender={"plugin": "nob"}))
        with pytest.raises(Mistakes, match="nob"):
            routes("apply", folder, "--yes")
        (tmp_path / "empty").mkdir()
        with pytest.raises(Invalid, match="there is no route in them"):
            routes("apply", tmp_path / "empty", "--yes")
        assert len(ids()) == 10

    def test_as_json_the_answer_of_the_node_is_given(self, folder: Path) -> None:
        found = document("apply", folder)
        assert (len(found["routes"]), found["change"]["complete"], set(found["change"]["acked"])) == (10, True, {"i2", "i3"})


@pytest.mark.usefixtures("site")
class TestLooks:
    def test_the_list_names_both_ends_and_the_filters(self, folder: Path) -> None:
        assert told("ls") == "no routes\n"
        told("apply", folder)
        rows = told("ls").splitlines()
        assert rows[0].split() == ["id", "from", "filters", "to", "status", "revision", "changed", "by"]
        assert [word for row in rows if row.startswith("alarms-to-hub") for word in row.split()][1:6] == [
            "http", "match,", "deny,", "transform", "queue",
        ]  # fmt: skip
        assert any(row.startswith("doors-for-guards") and "stopped" in row for row in rows)

    def test_what_is_shown_can_be_applied_again(self, folder: Path, tmp_path: Path) -> None:
        told("apply", folder)
        again = tmp_path / "again"
        again.mkdir()
        for id in ids():
            (again / f"{id}.yaml").write_text(told("show", id))
        assert told("diff", again) == "no difference: 10 routes are as they are written\n"
        assert yaml.safe_load(told("show", "doors-for-guards"))["sender"]["config"]["password"] == "secret://redis.password"

    def test_a_secret_that_is_written_out_is_hidden_and_stays_when_it_comes_back(self, tmp_path: Path) -> None:
        sender = {"plugin": "redis", "config": {"password": "hunter2"}}
        told("apply", put(tmp_path / "a.yaml", written(id="aa", userId="ada", sender=sender)))
        shown = told("show", "aa")
        assert "hunter2" not in shown
        (tmp_path / "a.yaml").write_text(shown)
        assert told("diff", tmp_path) == "no difference: 1 routes are as they are written\n"
        sender["config"]["password"] = "hunter3"  # type: ignore[index]
        put(tmp_path / "a.yaml", written(id="aa", userId="ada", sender=sender))
        said = told("diff", tmp_path, ends_with=1)
        assert "~ something that is not shown, such as a secret" in said
        assert "hunter" not in said

    def test_a_route_that_is_not_there_ends_with_1(self) -> None:
        done = routes("show", "nobody")
        assert done.exit_code == 1
        assert "next: see `trunkline routes ls`" in done.stderr

    def test_status_lists_each_route_at_each_instance(self, folder: Path) -> None:
        told("apply", folder)
        rows = told("status", "alarms-to-hub", "doors-for-guards", "--wait", "30").splitlines()
        assert rows[0].split() == ["route", "revision", "instance", "state", "has", "reason"]
        assert [row.split()[2:4] for row in rows if row.startswith("alarms")] == [
            ["i1", "live"],
            ["i2", "acked"],
            ["i3", "acked"],
        ]
        assert any("doors-for-guards" in row and "rests" in row and "it is inactive" in row for row in rows)
        assert rows[-1] == "6 of 6 as they are stored, on 3 instances"
        assert document("status")["settled"] is True
        assert len(document("status")["routes"]) == 10
        assert "there is no route nobody" in told("status", "nobody", ends_with=1)

    def test_explain_asks_the_node(self, folder: Path) -> None:
        told("apply", folder)
        said = told("explain", '{"kind": "alarm", "id": "a", "level": 3, "subject": "x"}')
        assert said.splitlines()[0] == "alarms-to-hub: taken, from http"
        assert '"text":"x at lyon"' in said
        assert 'alarms-to-hub: dropped by filterChain[0] match: payload.kind is "x", wanted "alarm"' in told(
            "explain", '{"kind": "x"}', "--route", "alarms-to-hub", ends_with=1
        )


@pytest.mark.usefixtures("site")
class TestRemove:
    def test_routes_are_removed_as_one_change_and_a_second_time_ends_with_1(self, site: ServedRoutes, folder: Path) -> None:
        told("apply", folder)
        assert told("rm", "meters-once", "order-sums", "--yes") == (
            "removed: meters-once\nremoved: order-sums\ngone from 3 of 3 instances\n"
        )
        assert len(ids()) == 8
        assert [len(runner.running) for runner in site.runners] == [7, 7, 7]
        assert told("rm", "meters-once", "--yes", ends_with=1) == "was not there: meters-once\n"

    def test_it_asks_before(self, folder: Path) -> None:
        told("apply", folder)
        assert routes("rm", "meters-once", given=b"n\n").exit_code == 1
        assert "meters-once" in ids()
        assert "removed: meters-once" in told("rm", "meters-once", given=b"y\n")
        with pytest.raises(Invalid, match="give --yes"):
            routes("rm", "meters-once", "--json")


def test_a_node_that_cannot_be_reached_is_an_error(folder: Path) -> None:
    with pytest.raises(TrunklineError, match="it cannot be reached"):
        routes("apply", folder, "--url", "http://127.0.0.1:1")


def test_differences_tell_what_comes_goes_and_changes() -> None:
    before = {"id": "r", "revision": 7, "inactive": False, "desc": "x", "filterChain": [{"plugin": "a"}, {"plugin": "b"}]}
    after = {"id": "r", "filterChain": [{"plugin": "c"}], "name": "n"}
    assert differences(before, after) == [
        '- desc: "x"',
        '~ filterChain[0].plugin: "a" → "c"',
        '- filterChain[1]: {"plugin":"b"}',
        '+ name: "n"',
    ]
