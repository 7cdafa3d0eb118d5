"""The Spark session. Nobody else builds one, for most of what makes it fast and quiet must be said before the JVM starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from trunkline.pipeline.archive import Archive, archive_for
from trunkline.pipeline.filesystem import LocalFiles, local_files
from trunkline.pipeline.home import installed, spark_home
from trunkline.pipeline.java import find_java
from trunkline.pipeline.noise import quiet_stderr

DRIVER_MEMORY = "1g"
ARROW_ROWS = 5000
ARCHIVE_SECONDS = 120.0
# On a small heap its pauses are short, and rows cost less than with the JVM's own choice.
_COLLECTOR = "-XX:+UseParallelGC"


@dataclass(frozen=True)
class Spark:
    session: SparkSession
    filesystem: str
    sockets: str
    _sources: set[type[DataSource]] = field(default_factory=set)

    def register(self, source: type[DataSource]) -> None:
        """Once per session: Spark starts a Python process for it, every time."""
        if source not in self._sources:
            self.session.dataSource.register(source)
            self._sources.add(source)

    @property
    def cores(self) -> int:
        return self.session.sparkContext.defaultParallelism

    def stop(self) -> None:
        self.session.stop()


def _environment(scratch: Path, java_home: Path, home: Path) -> dict[str, str]:
    return {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(scratch / "local"),
        "SPARK_WORKER_DIR": str(scratch / "worker"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONHASHSEED": "0",
    }


def _java_options(scratch: Path, fast_start: bool, classes: Sequence[str]) -> str:
    log4j2 = resources.files("trunkline.pipeline").joinpath("jvm", "log4j2.properties")
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] if fast_start else [_COLLECTOR]
    files = [f"-Dlog4j2.configurationFile={log4j2}", f"-Djava.io.tmpdir={scratch / 'tmp'}"]
    return " ".join(f'"{option}"' for option in (*quick, *classes, *files))


def _settings(scratch: Path, cores: int, files: LocalFiles, java_options: str) -> Mapping[str, str]:
    return {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": java_options,
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
    java = _java()
    return _open(scratch, name, java, _java_options(scratch, fast_start, java.archive.use()))


def make_archive(scratch: Path, trial: Callable[[Spark], None]) -> bool:
    """Makes the class archive of this installation by a session that does `trial`; False if there is one."""
    java = _java()

    def run(options: list[str]) -> None:
        spark = _open(scratch, "trial", java, _java_options(scratch, True, options))
        trial(spark)
        spark.stop()
        gateway: Any = SparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends when nobody can speak to it any more
        gateway.proc.wait(ARCHIVE_SECONDS)

    return java.archive.make(run)


@dataclass(frozen=True)
class _Java:
    home: Path
    spark_home: Path
    files: LocalFiles
    archive: Archive


def _java() -> _Java:
    home, spark = find_java(), spark_home()
    files = local_files(home, installed() / "jars")
    return _Java(home, spark, files, archive_for(spark, home, files.settings.get("spark.driver.extraClassPath", "")))


def _open(scratch: Path, name: str, java: _Java, java_options: str) -> Spark:
    for folder in ("local", "worker", "tmp", "sockets"):
        (scratch / folder).mkdir(parents=True, exist_ok=True)
    os.environ.update(_environment(scratch, java.home, java.spark_home))
    cores = os.cpu_count() or 1
    conf = SparkConf().setMaster(f"local[{cores}]").setAppName(name)
    conf.setAll(list(_settings(scratch, cores, java.files, java_options).items()))
    context = SparkContext(conf=conf, gateway=_gateway(conf))
    sockets = "unix" if _socket_settings(scratch) else "tcp: the path is too long"
    return Spark(SparkSession(context), java.files.description, sockets)


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
