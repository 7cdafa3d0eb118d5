"""Runs one filter over a batch."""

from __future__ import annotations

from trunkline.routes.event import Event
from trunkline.routes.plugin import Filter


class Told:
    """Faults, as they were told."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.events: list[Event] = []

    def add(self, event: Event, reason: str) -> None:
        self.events.append(event)
        self.reasons.append(reason)


def run(filter: Filter, batch: list[Event]) -> tuple[list[Event], Told]:
    told = Told()
    return filter(batch, told), told


def applied(filter: Filter, batch: list[Event]) -> list[Event]:
    """Where nothing may be refused."""
    out, told = run(filter, batch)
    assert told.reasons == []
    return out
