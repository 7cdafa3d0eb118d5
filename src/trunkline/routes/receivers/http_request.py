"""One request to a server of a route's own: what of it becomes the event, and what is wrong with it.

What somebody proves with who they are is never metadata.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from typing import Any

from trunkline.routes.ends import Place
from trunkline.routes.event import Event, Source
from trunkline.routes.receivers.http import HttpReceiverConfig
from trunkline.routes.receivers.reading import read_event

_SECRET = frozenset({"authorization", "cookie", "proxy-authorization"})
_B3 = re.compile(r"[0-9a-f]{16}|[0-9a-f]{32}")
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")
_WITHOUT_BODY = ("GET", "DELETE")


def fits(config: HttpReceiverConfig, path: str) -> bool:
    return not config.path or path == config.path or (config.path.endswith("/") and path.startswith(config.path))


def event_of(config: HttpReceiverConfig, place: Place, scope: dict[str, Any], body: bytes) -> Event:
    """Raises `Invalid` for what is not JSON."""
    headers = _headers(scope["headers"])
    about = {
        "path": config.path,
        "relativePath": scope["path"].removeprefix(config.path),
        "method": scope["method"],
        "query": scope["query_string"].decode("latin-1"),
    }
    payload = None if not body and config.method in _WITHOUT_BODY else read_event(body)
    source = Source(uuid.uuid4().hex, place.tenant, trace_of(headers), place.clock.wall())
    return Event(payload, {**headers, "http": about}, source)


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
    named = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in pairs)
    return {name: value for name, value in named if name not in _SECRET}


def trace_of(headers: dict[str, Any]) -> str:
    b3, parent = headers.get("x-b3-traceid", "").lower(), _TRACE_PARENT.fullmatch(headers.get("traceparent", ""))
    return b3 if _B3.fullmatch(b3) else parent[1] if parent else ""
