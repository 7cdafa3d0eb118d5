"""What the tables say of sessions and of snapshot requests, as the two halves of a session read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trunkline.core.ids import START, Position

SessionState = Literal["new", "snapshot", "log"]
RequestState = Literal["wanted", "ready", "providing", "complete"]


@dataclass(frozen=True)
class SessionRow:
    """One row of queues.session."""

    origin: str
    client: str
    log_id: str = ""
    position: Position = START
    state: SessionState = "new"
    reason: str = "first"
    request: str = ""
    """In state snapshot the one under way, in state log the last one that was completed."""
    forced: bool = False
    base: Position = START
    chunk: int = 0
    """The next one to store."""
    completed_at: float | None = None
    """Unix seconds."""


@dataclass(frozen=True)
class RequestRow:
    """One open row of queues.request, and who still waits for it."""

    id: str
    client: str
    waiting: tuple[str, ...]
    """Its destinations without those it was delivered to."""
    state: RequestState = "wanted"
    forced: bool = False
    base: Position = START
    chunks: int = 0
    reason: str = ""
    reapplied_to: int = 0
    """Entries up to this one may be in it already; 0: none after its base."""

    @property
    def usable(self) -> bool:
        """There is something to fetch. Before that, a session that takes log entries goes on taking them."""
        return self.state == "complete" or self.chunks > 0
