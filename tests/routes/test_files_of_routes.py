"""Files and folders of routes: what is read, and everything that is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from trunkline.core.errors import Invalid
from trunkline.routes.files import Files, beside, files_of, is_cases, read_files
from trunkline.routes.plugin import Around
from written_routes import EARS, written

AROUND = Around({"site": "lyon"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def put(folder: Path, name: str, document: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False))
    return path


def read(*paths: Path) -> Files:
    return read_files(files_of(paths), AROUND)


def right(*paths: Path) -> Files:
    files = read(*paths)
    assert files.mistakes == ()
    return files


class TestWhichFiles:
    def test_a_folder_means_its_files_at_any_depth_but_no_hidden_ones(self, folder: Path) -> None:
        for name in ("b.yaml", "deep/er/a.yml", "c.json", "notes.txt", ".git/x.yaml", ".hidden.yaml"):
            put(folder, name, "routes: []")
        assert [str(path.relative_to(folder)) for path in files_of([folder])] == ["b.yaml", "c.json", "deep/er/a.yml"]

    def test_a_file_that_is_named_twice_is_read_once(self, folder: Path) -> None:
        path = put(folder, "a.yaml", written(userId="ada"))
        assert len(right(folder, path).routes) == 1

    def test_a_path_that_means_nothing_is_refused(self, folder: Path) -> None:
        with pytest.raises(Invalid, match="there is no such file or folder"):
            files_of([folder / "nowhere"])

    def test_cases_stand_beside_their_routes(self, folder: Path) -> None:
        routes, cases = put(folder, "a.yaml", "routes: []"), put(folder, "a.test.yml", "cases: []")
        assert (is_cases(cases), is_cases(routes)) == (True, False)
        assert (beside(routes), beside(cases)) == ([cases], [routes])
        assert right(folder).routes == ()


class TestForms:
    @pytest.mark.parametrize(
        "document",
        [
            written(),
            [written()],
            {"routes": [written()]},
            {"status": {"code": 200, "message": ""}, "items": [written()]},
            {"status": {"code": 200, "message": ""}, "item": written()},
        ],
        ids=["one", "list", "map", "answer", "answer-of-one"],
    )
    @pytest.mark.parametrize("name", ["a.yaml", "a.json"])
    def test_every_form_of_a_file_is_read(self, folder: Path, document: Any, name: str) -> None:
        path = put(folder, name, document if name.endswith("yaml") else json.dumps(document))
        (route,) = right(path).routes
        assert route.key.id == "r"
        assert route.compiled is not None

    def test_a_route_as_ears_exports_it_is_read_with_its_tenant(self, folder: Path) -> None:
        (route,) = right(put(folder, "a.json", json.dumps([EARS]))).routes
        assert str(route.key) == "myorg/myapp/acct-feed-1"
        assert route.place == (str(folder / "a.json"), 1)

    def test_a_file_without_routes_is_a_mistake(self, folder: Path) -> None:
        (mistake,) = read(put(folder, "compose.yaml", {"services": {}})).mistakes
        assert mistake.reason == "there are no routes in it"


class TestMistakes:
    def test_those_of_all_files_come_at_once_each_with_its_line(self, folder: Path) -> None:
        put(folder, "a.yaml", "id: aa\nreceiver: {plugin: nop}\nsender: {plugin: carrier}\n")
        put(folder, "b.yaml", "routes:\n- id: bb\n  receiver: {plugin: nop}\n  sender:\n    plugin: nop\n    config: {x: 1}\n")
        put(folder, "c.yaml", "routes: [")
        found = [(Path(one.source).name, one.line, one.key) for one in read(folder).mistakes]
        assert found == [("a.yaml", 3, "sender.plugin"), ("b.yaml", 6, "routes[0](bb).sender.config.x"), ("c.yaml", 1, "")]

    def test_what_only_compiling_finds_is_found(self, folder: Path) -> None:
        chain = [{"plugin": "expr", "config": {"expression": "payload.x >"}}]
        (mistake,) = read(put(folder, "a.yaml", written(filterChain=chain))).mistakes
        assert mistake.key == "filterChain[0].config"
        assert mistake.reason.startswith("expression: at 1:")

    def test_an_id_in_two_files_is_a_mistake_and_in_two_tenants_it_is_none(self, folder: Path) -> None:
        put(folder, "a.yaml", written())
        put(folder, "b.yaml", [written(), written(tenant={"orgId": "x", "appId": "y"})])
        (mistake,) = read(folder).mistakes
        assert (mistake.place, mistake.key) == (f"{folder}/b.yaml:1", "id")
        assert f"the first in {folder}/a.yaml:1" in mistake.reason

    def test_unknown_keys_and_a_missing_user_are_warnings(self, folder: Path) -> None:
        files = right(put(folder, "a.yaml", written(colour="red")))
        assert [one.key for one in files.warnings] == ["userId", "colour"]


FRAGMENT = {"name": "hub", "plugin": "queue", "config": {"client": "alarms", "destinations": ["hub"]}}


class TestFragments:
    def test_a_fragment_of_any_file_is_filled_in(self, folder: Path) -> None:
        put(folder, "z.yaml", {"fragments": [FRAGMENT]})
        put(folder, "a.yaml", written(sender={"fragmentName": "hub", "name": "out"}))
        (route,) = right(folder).routes
        assert route.body["sender"] == {"plugin": "queue", "config": FRAGMENT["config"], "name": "out"}
        assert route.compiled is not None

    def test_fragments_of_another_tenant_do_not_count(self, folder: Path) -> None:
        mine = {"orgId": "x", "appId": "y"}
        put(folder, "a.yaml", {"fragments": [FRAGMENT], "routes": [written(tenant=mine, sender={"fragmentName": "hub"})]})
        files = right(folder)
        assert [one.reason for one in files.warnings if "fragment" in one.reason] == ["the fragment hub is not in these files"]
        assert files.routes[0].compiled is None

    def test_a_fragment_at_the_wrong_place_or_written_twice_is_a_mistake(self, folder: Path) -> None:
        two = [FRAGMENT, FRAGMENT, {"name": "x"}]
        put(folder, "a.yaml", {"fragments": two, "routes": [written(filterChain=[{"fragmentName": "hub"}])]})
        found = {one.key: one.reason for one in read(folder).mistakes}
        assert found["fragments[1](hub).name"] == "there is a fragment hub already"
        assert "not a filter" in found["routes[0](r)"]
        assert "fragments[2](x).plugin" in found


class TestSecrets:
    def test_references_are_listed_and_not_followed(self, folder: Path) -> None:
        sender = {"plugin": "redis", "config": {"password": "secret://redis.password", "endpoint": "secret://redis.host"}}
        files = right(put(folder, "a.yaml", written(sender=sender)))
        assert {need.reference for need in files.needs} == {"secret://redis.password", "secret://redis.host"}

    def test_a_reference_where_no_secret_may_stand_is_a_mistake(self, folder: Path) -> None:
        chain = [{"plugin": "transform", "config": {"transformation": {"t": "secret://api.token"}}}]
        (mistake,) = read(put(folder, "a.yaml", written(filterChain=chain))).mistakes
        assert mistake.key == "filterChain[0].config.transformation.t"
        assert mistake.reason == "this field takes no secret"

    def test_a_reference_that_is_no_key_is_a_mistake(self, folder: Path) -> None:
        sender = {"plugin": "redis", "config": {"password": "secret://env/PASSWORD"}}
        (mistake,) = read(put(folder, "a.yaml", written(sender=sender))).mistakes
        assert mistake.reason.startswith("it is not a key")
