"""What people see of a session, at either end: where it is, how far, and why it does not go on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class SyncType(StrEnum):
    SNAPSHOT = "SNAPSHOT"
    LOG_ENTRY = "LOG_ENTRY"


class SyncStatus(StrEnum):
    NOT_STARTED = "NOT_STARTED"
    ONGOING = "ONGOING"
    COMPLETED = "COMPLETED"
    STOPPED = "STOPPED"
    ERROR = "ERROR"


@dataclass(frozen=True)
class SessionStatus:
    role: Literal["source", "sink"]
    remote: str
    client: str
    connection: str
    """A source's: the state of its connection. A sink's: whether there is a way to the origin."""
    state: str
    type: SyncType
    status: SyncStatus
    snapshot: SyncStatus = SyncStatus.NOT_STARTED
    """Of the snapshot under way, or of the last one; so are base, request, forced and completed_at."""
    base: int | None = None
    request: str = ""
    forced: bool = False
    completed_at: float | None = None
    """Unix seconds."""
    sent: int | None = None
    acknowledged: int | None = None
    applied: int | None = None
    remaining: int | None = None
    consistent: bool | None = None
    """A sink's: the queue holds a whole snapshot and what follows it, and not a part of one."""
    stall: str = ""
    """Why it does not go on; empty when it does."""


def queue_name(client: str, remote: str) -> str:
    return f"LRQ_Recv_{client.replace('_', '__')}_{remote.replace('_', '__')}"


def since(text: str, seconds: float) -> str:
    return f"{text} since {max(0, int(seconds))} s"


def no_way(site: str) -> str:
    return f"no way to site {site}"


def provider_awaited(client: str, seconds: float) -> str:
    return since(f"waits for the provider of {client}", seconds)


def no_provider(client: str) -> str:
    return f"waits for a provider of {client}: none is registered"


def retry_awaited(client: str, seconds: float) -> str:
    return f"the snapshot of {client} failed; the next one is asked for in {max(1, round(seconds))} s"
