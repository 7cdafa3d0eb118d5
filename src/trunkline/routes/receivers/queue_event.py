"""What an entry of a receive queue is as an event, wherever it is read."""

from __future__ import annotations

from typing import Any

from trunkline.queues.kinds import Kind
from trunkline.queues.reader import Received
from trunkline.routes.event import Event, Source
from trunkline.routes.keys import Tenant
from trunkline.routes.receivers.reading import read_or_text

KINDS = {Kind.LOG_ENTRY: "log", Kind.SNAPSHOT: "snapshot"}
"""The kinds that are events; the others mark where a snapshot begins and ends, and what is lost."""


def queue_event(client: str, entry: Received, tenant: Tenant, at: float) -> Event:
    payload, is_json = read_or_text(entry.payload)
    about: dict[str, Any] = {
        "client": client, "source": entry.source, "id": entry.message_id, "kind": KINDS[entry.kind], "headers": entry.headers,
    }  # fmt: skip
    return Event(payload, {"queue": about if is_json else {**about, "text": True}}, Source(entry.message_id, tenant, "", at))
