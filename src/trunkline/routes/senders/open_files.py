"""A file that grows under a name of its own, and appears under its real one when it is complete.

P1  A line counts when it was forced to the disk. What a failed write left behind it is cut off; a file that cannot be mended
    is left as it is.
P2  While it grows, whoever writes it has it locked. A lock ends with its process: so a file that nobody has locked was left
    behind, and any sender of the same plugin completes it, without the line that was being written. Lines that nobody was told
    of may be in it; they are sent again.
P3  Its name carries the plugin, the instance and a random part: two that write into one folder never take the same.
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

from trunkline.routes.senders.folders import fsync_folder

_GROWING = ".part"


def safe(name: str) -> str:
    """The same for the same name, and fit for a file."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:40]
    return plain if plain == name else f"{plain}-{blake2b(name.encode(), digest_size=4).hexdigest()}"


def new_name(plugin: str, instance: str, moment: str, ending: str) -> str:
    return f"{moment}-{safe(plugin)}-{safe(instance)}-{uuid.uuid4().hex[:12]}.{ending}"


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}{_GROWING}")


class GrowingFile:
    def __init__(self, path: Path, since: float) -> None:
        self.path, self.since, self.size = path, since, 0
        self._handle = _locked(_hidden(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        fsync_folder(path.parent)

    def append(self, lines: Sequence[str]) -> None:
        """They are on the disk, or it raises and none of them is in the file."""
        data = memoryview("".join(f"{line}\n" for line in lines).encode())
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._handle, data[written:], self.size + written)
            os.fsync(self._handle)
        except OSError:
            os.ftruncate(self._handle, self.size)
            raise
        self.size += len(data)

    def complete(self) -> None:
        _complete(self.path, self._handle, self.size)

    def abandon(self) -> None:
        os.close(self._handle)


def write_whole(path: Path, data: bytes) -> None:
    """A file of which everything is known."""
    handle = _locked(_hidden(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    view, written = memoryview(data), 0
    try:
        while written < len(view):
            written += os.write(handle, view[written:])
        os.fsync(handle)
    except OSError:
        os.unlink(_hidden(path))
        os.close(handle)
        raise
    _complete(path, handle, len(data))


def complete_left_behind(top: Path, plugin: str) -> None:
    """All that senders of this plugin left behind in the folder and below."""
    for hidden in list(_growing(top, f"-{safe(plugin)}-")):
        try:
            handle = _locked(hidden, os.O_RDWR, wait=False)
        except OSError:
            continue  # somebody writes it, or it is gone
        real = hidden.with_name(hidden.name[1 : -len(_GROWING)])
        _complete(real, handle, _whole_lines(handle) if real.suffix == ".jsonl" else 0)


def _growing(top: Path, of: str) -> Iterator[Path]:
    for folder, _, names in os.walk(top):
        yield from (Path(folder) / name for name in names if name[:1] == "." and name.endswith(_GROWING) and of in name)


def _locked(path: Path, flags: int, wait: bool = True) -> int:
    handle = os.open(path, flags, 0o640)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        if os.fstat(handle).st_ino != os.stat(path).st_ino:
            raise FileNotFoundError(f"{path} was completed by another")
    except OSError:
        os.close(handle)
        raise
    return handle


def _complete(path: Path, handle: int, size: int) -> None:
    """Under its real name with so many bytes; without any it is not worth a file."""
    try:
        if size:
            os.ftruncate(handle, size)
            os.fsync(handle)
            os.rename(_hidden(path), path)
        else:
            os.unlink(_hidden(path))
        fsync_folder(path.parent)
    finally:
        os.close(handle)


def _whole_lines(handle: int) -> int:
    """The bytes up to the end of the last line, looked for from the end."""
    end = os.fstat(handle).st_size
    while end:
        begin = max(0, end - (1 << 16))
        found = os.pread(handle, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
