"""split: one event for each element of an array."""

from __future__ import annotations

from pydantic import Field

from trunkline.routes.event import Event
from trunkline.routes.fields import EventPath, RouteModel
from trunkline.routes.filters.kinds import mismatch
from trunkline.routes.paths import event_path, reader
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin


class SplitConfig(RouteModel):
    """Makes an event of each element of the array at `path`, with the metadata of the whole; of an empty array none."""

    path: EventPath = Field(default="", description="where the array is; empty: the payload itself")


def compile_split(config: SplitConfig, around: Around) -> Filter:
    path = event_path(config.path)
    read = reader(path)

    def split(batch: list[Event], faults: Faults) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            found = read(event)
            if isinstance(found, list):
                out += [event.with_content(element, event.metadata) for element in found]
            else:
                faults.add(event, mismatch(path, "an array", found))
        return out

    return split


SPLIT = FilterPlugin("split", SplitConfig, compile_split, pure=True)
