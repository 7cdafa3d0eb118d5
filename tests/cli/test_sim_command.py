"""`trunkline sim` as a person uses it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trunkline.cli.sim import app
from trunkline.core.errors import Invalid
from trunkline.node.sim.catalogue import CATALOGUE, boot_site
from trunkline.node.sim.checks import acknowledged, entries_delivered
from trunkline.node.sim.history import Write
from trunkline.node.sim.universe import Universe
from trunkline.node.sim.witness import Failure
from waiting import eventually

COMMANDS = ["list", "run", "show", "shrink", "topology"]


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def started(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trunkline.cli.main", "sim", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def picky(monkeypatch: pytest.MonkeyPatch) -> str:
    """A scenario that takes it for a failure when more than two transactions of the leaf reach the hub."""

    def at_most_two(universe: Universe) -> Iterator[Failure]:
        if len(universe.databases["hub"].sink.received.get("leaf", ())) > 2:
            yield Failure("G3", "hub has more than two entries of leaf")

    scenario = replace(
        CATALOGUE["chain"], name="picky", boot=boot_site, steady=False,
        checks=(entries_delivered, acknowledged, at_most_two),
        draw=lambda random, setup, calm: [Write(n / 1, "leaf", (("s", ("hub",)),)) for n in range(random.randint(1, 5))],
    )  # fmt: skip
    monkeypatch.setattr("trunkline.node.sim.universe.CONVERGE_SECONDS", 3.0)
    monkeypatch.setitem(CATALOGUE, "picky", scenario)
    return "picky"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    done = call(command, "--help")
    assert done.exit_code == 0
    assert f"Example: trunkline sim {command}" in " ".join(done.output.split())


def test_list_names_what_can_be_simulated() -> None:
    assert [
        name
        for name in ("chain", "ring", "house", "mesh", "star", "topology", "store", "narrow", "site")
        if name not in call("list").output
    ] == []
    document = json.loads(call("list", "--json").output)
    assert [s["name"] for s in document["scenarios"]] == list(CATALOGUE)
    assert {"name", "about", "loss", "faults"} == set(document["scenarios"][0])
    assert "SIGSTOP" in call("list", "--faults").output


def test_run_tells_that_all_came_right() -> None:
    done = call("run", "store", "--seeds", "6", "--first-seed", "40", "--jobs", "1")
    assert done.exit_code == 0
    assert "store: 6 of 6 seeds came right" in done.output


def test_the_name_alone_is_short_for_run() -> None:
    short, long = (call(*words, "--seeds", "3", "--jobs", "1", "--json") for words in (["store"], ["run", "store"]))
    assert short.exit_code == long.exit_code == 0
    assert json.loads(short.stdout) | {"elapsed_seconds": 0} == json.loads(long.stdout) | {"elapsed_seconds": 0}
    assert call("narrow", "--help").output == call("run", "--help").output
    assert "sim store is short for" in " ".join(call("--help").output.split())


def test_the_short_form_has_the_exit_code_of_a_failing_run(picky: str) -> None:
    done = call(picky, "--seeds", "6", "--jobs", "1", "--loss", "0.0")
    assert done.exit_code == 1
    assert "fails G3" in done.output


def test_a_word_that_is_neither_a_command_nor_a_name_is_refused() -> None:
    done = call("nonsense")
    assert done.exit_code == 2
    assert "No such command 'nonsense'" in done.output


def test_run_on_several_processes_in_json() -> None:
    process = started("run", "store", "--seeds", "20", "--jobs", "2", "--json")
    out, _ = process.communicate(timeout=60)
    document = json.loads(out)
    assert process.returncode == 0
    assert {k: document[k] for k in ("scenario", "asked", "seeds", "failed", "failures", "interrupted")} == {
        "scenario": "store", "asked": 20, "seeds": 20, "failed": 0, "failures": [], "interrupted": False,
    }  # fmt: skip


def test_a_failing_seed_is_told_with_its_checks_and_the_commands_that_repeat_it(picky: str) -> None:
    done = call("run", picky, "--seeds", "6", "--jobs", "1", "--loss", "0.0")
    assert done.exit_code == 1
    failed = [line for line in done.output.splitlines() if line.startswith("seed ")]
    assert failed
    assert failed[0].endswith("fails G3")
    seed = failed[0].split()[1]
    assert f"trunkline sim show picky --seed {seed} --loss 0.0" in done.output
    assert f"trunkline sim shrink picky --seed {seed} --loss 0.0" in done.output
    again = call("show", picky, "--seed", seed, "--loss", "0.0", "--last", "3")
    assert again.exit_code == 1
    assert f"seed {seed} fails G3" in again.output


def test_shrink_writes_a_history_that_show_runs(picky: str, tmp_path: Path) -> None:
    document = json.loads(call("run", picky, "--seeds", "6", "--jobs", "1", "--json").stdout)
    seed = document["failures"][0]["seed"]
    file = tmp_path / "small.txt"
    done = call("shrink", picky, "--seed", str(seed), "--out", str(file))
    assert done.exit_code == 0
    assert "became 3 in" in done.output
    assert f"trunkline sim show picky --history {file}" in done.output
    shown = call("show", picky, "--history", str(file))
    assert shown.exit_code == 1
    assert file.read_text() in shown.output
    assert "G3: hub has more than two entries of leaf" in shown.output


def test_show_prints_the_history_the_trace_and_the_verdict() -> None:
    done = call("show", "chain", "--seed", "3", "--only", "hub", "--last", "20")
    assert done.exit_code == 0
    assert "scenario chain\nseed 3\n" in done.output
    trace = [line for line in done.output.splitlines() if line.startswith("   ")]
    assert len(trace) == 20
    assert all("hub" in line or "===" in line for line in trace)
    document = json.loads(call("show", "chain", "--seed", "3", "--last", "2", "--json").output)
    assert len(document["trace"]) == 2
    assert document["verdict"]["fingerprint"] in done.output


def test_ctrl_c_stops_the_workers_and_says_what_was_done() -> None:
    process = started("run", "chain", "--seeds", "100000", "--jobs", "2", "--json")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    eventually(lambda: len(children.read_text().split()) >= 2)
    os.killpg(process.pid, signal.SIGINT)
    try:
        out, error = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    document = json.loads(out)
    assert process.returncode == 130
    assert document["interrupted"]
    assert 0 <= document["seeds"] < 100000
    assert "Traceback" not in error
    eventually(lambda: not alive(process.pid))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["run", "chian"], "did you mean chain"),
        (["stroe"], "did you mean store"),
        (["show", "chain"], "either a seed or a history"),
        (["show", "chain", "--history", "nowhere.txt"], "cannot be read"),
        (["shrink", "chain", "--seed", "1"], "it does not fail"),
    ],
)
def test_mistakes(words: list[str], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        call(*words)


def test_a_history_of_another_scenario_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "history.txt"
    file.write_text("# trunkline sim history 1\nscenario ring\nseed 1\nloss 0.0\n")
    with pytest.raises(Invalid, match="it is a history of 'ring'"):
        call("show", "chain", "--history", str(file))
