"""`trunkline bridge run` as a process of its own, over the Kafka topics of one test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from kafka_topics import Topics


class BridgeProcess:
    """May be started again and again; `close` when done."""

    def __init__(self, folder: Path, dsn: str, topics: Topics, **bridge: Any) -> None:
        self.folder, self.runtime = folder, folder / "run"
        folder.mkdir()
        kafka = {
            "bootstrap": topics.bootstrap, "topics": rf"{topics.prefix}-(?P<site>.+)", "control": f"control-of-{topics.prefix}",
        }  # fmt: skip
        own = {"kafka": kafka, "trigger_seconds": 0.1, "workers": 2, **bridge}
        config = {"site": "hub", "database": dsn, "runtime": str(self.runtime), "bridge": own}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        self._log = (folder / "log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = ["bridge", "run", "--fast-start", "--config", str(self.folder / "config.yaml")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trunkline.cli.main", *words],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=self.folder,
        )  # fmt: skip

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def said(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.log().splitlines() if line.startswith("{")]

    def require_running(self) -> None:
        assert self.process.poll() is None, self.log()

    def is_ready(self) -> bool:
        """Not one that was killed before it."""
        self.require_running()
        file = self.runtime / "pipeline.ready"
        return file.exists() and json.loads(file.read_text())["pid"] == self.process.pid

    def resident(self) -> int:
        """Bytes of memory, with all its children: Spark's JVM and its tasks."""
        parents = {int(stat.parent.name): _parent(stat) for stat in Path("/proc").glob("[0-9]*/stat")}
        family = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= more
        return sum(_resident(pid) for pid in family)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)

    def close(self) -> None:
        self.kill()
        self._log.close()


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0  # it has ended


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0
