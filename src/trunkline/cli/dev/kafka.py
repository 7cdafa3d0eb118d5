"""A real Kafka: one process that is broker and controller (KRaft), on loopback, in a folder of its own.

What is the same for every broker is made once per machine, in the cache folder beside the jars: the two files of a formatted
folder, and an archive of the classes (AppCDS), without which a start takes far longer. Topics and cluster id stay
over `stop` and `kill`.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4

from trunkline.cli.dev.child import last_lines
from trunkline.cli.dev.debian import Say, quiet
from trunkline.cli.dev.jars import KAFKA, fetch, kafka_folder
from trunkline.cli.dev.ports import is_listening
from trunkline.cli.dev.server import Server
from trunkline.core.errors import Terminal
from trunkline.pipeline.archive import Archive, archive_for
from trunkline.pipeline.cache import locked
from trunkline.pipeline.java import find_java

_META, _FEATURES = "meta.properties", "bootstrap.checkpoint"
_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms64m", "-Xmx256m")

# A killed broker is missed after its session's time, and only then may it come back.
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # The indexes of every partition are mapped files of this size: with 10 MiB each, as is usual, thousands of partitions keep
    # the kernel busy filling pages with zeros.
    "log.index.size.max.bytes": "65536",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.backoff.ms": "500",
}

_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
)


@dataclass(frozen=True)
class Installed:
    """Kafka on this machine: its jars and the Java that runs them."""

    java: Path
    class_path: str
    archive: Archive

    @property
    def formatted(self) -> Path:
        return kafka_folder() / "formatted"

    @property
    def no_archive(self) -> Path:
        """Says that this Java writes none: asked once, not at every start."""
        return self.archive.file.with_suffix(".none")

    def complete(self) -> bool:
        return self.formatted.exists() and (self.archive.file.exists() or self.no_archive.exists())

    def words(self, *options: str) -> list[str]:
        return [str(self.java), *_JVM, *options, *_LOGGING, "-cp", self.class_path]


class KafkaBroker(Server):
    title = "the Kafka broker"
    port_count = 2

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, say: Say = quiet) -> None:
        super().__init__(folder, say)
        self.settings = dict(settings or {})
        self._words: list[str] = []

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def address(self) -> str:
        return self.bootstrap

    def prepare(self) -> None:
        installed = install(self._say)
        self._format(installed.formatted)
        self._words = installed.words(*installed.archive.use())

    def words(self) -> list[str]:
        return [*self._words, "kafka.Kafka", str(self.folder / "server.properties")]

    def answers(self) -> bool:
        return is_listening(self.ports[0]) and _serves(self.bootstrap)

    def _format(self, formatted: Path) -> None:
        data = self.folder / "data"
        if not (data / _META).exists():
            data.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(formatted / _FEATURES, data / _FEATURES)
            _write_meta((formatted / _META).read_text(), data / _META)
        _configure(self.folder, self.ports, self.settings)


class _Trial(KafkaBroker):
    """A broker from its start to its own clean end, at which Java writes the archive."""

    def __init__(self, folder: Path, installed: Installed, options: list[str]) -> None:
        super().__init__(folder)
        self._installed, self._options = installed, options

    def prepare(self) -> None:
        self._format(self._installed.formatted)
        self._words = self._installed.words(*self._options)

    @classmethod
    def run(cls, installed: Installed, folder: Path, options: list[str]) -> None:
        with cls(folder, installed, options):
            pass


def install(say: Say = quiet) -> Installed:
    """What is made once per machine: jars, formatted files, archive of classes."""
    installed = _found(find_java(), fetch(say))
    with locked("kafka"):
        if not installed.complete():
            say("preparing Kafka: formatted files and an archive of its classes (once, about 10 s)")
            with tempfile.TemporaryDirectory(dir=kafka_folder(), prefix="trial-") as trial:
                _complete(installed, Path(trial))
    return installed


@cache
def _found(java_home: Path, jars: Path) -> Installed:
    class_path = ":".join(sorted(str(jar) for jar in jars.glob("*.jar")))
    return Installed(java_home / "bin" / "java", class_path, archive_for(kafka_folder(), java_home, class_path))


def _complete(installed: Installed, trial: Path) -> None:
    if not installed.formatted.exists():
        _format_with_tool(installed, trial).rename(installed.formatted)
    try:
        installed.archive.make(lambda options: _Trial.run(installed, trial / "broker", options))
    except Terminal:
        installed.no_archive.touch()


def _format_with_tool(installed: Installed, folder: Path) -> Path:
    _configure(folder, [9092, 9093], {})  # nobody listens; the tool wants a whole configuration
    words = ["kafka.tools.StorageTool", "format", "-t", _fresh_id(), "-c", str(folder / "server.properties")]
    done = subprocess.run([*installed.words(), *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = last_lines(done.stdout + done.stderr)
        raise Terminal(f"formatting for Kafka {KAFKA}", why, f"rm -r {kafka_folder()}, and try again")
    return folder / "data"


def _configure(folder: Path, ports: list[int], settings: Mapping[str, str]) -> None:
    own, quorum = (f"127.0.0.1:{port}" for port in ports)
    lines = {
        **_SETTINGS,
        "log.dir": str(folder / "data"),
        "listeners": f"PLAINTEXT://{own},CONTROLLER://{quorum}",
        "advertised.listeners": f"PLAINTEXT://{own}",
        "controller.quorum.voters": f"1@{quorum}",
        **settings,
    }
    (folder / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))


def _write_meta(text: str, file: Path) -> None:
    """Each broker is a cluster of its own. The file appears last and whole: with it the folder counts as formatted."""
    lines = [f"cluster.id={_fresh_id()}" if line.startswith("cluster.id=") else line for line in text.splitlines()]
    draft = file.with_suffix(".draft")
    draft.write_text("\n".join([*lines, ""]))
    draft.replace(file)


def _fresh_id() -> str:
    return urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")


def _serves(bootstrap: str) -> bool:
    """A broker that its controller lets take part is in its own answer."""
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError:
        raise Terminal(
            "Kafka's client", "the package confluent-kafka is not installed", "pip install confluent-kafka"
        ) from None
    try:
        return bool(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=2).brokers)
    except KafkaException:
        return False
