"""Folders that are looked at again and again, at any address that pyarrow can open."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
import structlog
from pyarrow import fs

from trunkline.core.backoff import Backoff

LOOK_SECONDS = 0.5
_SHARE = 10  # looking takes at most a tenth of the time: a folder that takes a second to list is looked at every ten
_HIDDEN = (".", "_")  # such files are still being written

log = structlog.get_logger(__name__)


class Version(msgspec.Struct, frozen=True):
    """`modified`: in unix nanoseconds, 0 where nobody knows."""

    size: int
    modified: int


Listing = dict[str, Version]
"""By path, as the file system calls it."""


@lru_cache(256)
def opened(address: str) -> tuple[Any, str]:
    """The file system, and what it calls the folder; raises OSError or an ArrowException."""
    system, path = fs.FileSystem.from_uri(address)
    return system, path


def versions(system: Any, paths: Iterable[str]) -> Listing:
    """Of those that are there."""
    found = system.get_file_info(list(paths))
    return {info.path: _version(info) for info in found if info.type == fs.FileType.File}


class Folder:
    """`listing`: what the last look showed; empty while it cannot be listed (`here`). `looks`: how many showed something."""

    def __init__(self, address: str, pattern: str, now: Callable[[], float] = time.monotonic) -> None:
        self._address, self._pattern, self._now = address, pattern, now
        self._backoff = Backoff(LOOK_SECONDS, 30.0, random.random)
        self._next = 0.0
        self._said = ""
        self.listing: Listing = {}
        self.looks = 0
        self.here = False

    def look(self) -> bool:
        """Whether it was time to."""
        begun = self._now()
        if begun < self._next:
            return False
        try:
            self.listing = self._listed()
        except (OSError, pa.ArrowException) as error:
            self.listing, self.here = {}, False
            self._next = begun + self._backoff.after_failure()
            self._warn(f"it cannot be listed: {' '.join(str(error).split())}")
            return True
        self.looks, self.here = self.looks + 1, True
        self._backoff.success()
        self._next = begun + max(LOOK_SECONDS, _SHARE * (self._now() - begun))
        return True

    def _listed(self) -> Listing:
        system, path = opened(self._address)
        found: Listing = {}
        strange = 0
        for info in system.get_file_info(fs.FileSelector(path)):
            try:
                name = info.base_name
                if info.type == fs.FileType.File and not name.startswith(_HIDDEN) and fnmatchcase(name, self._pattern):
                    found[info.path] = _version(info)
            except UnicodeError:
                strange += 1
        self._warn(f"{strange} of its files have names that are no text" if strange else "")
        return found

    def _warn(self, reason: str) -> None:
        """Once, until it changes."""
        if reason and reason != self._said:
            log.warning("a folder is not read as a whole", pattern=self._pattern, reason=reason)
        self._said = reason


def _version(info: Any) -> Version:
    return Version(info.size or 0, info.mtime_ns or 0)
