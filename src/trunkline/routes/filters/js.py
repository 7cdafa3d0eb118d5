"""js: a script decides what becomes of an event. Where one expression does, `expr` is many times quicker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from pydantic import Field

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps, loads
from trunkline.routes.event import Event
from trunkline.routes.fields import RouteModel
from trunkline.routes.filters.js_host import Script, check, run
from trunkline.routes.filters.kinds import kind
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin


class JsConfig(RouteModel):
    """Runs a script over each event: the body of a strict JavaScript function (ES2020). It finds the event as `_.event`, with
    `payload` and `metadata`, and both also as `_.payload` and `_.metadata`.

    It returns null, or nothing, to drop the event; an event, that is an object with `payload` and perhaps `metadata` (without,
    the old stays); or an array of them, to split it. Anything else, and whatever it throws, is a fault.

    `_.now()` is the time as a text in ISO 8601, `_.nowms()` in milliseconds, `_.esc(text)` escapes for a URL's query; `_.log`,
    `_.logInfo` and `_.logError` write a line to the log. Nothing stays from one event to the next."""

    source: str = Field(min_length=1, description="the script", examples=["_.payload.tag = 'seen'; return _.event;"])
    time_limit: float = Field(
        default=1.0, ge=0.01, le=60, description="seconds after which it is cut off, for each event; a margin included"
    )
    memory_limit: int = Field(default=32, ge=2, le=1_024, description="megabytes that it may use")


class _Unusable(Exception):
    """What a script returned is not an event."""


_keys = count(1)


def compile_js(config: JsConfig, around: Around) -> Filter:
    script = Script(next(_keys), config.source, config.time_limit, config.memory_limit << 20)
    if why := check(script):
        raise Invalid("script", why, "mend it; it is the body of a JavaScript function")

    def js(batch: list[Event], faults: Faults) -> list[Event]:
        texts = [dumps({"payload": event.payload, "metadata": event.metadata}) for event in batch]
        out: list[Event] = []
        for event, answer in zip(batch, run(script, texts, around.now()), strict=True):
            try:
                out += _READ[answer[:1]](event, loads(answer[1:]), around)
            except (_Unusable, Invalid) as error:
                faults.add(event, str(error))
        return out

    return js


def _returned(event: Event, value: Any, around: Around) -> list[Event]:
    if value is None:
        return []
    if isinstance(value, list):
        return [_made(event, element) for element in value]
    return [_made(event, value)]


def _made(event: Event, value: Any) -> Event:
    if not isinstance(value, dict):
        raise _Unusable(f"it returned {kind(value)}; an event is {{payload, metadata}}, null drops it")
    if "payload" not in value:
        raise _Unusable("it returned an object without payload; an event is {payload, metadata}")
    metadata = value.get("metadata")
    if metadata is None:
        return event.with_content(value["payload"], event.metadata)
    if not isinstance(metadata, dict):
        raise _Unusable(f"it returned {kind(metadata)} as metadata; that is a map")
    return event.with_content(value["payload"], metadata)


def _logged(event: Event, value: Any, around: Around) -> list[Event]:
    returned, lines = value
    for level, text in lines:
        around.log({"level": level, "message": text})
    return _returned(event, returned, around)


def _failed(event: Event, value: Any, around: Around) -> list[Event]:
    raise _Unusable(value)


_READ: Mapping[bytes, Callable[[Event, Any, Around], list[Event]]] = {b"R": _returned, b"L": _logged, b"E": _failed}

JS = FilterPlugin("js", JsConfig, compile_js, blocking=True, heavy=True)
