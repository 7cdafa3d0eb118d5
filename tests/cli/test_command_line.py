"""What the command line says: help with examples, one line of error and the next step, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trunkline.cli.demo.fleet import behind_relay, plan_sites
from trunkline.cli.main import seconds
from trunkline.core.errors import Invalid


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "trunkline.cli.main", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [["demo"], ["node", "run"], ["pipeline", "run"]])
def test_every_command_has_help_with_an_example(words: list[str]) -> None:
    done = run(*words, "--help")
    assert done.returncode == 0
    assert "Example: trunkline " + " ".join(words) in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "thing"),
    [
        (["demo", "--for", "soon"], "soon"),
        (["demo", "--sites", "1"], "--sites 1"),
        (["node", "run", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["pipeline", "run", "--config", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_a_mistake_is_one_error_with_a_next_step_and_leaves_nothing(
    words: list[str], thing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = run(*words)
    assert list(tmp_path.iterdir()) == []
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert thing in done.stderr
    assert "next: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("text", "expected"), [("90s", 90.0), ("2m", 120.0), ("1h", 3600.0), ("7", 7.0), ("0.5m", 30.0)])
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0s", "-3s", "s", "3 days"])
def test_wrong_durations(text: str) -> None:
    with pytest.raises(Invalid):
        seconds(text)


def test_the_fleet_is_a_chain_and_a_branch_and_further_leaves_alternate(tmp_path: Path) -> None:
    sites = plan_sites(6, tmp_path)
    assert {s.name: s.parent for s in sites} == {
        "hub": None, "relay": "hub", "leaf-1": "relay", "leaf-2": "hub", "leaf-3": "relay", "leaf-4": "hub",
    }  # fmt: skip
    assert behind_relay(sites) == ("relay", "leaf-1", "leaf-3")
