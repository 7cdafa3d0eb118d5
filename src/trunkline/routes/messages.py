"""What a sender is given, as people read and write it: JSON, with a payload as what it holds and not as its bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads
from trunkline.routes.event import Event, Outgoing


def shown_message(message: Any) -> dict[str, Any]:
    """`payload` and what else the plugin sends: metadata of an event, client, destinations and headers of a queue's message."""
    if isinstance(message, Event):
        return {"payload": message.payload, "metadata": message.metadata}
    if isinstance(message, Outgoing):
        return {
            "payload": _content(message.payload),
            "client": message.client,
            "destinations": list(message.destinations),
            "headers": dict(message.headers),
        }
    found = msgspec.to_builtins(message, enc_hook=str)
    return found if isinstance(found, dict) else {"payload": found}


def _content(payload: bytes) -> Any:
    try:
        return loads(payload, "payload")
    except Invalid:
        return payload.decode(errors="replace")
