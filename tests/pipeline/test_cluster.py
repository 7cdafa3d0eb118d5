"""The same intake and the same waves on a standalone Spark cluster of two workers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fleet_feed import Feed, clusters, events, status_of, waiting_in
from trunkline.pipeline.home import spark_home
from trunkline.pipeline.java import find_java
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]  # six JVMs start, on two cores
HERE = "127.0.0.1"
HELPERS = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HERE, port)) == 0


def _daemon(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ, "JAVA_HOME": str(find_java()), "SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": HERE,
        "SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_WORKER_DIR": str(folder / name), "SPARK_LOCAL_DIRS": str(folder / name),
    }  # fmt: skip
    command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(30)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A master and two workers of one core each."""
    port = free_port()
    address = f"spark://{HERE}:{port}"
    with ExitStack() as stack:
        head = _daemon(tmp_path, "master", "master.Master", "--host", HERE, "--port", str(port), "--webui-port", "0")
        stack.callback(_end, head)
        eventually(lambda: answers(port), 60, lambda: (tmp_path / "master.log").read_text())
        for name in ("one", "two"):
            size = ("--cores", "1", "--memory", "600m", "--webui-port", "0")
            stack.callback(_end, _daemon(tmp_path, name, "worker.Worker", "--host", HERE, *size, address))
        yield address


def test_intake_and_a_wave_run_on_two_workers(master: str, make_database: Callable[..., str], tmp_path: Path) -> None:
    dsn = make_database("queues", "bridge", "pipeline")
    feed = Feed(dsn)
    for site in ("a", "b"):
        feed.put(site, clusters(site, 1, "old"), clusters(site, 2, "new"), events(site, 1, f"e-{site}"))
    done = subprocess.run(
        [sys.executable, str(HELPERS / "cluster_driver.py"), master, dsn, str(tmp_path / "driver")],
        env={**os.environ, "PYTHONPATH": f"{HELPERS}{os.pathsep}{HELPERS.parent}"},
        capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "cores": 2,
        "waited": 4,
        "outcomes": [["a", "applied"], ["a", "applied"], ["b", "applied"], ["b", "applied"]],
        "elsewhere": True,
    }
    assert status_of(dsn)["cluster"] == {("a", "new", 2), ("b", "new", 2)}
    assert status_of(dsn)["event"] == {("a", "e-a"), ("b", "e-b")}
    assert waiting_in(dsn) == 0
