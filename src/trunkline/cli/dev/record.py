"""What is written down about a service, in its folder, and what it means now."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

from trunkline.cli.dev.identity import Process

_FILE = "service.json"


class State(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    SILENT = "silent"
    FAILED = "failed"
    DEAD = "dead"
    STOPPED = "stopped"
    ABSENT = "absent"


class Record(msgspec.Struct, frozen=True):
    """Written by the service's keeper. A folder without one is not ours."""

    state: State
    keeper: Process
    server: Process | None = None
    address: str = ""
    log: str = ""
    reason: str = ""
    seconds: float = 0.0  # that its start took

    def write(self, folder: Path) -> None:
        draft = folder / f"{_FILE}.draft"
        draft.write_bytes(msgspec.json.encode(self))
        draft.replace(folder / _FILE)

    @classmethod
    def read(cls, folder: Path) -> Record | None:
        try:
            return msgspec.json.decode((folder / _FILE).read_bytes(), type=cls)
        except (FileNotFoundError, NotADirectoryError):
            return None


def judge(record: Record, keeper_lives: bool, answers: bool) -> tuple[State, str]:
    """The state now, with its reason: a record may have outlived what it tells of."""
    if record.state not in (State.STARTING, State.RUNNING):
        return record.state, record.reason
    if not keeper_lives:
        return State.DEAD, f"its keeper, process {record.keeper.pid}, was killed, or the machine was started again"
    if record.state is State.STARTING:
        return State.STARTING, "it does not answer yet"
    return (State.RUNNING, "it answers") if answers else (State.SILENT, "its process lives, but does not answer")
