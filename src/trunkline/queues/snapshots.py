"""The states of a snapshot request, and a piece of its data. Pure."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class State(StrEnum):
    WANTED = "wanted"
    """Destinations may join it; it has no base yet."""
    READY = "ready"
    """It has a base and an exported snapshot, and waits for its provider."""
    PROVIDING = "providing"
    COMPLETE = "complete"
    """All its data is here; destinations fetch it."""
    DONE = "done"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    FAILED = "failed"


OPEN = (State.WANTED, State.READY, State.PROVIDING, State.COMPLETE)
EXPORTED = (State.READY, State.PROVIDING)
"""The leader holds its snapshot: a provider says first that it has it, and reads it a moment later."""


class StoredChunk(msgspec.Struct, frozen=True):
    """`body` is None where that chunk is not there, or not yet; `last` says that none will come."""

    body: bytes | None
    last: bool = False
