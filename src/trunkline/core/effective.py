"""The configuration in effect: every setting with its value and where it comes from; and which of its files are too open."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from trunkline.core.config import ProcessConfig, Reading
from trunkline.core.mistakes import Location, Mistake, key_text
from trunkline.core.secret import SCHEME, STARS, Secret

DEFAULT = "default"


@dataclass(frozen=True)
class Setting:
    """`value` is the model's own; printed, a secret in it is a reference or stars."""

    location: Location
    value: Any
    origin: str

    @property
    def key(self) -> str:
        return key_text(self.location)


def settings(config: ProcessConfig, reading: Reading) -> Iterator[Setting]:
    for location, value in _leaves(config, ()):
        yield Setting(location, value, reading.layers.origin(location) or DEFAULT)


def _leaves(value: Any, location: Location) -> Iterator[tuple[Location, Any]]:
    inner: list[tuple[int | str, Any]] = []
    if isinstance(value, BaseModel):
        inner = [(name, getattr(value, name)) for name in type(value).model_fields]
    elif isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, tuple) and any(isinstance(item, BaseModel) for item in value):
        inner = list(enumerate(value))
    for part, leaf in inner:
        yield from _leaves(leaf, (*location, part))
    if not inner:
        yield location, value


def exposures(config: ProcessConfig, reading: Reading, path: Path) -> list[Mistake]:
    """Secrets that other users of the machine can read: no mistakes, but worth a warning."""
    found = []
    for setting in settings(config, reading):
        file, advice = _file_of(setting, reading, path)
        if file is not None and _open_to_others(file):
            place = reading.layers.place(setting.location)
            found.append(Mistake(*place, setting.key, f"others than its owner can read {file}", advice.format(file)))
    return found


def _file_of(setting: Setting, reading: Reading, path: Path) -> tuple[Path | None, str]:
    """The file that gives this secret away if it is open."""
    if setting.location == ("tls", "key"):
        return setting.value, "chmod 600 {}"
    shown = str(setting.value) if isinstance(setting.value, Secret) else ""
    if shown.startswith(SCHEME):
        return reading.references.secret_file(shown), "chmod 600 {}"
    if STARS in shown and setting.location[:2] != ("api", "tokens"):
        return (path, "chmod 600 {}, or write where the secret is: secret://file/path") if _in_file(setting) else (None, "")
    return None, ""


def _in_file(setting: Setting) -> bool:
    return ":" in setting.origin


def _open_to_others(file: Path) -> bool:
    try:
        return bool(file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except (OSError, ValueError):
        return False
