"""One thing that was looked at: what was found, and the command that mends it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from trunkline.core.config import ProcessConfig


class Verdict(StrEnum):
    OK = "ok"
    NOTE = "note"  # it works without, but slower, or not all of it
    MISSING = "missing"  # something that this installation is meant for does not work


@dataclass(frozen=True)
class Finding:
    name: str
    verdict: Verdict
    found: str
    mend: str = ""


@dataclass(frozen=True)
class Subject:
    """What is examined: this machine and, where one was given, the configuration of a process."""

    folder: Path
    config: ProcessConfig | None = None


def ok(name: str, found: str) -> Finding:
    return Finding(name, Verdict.OK, found)


def note(name: str, found: str, mend: str) -> Finding:
    return Finding(name, Verdict.NOTE, found, mend)


def missing(name: str, found: str, mend: str) -> Finding:
    return Finding(name, Verdict.MISSING, found, mend)


def apt(package: str) -> str:
    return f"{'' if os.geteuid() == 0 else 'sudo '}apt-get install -y {package}"
