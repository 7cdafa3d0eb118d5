"""What comes in as bytes, as the JSON that it should be."""

from __future__ import annotations

from typing import Any

from trunkline.core.depth import MAX_DEPTH, deeper_than
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads


def read_event(data: bytes) -> Any:
    """`Invalid` for what no filter could walk, too."""
    value = loads(data, "event")
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and deeper_than(MAX_DEPTH, value):
        raise Invalid("event", f"it is nested deeper than {MAX_DEPTH}", "make it flatter")
    return value


def read_or_text(data: bytes) -> tuple[Any, bool]:
    """The value, or the text as it is; and whether it is JSON."""
    try:
        return read_event(data), True
    except Invalid:
        return data.decode(errors="replace"), False
