"""The cache folder: what is made once per machine and may be deleted at any time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """$TRUNKLINE_CACHE, or `trunkline` in the user's cache folder."""
    own = os.environ.get("TRUNKLINE_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME")
    folder = Path(own) if own else (Path(shared) if shared else Path.home() / ".cache") / "trunkline"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(name: str) -> Iterator[Path]:
    """The folder `name` of the cache, held by one process at a time."""
    folder = cache_folder() / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
