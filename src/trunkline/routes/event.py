"""What runs through a route, and what comes out of it."""

from __future__ import annotations

from typing import Any

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON value with metadata beside it. Nobody changes either in place: filters make new events and share parts."""

    payload: Any
    metadata: dict[str, Any] = {}
    entered: Event | None = None

    @property
    def origin(self) -> Event:
        """The event as it entered the chain, whatever the filters made of it since."""
        return self.entered or self

    def with_content(self, payload: Any, metadata: dict[str, Any]) -> Event:
        return Event(payload=payload, metadata=metadata, entered=self.origin)


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One message for the send queue: the sender's interface ends here, writing it is the runner's work."""

    route_id: str
    client: str
    destinations: tuple[str, ...]
    headers: dict[str, str]
    payload: bytes
