"""transform: a new payload, or a part of it, and if wanted new metadata, by example."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from trunkline.routes.codegen import Code
from trunkline.routes.event import Event
from trunkline.routes.fields import EventPath, RouteModel, TemplateTree
from trunkline.routes.filters.change import TargetPath
from trunkline.routes.filters.pass_ import everything
from trunkline.routes.paths import CannotSet, Read, compile_tree, event_path, reader, target_path, tree_source, writer
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin


class TransformConfig(RouteModel):
    """Builds a new payload, and if given new metadata, by example: texts in the trees are templates."""

    transformation: TemplateTree = Field(default=None, description="what is set at toPath; without it events pass as they are")
    metadata: TemplateTree = Field(default=None, description="the new metadata; without it the old stays")
    from_path: EventPath | None = Field(
        default=None,
        description="the value that the transformation takes for the payload; of an array each element is transformed",
    )
    to_path: TargetPath = Field(default="", description="where the result is set; empty: it is the new payload")

    @field_validator("metadata")
    @classmethod
    def _metadata_is_a_map(cls, value: Any) -> Any:
        if value is not None and not isinstance(value, dict):
            raise ValueError("metadata is not a map; write key: template")
        return value


def compile_transform(config: TransformConfig, around: Around) -> Filter:
    if config.transformation is None and config.metadata is None:
        return everything
    whole = config.from_path is None and target_path(config.to_path) == target_path("payload")
    return _whole(config, around) if whole or config.transformation is None else _part(config, around)


def _whole(config: TransformConfig, around: Around) -> Filter:
    """The usual case: both trees are built from the event itself."""
    code = Code()
    payload, metadata = (
        old if tree is None else tree_source(code, tree, around.constants)
        for tree, old in ((config.transformation, "event.payload"), (config.metadata, "event.metadata"))
    )
    return code.filter(f"append(Event({payload}, {metadata}, event.source, event.entered or (event,)))")


def _part(config: TransformConfig, around: Around) -> Filter:
    """Everything is built from the event as it came; what is set in the metadata by toPath is set in the new ones."""
    write, value = writer(target_path(config.to_path)), _result(config, around)
    metadata = compile_tree("{metadata}" if config.metadata is None else config.metadata, around.constants)

    def transform(batch: list[Event], faults: Faults) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            try:
                out.append(write(event.with_content(event.payload, metadata(event)), value(event)))
            except CannotSet as error:
                faults.add(event, str(error))
        return out

    return transform


def _result(config: TransformConfig, around: Around) -> Read:
    build = compile_tree(config.transformation, around.constants)
    if config.from_path is None:
        return build
    read = reader(event_path(config.from_path))

    def result(event: Event) -> Any:
        found = read(event)
        if type(found) is list:
            return [build(_inside(event, element)) for element in found]
        return build(_inside(event, found))

    return result


def _inside(event: Event, value: Any) -> Event:
    """The event as templates see it that take a part of it for the payload."""
    return Event(value, event.metadata, event.source)


TRANSFORM = FilterPlugin("transform", TransformConfig, compile_transform, pure=True)
