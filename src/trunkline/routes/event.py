"""What runs through a route, and what comes out of it."""

from __future__ import annotations

from typing import Any

import msgspec

from trunkline.routes.keys import HOUSE, Tenant


class Source(msgspec.Struct, frozen=True):
    """Where an event came from: the same for all that becomes of it. `at`: when it came in, in unix seconds."""

    id: str = ""
    tenant: Tenant = HOUSE
    trace_id: str = ""
    at: float = 0.0


UNKNOWN = Source()


class Event(msgspec.Struct, frozen=True):
    """A JSON value with metadata beside it. Nobody changes either in place: filters make new events and share parts.

    `entered`: the events as they entered the chain that this one was made of; none if it is such a one itself."""

    payload: Any
    metadata: dict[str, Any] = {}
    source: Source = UNKNOWN
    entered: tuple[Event, ...] = ()

    @property
    def origin(self) -> Event:
        """The event as it entered the chain, whatever the filters made of it since; the first, if it was made of several."""
        return self.entered[0] if self.entered else self

    def with_content(self, payload: Any, metadata: dict[str, Any]) -> Event:
        return Event(payload, metadata, self.source, self.entered or (self,))


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One message for the send queue: the sender's interface ends here, writing it is the runner's work."""

    client: str
    destinations: tuple[str, ...]
    headers: dict[str, str]
    payload: bytes
