"""log: writes what passes to the log."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from trunkline.core.reasons import Unfit
from trunkline.routes.event import Event
from trunkline.routes.fields import EventPath, RouteModel
from trunkline.routes.paths import as_text, event_path, reader
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin

_OURS = ("tag", "eventId", "traceId")


class LogConfig(RouteModel):
    """Writes one entry to the log for each event, and lets it pass."""

    path: EventPath = Field(default="", description="what is written; empty: payload and metadata")
    tag: str = Field(default="", description="a word to find the entries by")
    log_key: str = Field(default="payload", min_length=1, description="under which key of the entry it stands")
    as_string: bool = Field(default=True, description="true: as a text that holds JSON; false: as it is")

    @field_validator("log_key")
    @classmethod
    def _is_free(cls, key: str) -> str:
        if key in _OURS:
            raise Unfit(f"{key} is a key that every entry has", "choose another key")
        return key


def compile_log(config: LogConfig, around: Around) -> Filter:
    write, read = around.log, _all if config.path == "" else reader(event_path(config.path))
    shown = (lambda event: _text(read(event))) if config.as_string else read

    def log(batch: list[Event], faults: Faults) -> list[Event]:
        for event in batch:
            source = event.source
            ours = zip(_OURS, (config.tag, source.id, source.trace_id), strict=True)
            write({key: text for key, text in ours if text} | {config.log_key: shown(event)})
        return batch

    return log


def _text(value: Any) -> str:
    try:
        return as_text(value)
    except TypeError as error:
        return f"(it cannot be written as JSON: {error})"


def _all(event: Event) -> Any:
    return {"payload": event.payload, "metadata": event.metadata}


LOG = FilterPlugin("log", LogConfig, compile_log)
