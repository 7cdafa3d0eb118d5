"""Spark's local files without a child process for each: our class where a javac is there, else the next best.

The wheel has no native Hadoop library, so every checkpoint file would fork `chmod`. The class is compiled once per
version of its source and of Hadoop, into a jar, for a folder on the class path would forbid a shared archive of classes.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from trunkline.pipeline.cache import locked
from trunkline.pipeline.java import OLDEST

_CLASS = "io.trunkline.ForklessFileSystem"
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@dataclass(frozen=True)
class LocalFiles:
    description: str
    settings: Mapping[str, str]


def _javac(java_home: Path) -> str | None:
    beside = java_home / "bin" / "javac"
    return str(beside) if beside.exists() else shutil.which("javac")


def _compile(javac: str, jars: Path) -> Path | None:
    """The jar with the compiled class; None when this javac cannot make it."""
    source = resources.files("trunkline.pipeline").joinpath("jvm", "ForklessFileSystem.java").read_bytes()
    hadoop = sorted(str(jar) for jar in jars.glob("hadoop-client-*.jar"))
    mark = hashlib.blake2b(source + "\n".join(Path(j).name for j in hadoop).encode(), digest_size=8).hexdigest()
    with locked("jvm") as folder:
        jar = folder / f"{mark}.jar"
        if jar.exists():
            return jar
        with tempfile.TemporaryDirectory(dir=folder) as fresh:
            return _make_jar(javac, Path(fresh), source, hadoop, jar)


def _make_jar(javac: str, fresh: Path, source: bytes, hadoop: list[str], jar: Path) -> Path | None:
    (fresh / "ForklessFileSystem.java").write_bytes(source)
    command = [javac, "-nowarn", "--release", str(OLDEST), "-cp", ":".join(hadoop), "-d", str(fresh)]
    done = subprocess.run([*command, str(fresh / "ForklessFileSystem.java")], capture_output=True, check=False)
    if done.returncode != 0:
        return None
    with zipfile.ZipFile(fresh / jar.name, "w") as packed:
        for found in sorted(fresh.rglob("*.class")):
            packed.write(found, found.relative_to(fresh))
    return (fresh / jar.name).rename(jar)


def local_files(java_home: Path, jars: Path) -> LocalFiles:
    javac = _javac(java_home)
    jar = _compile(javac, jars) if javac else None
    if jar is None:
        return LocalFiles(
            "RawLocalFs of Hadoop (a javac would make a batch 60 ms faster)",
            {"spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs"},
        )
    return LocalFiles(
        "ForklessFileSystem",
        {
            "spark.driver.extraClassPath": str(jar),
            "spark.hadoop.fs.file.impl": _CLASS,
            "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        },
    )
