"""A standalone Spark cluster on this machine: a master and two workers of one core each, and a Python for its executors."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from trunkline.pipeline.home import spark_home
from trunkline.pipeline.java import find_java
from trunkline.pipeline.session import Spark
from waiting import eventually

HERE = "127.0.0.1"
DRIVER_SETTINGS = {
    "spark.driver.host": HERE,
    "spark.driver.bindAddress": HERE,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """Gives the master's address."""
    port = _free_port()
    address = f"spark://{HERE}:{port}"
    with ExitStack() as stack:
        head = _daemon(folder, "master", "master.Master", "--host", HERE, "--port", str(port), "--webui-port", "0")
        stack.callback(_end, head)
        eventually(lambda: _answers(port), 60, lambda: (folder / "master.log").read_text())
        for name in ("one", "two"):
            size = ("--cores", "1", "--memory", "600m", "--webui-port", "0")
            stack.callback(_end, _daemon(folder, name, "worker.Worker", "--host", HERE, *size, address))
        yield address


def executors(spark: Spark) -> int:
    """Without the driver."""
    context = spark.session.sparkContext
    return len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1


def tasks_of_executors(spark: Spark) -> list[int]:
    """How many tasks each has run."""
    found = spark.session.sparkContext._jsc.sc().statusStore().executorList(False)
    summaries = [found.apply(n) for n in range(found.size())]
    return [one.totalTasks() for one in summaries if one.id() != "driver"]


def python_without_trunkline(folder: Path) -> Path:
    """One that has everything installed that this one has, but Trunkline."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    ours = Path(sysconfig.get_paths()["purelib"])
    theirs = folder / "lib" / ours.parent.name / "site-packages"
    for entry in ours.iterdir():
        if "trunkline" not in entry.name:
            (theirs / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(port: int) -> bool:
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
