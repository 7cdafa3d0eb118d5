"""What the command line says: help with examples, one line of error and the next step, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from trunkline.cli.demo.fleet import behind_relay, plan_sites
from trunkline.cli.duration import seconds
from trunkline.cli.main import app
from trunkline.core.errors import Invalid

TRUNKLINE = Path(sys.executable).with_name("trunkline")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "trunkline.cli.main", *words], capture_output=True, text=True, check=False)


def commands(group: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that people see, with the words that call it."""
    if not hasattr(group, "commands"):
        yield words, group
        return
    for name, command in group.commands.items():
        if not command.hidden:
            yield from commands(command, *words, name)


COMMANDS = dict(commands(typer.main.get_command(app)))
# They run until they are told to stop, or write one file: there is nothing to say in JSON.
WITHOUT_JSON = {
    ("bridge", "run"), ("node", "run"), ("pipeline", "run"), ("pipeline", "prepare"), ("config", "schema"), ("config", "init"),
}  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_an_example_of_itself(words: tuple[str, ...]) -> None:
    _, _, example = (COMMANDS[words].help or "").partition("Example: [bold]")
    assert f"trunkline {' '.join(words)}" in example


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_that_answers_can_answer_in_json(words: tuple[str, ...]) -> None:
    options = {option for parameter in COMMANDS[words].params for option in parameter.opts}
    assert ("--json" in options) is (words not in WITHOUT_JSON)


def test_help_shows_every_command_and_the_exit_codes() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(f" {words[0]} " in done.stdout for words in COMMANDS)
    assert "130: interrupted" in " ".join(done.stdout.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions(shell: str) -> None:
    asked = {"_TRUNKLINE_COMPLETE": f"complete_{shell}", "COMP_WORDS": "trunkline con", "COMP_CWORD": "1",
             "_TYPER_COMPLETE_ARGS": "trunkline con", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}  # fmt: skip
    done = subprocess.run([TRUNKLINE], env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert "config" in done.stdout


def test_a_defect_is_one_line_and_a_traceback_only_when_asked_for() -> None:
    broken = "import trunkline.cli.main as m\nm.app.command('break')(lambda: 1 / 0)\nm.main()"
    for words, traceback in ((("break",), False), (("--debug", "break"), True)):
        done = subprocess.run([sys.executable, "-c", broken, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "error: ZeroDivisionError" in done.stderr
        assert "--debug" in done.stderr
        assert ("Traceback" in done.stderr) is traceback


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
