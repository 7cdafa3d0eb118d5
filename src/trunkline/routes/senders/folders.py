"""Folders below a given one, by what events say: never outside of it."""

from __future__ import annotations

import os
from pathlib import Path

from trunkline.core.errors import Invalid

MOST_BYTES = 200  # of one name: a file system takes 255


def check_folder(what: str, text: str) -> str:
    """The folder as it is written, if it is a way down."""
    parts = text.split("/") if text else []
    if any(part in ("", ".", "..") or part.startswith(".") for part in parts):
        raise Invalid(what, f"the folder {text!r} is no way down", "send an event whose values are plain names")
    if any(len(part.encode()) > MOST_BYTES for part in parts):
        raise Invalid(what, f"a name in the folder {text[:40]!r}… is too long", "send an event with shorter values")
    return text


def made_folder(top: Path, folder: str) -> Path:
    """Made if it is not there. A link inside may lead elsewhere: that is refused."""
    path = top / folder
    path.mkdir(parents=True, exist_ok=True)
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(top)):
        raise Invalid(f"folder {folder!r}", "a link leads out of it", "remove the link")
    return path


def fsync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
