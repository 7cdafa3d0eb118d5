"""unwrap: a part of the payload becomes the payload."""

from __future__ import annotations

from pydantic import Field

from trunkline.routes.event import Event
from trunkline.routes.fields import EventPath, RouteModel
from trunkline.routes.filters.kinds import mismatch
from trunkline.routes.paths import event_path, reader
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin


class UnwrapConfig(RouteModel):
    """Takes the value at `path` for the new payload; an event that has none there cannot be processed."""

    path: EventPath = Field(default="", description="what becomes the payload")


def compile_unwrap(config: UnwrapConfig, around: Around) -> Filter:
    path = event_path(config.path)
    read = reader(path)

    def unwrap(batch: list[Event], faults: Faults) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            found = read(event)
            if found is None:
                faults.add(event, mismatch(path, "a value", found))
            else:
                out.append(event.with_content(found, event.metadata))
        return out

    return unwrap


UNWRAP = FilterPlugin("unwrap", UnwrapConfig, compile_unwrap, pure=True)
