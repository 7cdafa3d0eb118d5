"""What kinds of records a receive queue holds, and how each is named for ever."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    LOG_ENTRY = 1
    SNAPSHOT = 2
    LAST = 3
    """The snapshot is complete; log entries follow."""
    START = 4
    """A snapshot begins: whatever an unfinished one before it brought does not count."""
    LOST = 5
    """Entries are missing here for ever; the header `trunkline-lost` says which: "first-last"."""


def message_id(source: str, seq: int, index: int, request: str | None = None) -> str:
    """The same for the same record, however often it is delivered. Log entries have index 0 and no request."""
    return f"{source}/{seq}/{index}" if request is None else f"{source}/{request}/{index}"
