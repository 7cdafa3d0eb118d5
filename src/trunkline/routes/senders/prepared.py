"""What messages are made of: texts that came out of templates, and payloads as JSON. `Invalid` for an event without them."""

from __future__ import annotations

from typing import Any

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps
from trunkline.routes.paths import as_text


def text_of(what: str, value: Any) -> str:
    """What a template gave as a text."""
    text = as_text(value)
    if value is None or "\0" in text:
        why = "the event has no value for it" if value is None else "its value holds a NUL character"
        raise Invalid(what, why, "send an event with the field its template names")
    return text


def json_of(what: str, value: Any) -> str:
    """A filter may have made what JSON has no words for."""
    try:
        return dumps(value).decode()
    except TypeError as error:
        raise Invalid(what, f"not JSON: {error}", "make it of texts, numbers, lists and maps") from None
