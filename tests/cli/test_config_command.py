"""`trunkline config`: lint, show, schema and init as a person uses them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from trunkline.cli.config import app
from trunkline.core.config import ProcessConfig, load_config
from trunkline.core.errors import Invalid
from trunkline.core.starter import KINDS

HIDDEN = "hunter2"
GOOD = "site: leaf\ndatabase: secret://file/db\n"
BAD = "site: leaf\ndatabase: dbname=x\nlog: {level: trace}\n"


def run(*words: str | Path, **environ: str) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env=environ)


def document(result: Result) -> Any:
    assert result.exit_code in (0, 1), result.exception
    return json.loads(result.stdout)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    (tmp_path / "db").write_text(f"dbname=x password={HIDDEN}\n")
    (tmp_path / "db").chmod(0o600)
    (tmp_path / "good.yaml").write_text(GOOD)
    return tmp_path / "good.yaml"


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    (tmp_path / "bad.yaml").write_text(BAD)
    return tmp_path / "bad.yaml"


class TestLint:
    def test_a_right_file_is_ok(self, good: Path) -> None:
        done = run("lint", good)
        assert (done.exit_code, done.stdout) == (0, f"{good}: ok\n")

    def test_every_file_is_checked_and_a_wrong_one_makes_the_exit_code_1(self, good: Path, bad: Path) -> None:
        done = run("lint", bad, good, good.with_name("gone.yaml"))
        assert done.exit_code == 1
        assert done.stdout.splitlines() == [
            f"{bad}:3: log.level: 'trace' is not known, write 'debug', 'info', 'warning' or 'error'",
            f"{good}: ok",
            f"{good.with_name('gone.yaml')}: No such file or directory",
        ]

    def test_json_is_for_machines(self, good: Path, bad: Path) -> None:
        first, second = document(run("lint", "--json", bad, good))["files"]
        assert (first["ok"], second["ok"], second["mistakes"]) == (False, True, [])
        (mistake,) = first["mistakes"]
        assert (mistake["source"], mistake["line"], mistake["key"]) == (str(bad), 3, "log.level")

    def test_without_secrets_they_are_not_looked_for(self, good: Path) -> None:
        (good.parent / "db").unlink()
        assert run("lint", good).exit_code == 1
        assert run("lint", "--without-secrets", good).exit_code == 0

    def test_a_secret_that_others_can_read_is_a_warning_and_no_mistake(self, good: Path) -> None:
        (good.parent / "db").chmod(0o644)
        done = run("lint", good)
        assert done.exit_code == 0
        assert f"warning: {good}:2: database: others than its owner can read {good.parent / 'db'} (chmod 600" in done.stdout
        assert document(run("lint", "--json", good))["files"][0]["warnings"][0]["key"] == "database"

    def test_a_password_in_a_file_that_others_can_read_is_a_warning(self, tmp_path: Path) -> None:
        file = tmp_path / "open.yaml"
        file.write_text(f"site: a\ndatabase: dbname=x password={HIDDEN}\n")
        file.chmod(0o644)
        done = run("lint", file)
        assert "warning: " in done.stdout
        assert HIDDEN not in done.stdout
        file.chmod(0o600)
        assert "warning: " not in run("lint", file).stdout

    def test_the_route_file_is_checked_too(self, tmp_path: Path) -> None:
        (tmp_path / "routes.yaml").write_text("routes:\n  - id: r\n    receiver: {plugin: htp}\n")
        (tmp_path / "node.yaml").write_text("site: a\ndatabase: dbname=x\nroutes: routes.yaml\n")
        done = run("lint", tmp_path / "node.yaml")
        assert done.exit_code == 1
        assert f"{tmp_path / 'routes.yaml'}:3: routes[0](r).receiver.plugin: 'htp' is not known, write 'http'" in done.stdout

    def test_variables_count(self, good: Path) -> None:
        assert "TRUNKLINE_SITE: site: " in run("lint", good, TRUNKLINE_SITE="No Name").stdout


class TestShow:
    def test_each_value_says_where_it_comes_from(self, good: Path) -> None:
        done = document(run("show", "--json", "--config", good, TRUNKLINE_LINK__LISTEN="127.0.0.1:7"))
        found = {row["key"]: (row["value"], row["from"]) for row in done["settings"]}
        assert found["site"] == ("leaf", f"{good}:1")
        assert found["link.listen"] == ("127.0.0.1:7", "TRUNKLINE_LINK__LISTEN")
        assert found["link.seeds"] == ([], "default")
        assert found["database"] == ("secret://file/db", f"{good}:2")
        assert found["runtime"] == (str(good.parent), "default")

    def test_every_setting_is_there(self, good: Path) -> None:
        found = {row["key"].partition(".")[0] for row in document(run("show", "--json", "--config", good))["settings"]}
        assert found == set(ProcessConfig.model_fields)

    def test_secrets_are_references_or_stars(self, tmp_path: Path) -> None:
        file = tmp_path / "node.yaml"
        file.write_text(f"""
