"""The Spark session. Nobody else builds one, for most of what makes it fast and quiet must be said before the JVM starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.sql import SparkSession

from trunkline.pipeline.filesystem import LocalFiles, local_files
from trunkline.pipeline.java import find_java
from trunkline.pipeline.noise import quiet_stderr

DRIVER_MEMORY = "1g"
ARROW_ROWS = 5000


@dataclass(frozen=True)
class Spark:
    session: SparkSession
    filesystem: str
    sockets: str

    @property
    def cores(self) -> int:
        return self.session.sparkContext.defaultParallelism

    def stop(self) -> None:
        self.session.stop()


def _environment(scratch: Path, java_home: Path) -> dict[str, str]:
    return {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(_home(scratch)),
        "SPARK_LOCAL_DIRS": str(scratch / "local"),
        "SPARK_WORKER_DIR": str(scratch / "worker"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONHASHSEED": "0",
    }


def _home(scratch: Path) -> Path:
    """Spark without its zipped copy of pyspark, which each new Python worker would compile again (0.7 s): without it they
    import the installed one."""
    home = scratch / "home"
    home.mkdir()
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


def _java_options(scratch: Path, fast_start: bool) -> str:
    log4j2 = resources.files("trunkline.pipeline").joinpath("jvm", "log4j2.properties")
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"] if fast_start else []
    return " ".join([*quick, f'"-Dlog4j2.configurationFile={log4j2}"', f'"-Djava.io.tmpdir={scratch / "tmp"}"'])


def _settings(scratch: Path, cores: int, files: LocalFiles, fast_start: bool) -> Mapping[str, str]:
    return {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": _java_options(scratch, fast_start),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **files.settings,
        **_socket_settings(scratch),
    }


def open_session(scratch: Path, name: str, fast_start: bool = False) -> Spark:
    """A session with all its files under `scratch`. `fast_start` saves seconds now and costs speed later: for tests."""
    java_home = find_java()
    files = local_files(java_home, Path(pyspark.__file__).parent / "jars")
    for folder in ("local", "worker", "tmp", "sockets"):
        (scratch / folder).mkdir(parents=True, exist_ok=True)
    os.environ.update(_environment(scratch, java_home))
    cores = os.cpu_count() or 1
    conf = SparkConf().setMaster(f"local[{cores}]").setAppName(name)
    conf.setAll(list(_settings(scratch, cores, files, fast_start).items()))
    context = SparkContext(conf=conf, gateway=_gateway(conf))
    return Spark(SparkSession(context), files.description, "unix" if _socket_settings(scratch) else "tcp: the path is too long")


def _socket_settings(scratch: Path) -> Mapping[str, str]:
    """Nothing where the folder is too deep: a socket's path has room for 107 bytes, and its name takes 45 of them."""
    folder = str(scratch / "sockets")
    if len(os.fsencode(folder)) > 60:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": folder}


def _gateway(conf: SparkConf) -> Any:
    """The JVM, away from our terminal: Ctrl-C is for the driver alone, which drains and then lets it go."""
    if SparkContext._gateway is not None:
        return SparkContext._gateway
    stderr = quiet_stderr()
    try:
        launch: Callable[..., Any] = java_gateway.launch_gateway
        return launch(conf, {"stderr": stderr, "start_new_session": True})
    finally:
        os.close(stderr)
