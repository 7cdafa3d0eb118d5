"""Spark's classes as a shared archive (AppCDS): read once from its jars, mapped into memory by every later start.

1. The archive is made by a trial run (`prepare`), which loads what a pipeline loads and dumps it when its JVM ends. It takes
   the time of a slow start, once per installation; without it everything runs, only later.
2. An archive fits one Java, one set of jars, to the time they were written, and one class path. All three are in its name; a
   JVM that does not like it goes on without (-Xshare:auto), and says nothing.
3. It appears under its name whole or not at all, and takes the place of those before it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trunkline.core.errors import Terminal


@dataclass(frozen=True)
class Archive:
    file: Path

    @property
    def draft(self) -> Path:
        return self.file.with_suffix(f".{os.getpid()}")

    def use(self) -> list[str]:
        """Options of a JVM that starts from it; none while there is none."""
        if not self.file.exists():
            return []
        return ["-Xshare:auto", "-Xlog:cds*=off", f"-XX:SharedArchiveFile={self.file}"]

    def make(self, trial: Callable[[list[str]], None]) -> bool:
        """`trial` runs a JVM with these options to its very end. False if it was there already."""
        if self.file.exists():
            return False
        self.draft.unlink(missing_ok=True)
        trial([f"-XX:ArchiveClassesAtExit={self.draft}", "-Xlog:disable"])
        if not self.draft.exists():
            raise Terminal("class archive", "this Java did not write one", "none: it starts without, some seconds later")
        self.draft.replace(self.file)
        for former in set(self.file.parent.glob("classes-*.jsa")) - {self.file}:
            former.unlink(missing_ok=True)
        return True


def archive_for(home: Path, java_home: Path, class_path: str) -> Archive:
    found = ((jar.name, jar.stat()) for jar in (home / "jars").iterdir())
    jars = sorted(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in found)
    words = "\n".join([_version(java_home), str(java_home), class_path, *jars])
    return Archive(home / f"classes-{hashlib.blake2b(words.encode(), digest_size=8).hexdigest()}.jsa")


def _version(java_home: Path) -> str:
    """Without the notes a `java` prints about its environment."""
    done = subprocess.run([str(java_home / "bin" / "java"), "-version"], capture_output=True, text=True, check=False)
    return "\n".join(line for line in done.stderr.splitlines() if not line.startswith("NOTE: "))