site: a
database: dbname=x password={HIDDEN}
otlp: {{endpoint: "http://h", headers: {{plain: {HIDDEN}, elsewhere: secret://env/NOWHERE}}}}
""")
        for words in (["show", "--config", file], ["show", "--json", "--config", file]):
            done = run(*words, COLUMNS="200")
            assert done.exit_code == 0
            assert HIDDEN not in done.stdout
            for shown in ("dbname=x password=***", "secret://env/NOWHERE", "otlp.headers.plain"):
                assert shown in done.stdout

    def test_a_wrong_file_is_an_error_with_all_its_mistakes(self, bad: Path) -> None:
        done = run("show", "--config", bad)
        assert isinstance(done.exception, Invalid)
        assert f"{bad}:3: log.level" in done.exception.why


class TestInit:
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_new_file_passes_lint_once_its_certificates_are_there(self, kind: str, tmp_path: Path) -> None:
        file = tmp_path / f"{kind}.yaml"
        assert run("init", kind, "--out", file).exit_code == 0
        lines = run("lint", "--without-secrets", file).stdout.splitlines()
        assert [line.split(": ")[1] for line in lines] == ["tls.ca", "tls.certificate", "tls.key", "tls.revoked"]
        certificates(tmp_path)
        assert run("lint", "--without-secrets", file).stdout == f"{file}: ok\n"
        config = load_config(file, {"DATABASE_URL": "dbname=x"})
        assert (config.bridge is not None) == (kind == "hub")

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_setting_stands_in_it_and_is_right_when_switched_on(self, kind: str, tmp_path: Path) -> None:
        body = run("init", kind).stdout.partition("\n\n")[2]
        switched_on = re.sub(r"^( *)#(?! \S)", r"\1", body, flags=re.M)
        file = tmp_path / "all.yaml"
        file.write_text(switched_on)
        certificates(tmp_path)
        (tmp_path / "routes.yaml").write_text("routes: []\n")
        assert run("lint", "--without-secrets", file).stdout == f"{file}: ok\n"
        written = yaml.safe_load(switched_on)
        assert set(written) == set(ProcessConfig.model_fields)
        assert set(written["api"]["tokens"][0]) == {"name", "sha256", "role", "tenant"}

    def test_the_comments_are_the_descriptions_of_the_models(self) -> None:
        text = " ".join(run("init", "hub").stdout.replace("# ", "").split()).lower()
        for model in (ProcessConfig, *(type(part) for part in vars(ProcessConfig(site="a", database="dbname=x")).values())):
            for field in getattr(model, "model_fields", {}).values():
                assert (field.description or "").lower() in text

    def test_the_site_has_the_name_it_was_given(self) -> None:
        assert yaml.safe_load(run("init", "site", "--site", "berlin").stdout)["site"] == "berlin"

    def test_an_existing_file_is_not_overwritten(self, tmp_path: Path) -> None:
        file = tmp_path / "hub.yaml"
        file.write_text("precious")
        done = run("init", "hub", "--out", file)
        assert isinstance(done.exception, Invalid)
        assert "--force" in done.exception.next_step
        assert file.read_text() == "precious"
        assert run("init", "hub", "--out", file, "--force").exit_code == 0
        assert "site: hub" in file.read_text()

    @pytest.mark.parametrize(
        "words", [["sit"], ["site", "--site", "No Name"], ["relay", "--site", "hub"], ["hub", "--out", "no/x"]]
    )
    def test_what_cannot_be_made_is_refused(self, words: list[str]) -> None:
        assert isinstance(run("init", *words).exception, Invalid)


class TestSchema:
    def test_it_says_what_it_is(self) -> None:
        schema = document(run("schema"))
        assert schema["$schema"].endswith("2020-12/schema")
        assert "Trunkline" in schema["title"]
        assert set(schema["properties"]) == set(ProcessConfig.model_fields)
        for part in (schema, *schema["$defs"].values()):
            for key, field in part.get("properties", {}).items():
                assert "description" in field or "$ref" in str(field), key

    def test_an_editor_accepts_right_files_and_secret_references(self, tmp_path: Path) -> None:
        schema = document(run("schema"))
        for kind in KINDS:
            assert complaints(yaml.safe_load(run("init", kind).stdout), schema, schema) == []
        references: dict[str, Any] = {
            "site": "a",
            "database": "secret://env/DB",
            "api": {"tokens": [{"name": "ci", "sha256": "secret://file/h", "tenant": None}]},
            "otlp": {"endpoint": "http://h", "headers": {"a": "secret://env/A"}},
            "tls": None,
        }
        assert complaints(references, schema, schema) == []

    def test_an_editor_marks_what_is_wrong(self) -> None:
        schema = document(run("schema"))
        wrong = {"site": 7, "link": {"listne": "a", "heartbeat_seconds": 61}, "log": {"level": "trace"}}
        found = complaints(wrong, schema, schema)
        assert {"database is missing", "site", "link.listne", "link.heartbeat_seconds", "log.level"} <= set(found)


def test_a_start_with_a_wrong_file_says_everything_and_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(f"site: A B\ndatabase: {HIDDEN}\nnod: x\n")
    done = subprocess.run(
        [sys.executable, "-m", "trunkline.cli.main", "node", "run", "--config", str(file)],
        capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "400"},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: configuration {file}: 3 mistakes\n")
    for line in (f"  {file}:1: site: ", f"  {file}:2: database: ", f"  {file}:3: nod: ", "  next: "):
        assert f"\n{line}" in done.stderr
    assert HIDDEN not in done.stderr


def certificates(folder: Path) -> None:
    (folder / "tls").mkdir(exist_ok=True)
    for name in ("ca.pem", "certificate.pem", "key.pem", "revoked.pem"):
        (folder / "tls" / name).touch(0o600)


def complaints(value: Any, schema: dict[str, Any], top: dict[str, Any], at: str = "") -> list[str]:
    """What an editor would underline: the part of JSON schema that ours uses."""
    if "$ref" in schema:
        return complaints(value, top["$defs"][schema["$ref"].rpartition("/")[2]], top, at)
    if "anyOf" in schema:
        return min((complaints(value, choice, top, at) for choice in schema["anyOf"]), key=len)
    kinds = {"string": str, "integer": int, "number": (int, float), "array": list, "object": dict, "null": type(None)}
    if not isinstance(value, kinds[schema["type"]]) or value not in schema.get("enum", [value]):
        return [at]
    found = [f"{key} is missing" for key in schema.get("required", ()) if key not in value]
    if isinstance(value, dict):
        for key, inner in value.items():
            rule = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            where = f"{at}.{key}".lstrip(".")
            found += complaints(inner, rule, top, where) if rule else [where]
    if isinstance(value, list):
        found += [line for n, inner in enumerate(value) for line in complaints(inner, schema["items"], top, f"{at}[{n}]")]
    if isinstance(value, int | float):
        inside = value <= schema.get("maximum", value) and value > schema.get("exclusiveMinimum", value - 1)
        found += [] if inside else [at]
    return found
