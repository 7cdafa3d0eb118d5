"""`trunkline ca` as people and scripts use it."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from trunkline.cli.ca import app
from trunkline.core.clock import SystemClock
from trunkline.core.config import TlsConfig
from trunkline.core.errors import Invalid
from trunkline.core.ids import NodeId
from trunkline.net.credentials import Credentials
from trunkline.net.ledger import Revoked, append

SOME_DAY = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ca(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), prog_name="trunkline ca")


def said(*words: str, code: int = 0) -> str:
    done = ca(*words)
    assert done.exit_code == code, done.output
    return done.stdout


def facts(*words: str, code: int = 0) -> dict[str, Any]:
    document = json.loads(said(*words, "--json", code=code))
    assert isinstance(document, dict)
    return document


def refusal(*words: str) -> Invalid:
    error = ca(*words).exception
    assert isinstance(error, Invalid)
    return error


def contents(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def issued_states() -> list[tuple[str, str]]:
    return [(row["node"], row["state"]) for row in facts("show", "--ca", "ca")["issued"]]


@pytest.mark.parametrize("command", ["init", "issue", "revoke", "show"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    assert f"Example: trunkline ca {command}" in " ".join(said(command, "--help").split())


def test_init_says_what_goes_where_and_changes_nothing_the_second_time() -> None:
    assert "made authority 'our fleet' in ca" in said("init", "--out", "ca", "--name", "our fleet")
    assert sorted(contents("ca")) == ["ca-key.pem", "ca.pem", "revoked.pem"]
    assert (Path("ca") / "ca-key.pem").stat().st_mode & 0o777 == 0o600
    before = contents("ca")
    assert "exists already, nothing was changed" in said("init", "--out", "ca", "--name", "another")
    assert facts("init", "--out", "ca")["made"] is False
    assert contents("ca") == before


def test_what_issue_prints_is_a_tls_section_that_works() -> None:
    said("init", "--out", "ca")
    printed = said("issue", "--ca", "ca", "berlin/node-1")
    section = yaml.safe_load(printed[printed.index("  tls:") :])
    credentials = Credentials(TlsConfig.model_validate(section["tls"]), SystemClock())
    assert credentials.identity == NodeId("berlin", "node-1")
    assert credentials.serial in printed
    assert Path("berlin/node-1/key.pem").stat().st_mode & 0o777 == 0o600


def test_issue_again_renews_and_a_running_node_takes_it() -> None:
    said("init", "--out", "ca")
    first = facts("issue", "--ca", "ca", "berlin/node-1", "--out", "tls")
    credentials = Credentials(TlsConfig.model_validate(first["tls"]), SystemClock())
    second = facts("issue", "--ca", "ca", "berlin/node-1", "--out", "tls", "--days", "20")
    assert (first["renewed"], second["renewed"], second["days_left"]) == (False, True, 19)
    assert credentials.refresh()
    assert credentials.serial == second["serial"] != first["serial"]
    assert issued_states() == [("berlin/node-1", "replaced"), ("berlin/node-1", "good")]


def test_revoke_by_name_and_by_serial_and_again() -> None:
    said("init", "--out", "ca")
    serials = [facts("issue", "--ca", "ca", f"{site}/node-1")["serial"] for site in ("berlin", "paris", "rome")]
    assert f"revoked berlin/node-1, serial {serials[0]}" in said("revoke", "--ca", "ca", "berlin/node-1")
    assert [row["serial"] for row in facts("revoke", "--ca", "ca", serials[1])["revoked"]] == [serials[1]]
    assert "revoked already on 20" in said("revoke", "--ca", "ca", "berlin/node-1")
    assert issued_states() == [("berlin/node-1", "revoked"), ("paris/node-1", "revoked"), ("rome/node-1", "good")]


def test_show_of_an_authority_is_a_table() -> None:
    said("init", "--out", "ca", "--name", "our fleet")
    assert "it has issued nothing yet" in said("show", "--ca", "ca")
    serial = facts("issue", "--ca", "ca", "berlin/node-1", "--days", "10")["serial"]
    printed = said("show", "--ca", "ca")
    assert "'our fleet' in ca" in printed
    row = next(line for line in printed.splitlines() if line.startswith("berlin/node-1"))
    assert row.split()[1:2] + row.split()[3:] == [serial, "good", "9"]


def test_show_of_a_certificate_tells_by_its_exit_code_whether_it_is_good() -> None:
    said("init", "--out", "ca")
    said("init", "--out", "other")
    said("issue", "--ca", "ca", "berlin/node-1", "--out", "tls")
    shown = facts("show", "tls/certificate.pem", "--ca", "ca")
    assert (shown["node"], shown["state"], shown["revocation_checked"]) == ("berlin/node-1", "good", True)
    said("revoke", "--ca", "ca", "berlin/node-1")
    assert "state       revoked" in said("show", "tls/certificate.pem", "--ca", "ca", code=1)
    assert "of another authority" in said("show", "tls/certificate.pem", "--ca", "other", code=1)
    assert "with --ca also whether it is revoked" in said("show", "tls/certificate.pem")


def test_show_tells_when_the_list_lacks_what_was_revoked() -> None:
    """As after a crash between the record and the list."""
    said("init", "--out", "ca")
    issued = facts("issue", "--ca", "ca", "berlin/node-1")
    append(Path("ca"), [Revoked(issued["serial"], SOME_DAY)])
    next_step = refusal("show", "--ca", "ca").next_step
    assert next_step == f"trunkline ca revoke --ca ca {issued['serial']}"
    said(*next_step.split()[2:])
    assert issued_states() == [("berlin/node-1", "revoked")]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["issue", "--ca", "nowhere", "berlin/node-1"], "nowhere/ca.pem: No such file"),
        (["issue", "--ca", "ca", "Berlin"], "it has no '/'"),
        (["issue", "--ca", "ca", "Berlin/node-1"], "a name is"),
        (["issue", "--ca", "ca", "berlin/node-1", "--days", "0"], "at least one day"),
        (["issue", "--ca", "ca", "berlin/node-1", "--out", "taken/by/a/file"], "Not a directory"),
        (["revoke", "--ca", "ca", "berlin/node-1"], "never issued it"),
        (["revoke", "--ca", "nowhere", "berlin/node-1"], "nowhere/ca.pem: No such file"),
        (["show"], "neither --ca nor a file"),
        (["show", "--ca", "nowhere"], "nowhere/ca.pem: No such file"),
        (["show", "nothing.pem"], "No such file"),
        (["show", "ca/ca-key.pem"], "no certificate in PEM form"),
        (["init", "--out", "new", "--name", ""], "1 to 64 characters"),
    ],
)
def test_mistakes_change_nothing_and_say_what_to_do(words: list[str], why: str) -> None:
    said("init", "--out", "ca")
    Path("taken").write_text("a file")
    before, folder = contents("ca"), sorted(Path().iterdir())
    error = refusal(*words)
    assert why in error.why
    assert error.next_step
    assert contents("ca") == before
    assert sorted(Path().iterdir()) == folder


def test_as_a_process() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trunkline.cli.main", "ca", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run("init", "--out", "ca").returncode == 0
    failed = run("revoke", "--ca", "ca", "berlin/node-1")
    assert failed.returncode == 2
    assert failed.stderr.startswith("error: certificate 'berlin/node-1': this authority never issued it\n  next: ")
