"""mapping: one value for another.

M1  Every entry whose `from` equals the value, and whose comparison holds, maps it; of several the last one counts.
M2  What no entry maps becomes the default value, if there is one (null is none), and stays as it is otherwise.
M3  All entries see the event as it came. With an array, each element is mapped by itself: paths, templates and comparisons
    take it for the payload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field

from trunkline.core.errors import Invalid
from trunkline.routes.codegen import Code
from trunkline.routes.equality import same
from trunkline.routes.event import Event
from trunkline.routes.fields import RouteModel, TemplateTree
from trunkline.routes.filters.change import TargetPath
from trunkline.routes.filters.comparison import Comparison, comparison_source
from trunkline.routes.filters.kinds import mismatch
from trunkline.routes.paths import CannotSet, Path, Put, Read, compile_tree, putter, reader, target_path, writer
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin


class MapEntry(RouteModel):
    """What one value becomes."""

    from_: TemplateTree = Field(default=None, alias="from", description="the value that is mapped; null: also a missing one")
    to: TemplateTree = Field(default=None, description="what it becomes")
    comparison: Comparison | None = Field(default=None, description="all of it must hold too")


class MappingConfig(RouteModel):
    """Replaces the value at `path` by what the map says, in the event or in each element of an array."""

    path: TargetPath = Field(default="", description="the value that is mapped; with an array, within each element")
    array_path: TargetPath = Field(
        default="", description="an array whose elements are mapped one by one; empty: the payload, if it is one"
    )
    map: tuple[MapEntry, ...] = Field(default=(), description="if several entries fit, the last one counts")
    default_value: TemplateTree = Field(default=None, description="what a value becomes that no entry maps; null: it stays")


Mapped = Callable[[Event], tuple[bool, Any]]
"""Whether the value is mapped, and to what."""


def compile_mapping(config: MappingConfig, around: Around) -> Filter:
    path, array = target_path(config.path), target_path(config.array_path)
    elements = path.root == "payload"
    if config.array_path and not elements:
        raise Invalid(f"path {path}", "an array's elements have no metadata", "name a path within an element")
    mapped, write, write_array = _mapped(config, reader(path), around), writer(path), writer(array)
    whole = array == target_path("payload")
    read_array, map_elements = reader(array), _each(mapped, path)

    def map_one(event: Event) -> Event:
        found = read_array(event)
        if elements and type(found) is list:
            return write_array(event, map_elements(event, found))
        if whole:
            changed, value = mapped(event)
            return write(event, value) if changed else event
        if found is None:
            return event
        raise CannotSet(mismatch(array, "an array", found))

    def mapping(batch: list[Event], faults: Faults) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            try:
                out.append(map_one(event))
            except CannotSet as error:
                faults.add(event, str(error))
        return out

    return mapping


def _each(mapped: Mapped, path: Path) -> Callable[[Event, list[Any]], list[Any]]:
    put: Put = putter(path)

    def one(element: Event) -> Any:
        changed, value = mapped(element)
        return put(element.payload, value) if changed else element.payload

    return lambda event, elements: [one(Event(element, event.metadata, event.source)) for element in elements]


def _mapped(config: MappingConfig, read: Read, around: Around) -> Mapped:
    entries = [_entry(entry, around) for entry in reversed(config.map)]
    default = None if config.default_value is None else compile_tree(config.default_value, around.constants)

    def mapped(event: Event) -> tuple[bool, Any]:
        value = read(event)
        for wanted, holds, to in entries:
            if same(value, wanted(event)) and holds(event):
                return True, to(event)
        return (False, None) if default is None else (True, default(event))

    return mapped


def _entry(entry: MapEntry, around: Around) -> tuple[Read, Read, Read]:
    code = Code()
    holds = code.function(comparison_source(code, entry.comparison or Comparison(), "and", around.constants))
    return compile_tree(entry.from_, around.constants), holds, compile_tree(entry.to, around.constants)


MAPPING = FilterPlugin("mapping", MappingConfig, compile_mapping, pure=True)
