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

from trunkline.core.config import SparkConfig
from trunkline.core.errors import Retryable
from trunkline.pipeline.archive import Archive, archive_for
from trunkline.pipeline.filesystem import LocalFiles, local_files
from trunkline.pipeline.home import installed, spark_home
from trunkline.pipeline.java import find_java
from trunkline.pipeline.noise import quiet_stderr
from trunkline.pipeline.shipped_package import write_package

DRIVER_MEMORY = "1g"
# A query whose planner hangs is left alone with it: what it does afterwards is fenced.
STOP_TIMEOUT = "30s"
ARROW_ROWS = 5000
ARCHIVE_SECONDS = 120.0
# Jobs of the bridge have a share of the cores of their own.
BRIDGE_POOL = "bridge"
ROUTES_POOL = "routes"
# On a small heap its pauses are short, and rows cost less than with the JVM's own choice.
_COLLECTOR = "-XX:+UseParallelGC"


_LOOPBACK = "127.0.0.1"


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
    def master(self) -> str:
        return str(self.session.sparkContext.master)

    @property
    def cores(self) -> int:
        return self.session.sparkContext.defaultParallelism

    def require_running(self) -> None:
        """Its JVM may end without us, for lack of memory for example; then nothing runs here any more."""
        gateway: Any = SparkContext._gateway
        if gateway is not None and gateway.proc.poll() is not None:
            why = f"its JVM has ended with {gateway.proc.returncode}"
            raise Retryable("Spark", why, "start the process anew: it goes on where it was")

    def stop(self) -> None:
        self.session.stop()


def _environment(scratch: Path, java_home: Path, home: Path, is_local: bool) -> dict[str, str]:
    return {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(scratch / "local"),
        "SPARK_WORKER_DIR": str(scratch / "worker"),
        **({"SPARK_LOCAL_IP": _LOOPBACK} if is_local else {}),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONHASHSEED": "0",
    }


def _python_of_executors(config: SparkConfig, package: Path | None) -> dict[str, str]:
    """Spark plans with it on this machine, too, and gives it no packages there."""
    python = config.settings.get("spark.pyspark.python")
    if python is None or package is None:
        return {}
    path = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
    return {"PYSPARK_PYTHON": python, "PYTHONPATH": path}


def _java_options(scratch: Path, fast_start: bool, classes: Sequence[str]) -> str:
    log4j2 = resources.files("trunkline.pipeline").joinpath("jvm", "log4j2.properties")
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] if fast_start else [_COLLECTOR]
    files = [f"-Dlog4j2.configurationFile={log4j2}", f"-Djava.io.tmpdir={scratch / 'tmp'}"]
    return " ".join(f'"{option}"' for option in (*quick, *classes, *files))


def _settings(scratch: Path, cores: int, java_options: str) -> dict[str, str]:
    return {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": java_options,
        "spark.scheduler.mode": "FAIR",
        "spark.sql.streaming.stopTimeout": STOP_TIMEOUT,
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _local_settings(scratch: Path, files: LocalFiles) -> dict[str, str]:
    """What holds on this machine only: executors elsewhere have neither our class, nor our folders, nor our loopback."""
    own = {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}
    return {**own, **files.settings, **_socket_settings(scratch)}


def open_session(scratch: Path, name: str, fast_start: bool = False, config: SparkConfig | None = None) -> Spark:
    """A session with all its files under `scratch`. `fast_start` saves seconds now and costs speed later: for tests."""
    java = _java()
    return _open(scratch, name, java, _java_options(scratch, fast_start, java.archive.use()), config or SparkConfig())


def make_archive(scratch: Path, trial: Callable[[Spark], None]) -> bool:
    """Makes the class archive of this installation by a session that does `trial`; False if there is one."""
    java = _java()

    def run(options: list[str]) -> None:
        spark = _open(scratch, "trial", java, _java_options(scratch, True, options), SparkConfig())
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


def _open(scratch: Path, name: str, java: _Java, java_options: str, config: SparkConfig) -> Spark:
    for folder in ("local", "worker", "tmp", "sockets"):
        (scratch / folder).mkdir(parents=True, exist_ok=True)
    cores = os.cpu_count() or 1
    master = config.master or f"local[{cores}]"
    is_local = master == "local" or master.startswith("local[")
    package = None if is_local else write_package(scratch / "package")
    os.environ.update(_environment(scratch, java.home, java.spark_home, is_local) | _python_of_executors(config, package))
    conf = SparkConf().setMaster(master).setAppName(name)
    ours = _settings(scratch, cores, java_options) | (_local_settings(scratch, java.files) if is_local else {})
    conf.setAll(list({**ours, **config.settings}.items()))
    context = SparkContext(conf=conf, gateway=_gateway(conf))
    if package is not None:
        context.addPyFile(str(package))
    files = java.files.description if is_local else "as Spark has it"
    return Spark(SparkSession(context), files, _sockets(scratch) if is_local else "tcp")


def _sockets(scratch: Path) -> str:
    return "unix" if _socket_settings(scratch) else "tcp: the path is too long"


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
