"""What an authority did: one line per certificate issued or revoked, appended and never changed.

1. A certificate is in the ledger before anybody has it, so that whatever exists can be revoked by name.
2. The ledger is the truth, the signed list is made from it. Its number of lines only grows and numbers the lists.
3. A line without its end was cut off by a crash, before its certificate was handed out: the next append removes it.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

import msgspec

from trunkline.core.errors import Invalid

LEDGER = "ledger.jsonl"


class Issued(msgspec.Struct, frozen=True, tag="issued"):
    serial: str
    node: str
    issued_at: datetime.datetime
    expires_at: datetime.datetime


class Revoked(msgspec.Struct, frozen=True, tag="revoked"):
    serial: str
    revoked_at: datetime.datetime


Line: TypeAlias = Issued | Revoked


class State(StrEnum):
    """REPLACED: a newer one was issued to the same node; it is good until it expires all the same."""

    GOOD = "good"
    REPLACED = "replaced"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True)
class Entry:
    issued: Issued
    revoked_at: datetime.datetime | None
    newest: bool

    def state(self, now: datetime.datetime) -> State:
        if self.revoked_at is not None:
            return State.REVOKED
        if self.issued.expires_at <= now:
            return State.EXPIRED
        return State.GOOD if self.newest else State.REPLACED


@dataclass(frozen=True)
class Ledger:
    lines: tuple[Line, ...]

    def entries(self) -> list[Entry]:
        """In the order of issue."""
        revoked = {line.serial: line.revoked_at for line in reversed(self.lines) if isinstance(line, Revoked)}
        issued = [line for line in self.lines if isinstance(line, Issued)]
        newest = {line.node: line.serial for line in issued}
        return [Entry(line, revoked.get(line.serial), newest[line.node] == line.serial) for line in issued]

    def revoked(self) -> dict[int, datetime.datetime]:
        return {int(entry.issued.serial, 16): entry.revoked_at for entry in self.entries() if entry.revoked_at is not None}


_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def read_ledger(folder: Path) -> Ledger:
    path = folder / LEDGER
    try:
        *whole, _ = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return Ledger(())
    return Ledger(tuple(_decode(path, number, line) for number, line in enumerate(whole, start=1)))


def append(folder: Path, lines: Iterable[Line]) -> None:
    """The caller holds the authority's lock."""
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    with os.fdopen(os.open(folder / LEDGER, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        file.seek(file.read().rfind(b"\n") + 1)
        file.truncate()
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _decode(path: Path, number: int, line: bytes) -> Line:
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Invalid(f"{path}:{number}", f"it cannot be read: {error}", "take this file from a backup") from None
