"""A folder of this process alone, and the end of those that dead processes left."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import IO

_PREFIX = "spark-"


class Scratch:
    """Alive is who holds the lock of its folder: a lock ends with its process, however that ends."""

    def __init__(self, runtime: Path) -> None:
        self._runtime = runtime
        self.folder = (runtime / f"{_PREFIX}{os.getpid()}").absolute()
        self._lock: IO[str] | None = None

    def __enter__(self) -> Path:
        self._runtime.mkdir(parents=True, exist_ok=True)
        for left in self._runtime.glob(f"{_PREFIX}*"):
            lock = _try_lock(left)
            if lock is not None:
                shutil.rmtree(left, ignore_errors=True)
                lock.close()
        unlocked = self._runtime / f".{self.folder.name}"
        unlocked.mkdir()
        self._lock = _try_lock(unlocked)
        unlocked.rename(self.folder)
        return self.folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


def _try_lock(folder: Path) -> IO[str] | None:
    try:
        lock = (folder / ".lock").open("w")
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock
