"""The demo as people run it: separate processes, real servers, Spark; it ends equal and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trunkline.cli.dev.kafka import KafkaBroker
from waiting import eventually

COMMAND = [sys.executable, "-m", "trunkline.cli.main", "demo"]


def traces(folder: Path) -> list[str]:
    """Processes that were started below this folder, by their words or their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in words:
                found.append((entry / "cmdline").read_bytes().decode().replace("\0", " ")[:200])
    return found


@contextmanager
def demo(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        [*COMMAND, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # its children die with it


@pytest.mark.spark
@pytest.mark.timeout(420)
def test_under_chaos_the_hub_s_rows_equal_every_site_s_and_nothing_is_left_behind(kafka: KafkaBroker, tmp_path: Path) -> None:
    """`kafka` says whether there can be a broker here; the demo has its own."""
    with demo(tmp_path, "--chaos", "--kafka", "--for", "70s", "--json") as process:
        out, err = process.communicate()
    verdict = json.loads(out) if out else {}
    unequal = [row for row in verdict.get("rows", ()) if not row["equal"]]
    assert process.returncode == 0, f"{unequal}, {verdict.get('edits')}\n{err[-6000:]}"
    assert verdict["equal"]
    assert all(row["equal"] for row in verdict["rows"])
    assert all(row["at_hub"] > 0 for row in verdict["rows"])
    assert {row["what"] for row in verdict["rows"]} >= {"events", "readings", "orders"}
    assert [edit["route"] for edit in verdict["edits"]] == ["readings", "orders"]
    assert all(edit["before"] > 0 and edit["after"] > 0 and edit["seconds"] > 0 for edit in verdict["edits"])
    killed = {"node of relay", "pipeline of hub", "node of leaf-1", "application of leaf-1"}
    assert set(verdict["restarts"]) == killed
    assert traces(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(120)
def test_ctrl_c_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        eventually(lambda: len(list(tmp_path.glob("*/*/node.json"))) == 4, why=process.poll)
        assert traces(tmp_path)
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    assert traces(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
