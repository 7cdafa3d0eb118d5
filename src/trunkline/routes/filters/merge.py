"""merge: one part of an event goes into another.

G1  Maps are merged key by key; an array's elements come before those that are there already; of two other values, or of two
    kinds, the one that is there already stays.
G2  Null is nothing: the other side stays as it is.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from trunkline.core.reasons import Unfit
from trunkline.routes.event import Event
from trunkline.routes.fields import EventPath, RouteModel
from trunkline.routes.filters.change import TargetPath
from trunkline.routes.paths import CannotSet, event_path, reader, target_path, writer
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin


class MergeConfig(RouteModel):
    """Merges the value at fromPath into the one at toPath: maps key by key, arrays one after the other; else toPath's stays."""

    from_path: EventPath = Field(
        default="", examples=[".more"], description="what is merged into the other; it stays where it is, too"
    )
    to_path: TargetPath = Field(default="", description="what it is merged into")

    @model_validator(mode="after")
    def _are_two(self) -> Self:
        if event_path(self.from_path) == event_path(self.to_path):
            raise Unfit("fromPath and toPath are the same", "name two parts of the event")
        return self


def compile_merge(config: MergeConfig, around: Around) -> Filter:
    to = target_path(config.to_path)
    read, read_other, write = reader(event_path(config.from_path)), reader(to), writer(to)

    def merge(batch: list[Event], faults: Faults) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            new = read(event)
            try:
                out.append(event if new is None else write(event, merged(new, read_other(event))))
            except CannotSet as error:
                faults.add(event, str(error))
            except RecursionError:
                faults.add(event, f"{to}: nested too deeply to be merged")
        return out

    return merge


def merged(new: Any, old: Any) -> Any:
    if isinstance(new, dict) and isinstance(old, dict):
        return {**old, **{key: merged(value, old.get(key)) for key, value in new.items()}}
    if isinstance(new, list) and isinstance(old, list):
        return new + old
    return new if old is None else old


MERGE = FilterPlugin("merge", MergeConfig, compile_merge, pure=True)
