"""modify: texts in capitals or in small letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from pydantic import Field, model_validator

from trunkline.core.reasons import Unfit
from trunkline.routes.event import Event
from trunkline.routes.fields import RouteModel
from trunkline.routes.filters.change import TargetPath
from trunkline.routes.paths import Read, Write, reader, target_path, writer
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin


class ModifyConfig(RouteModel):
    """Writes the texts at its paths in capitals, or in small letters; what is missing or no text stays as it is."""

    path: TargetPath = Field(default="", description="where a text is; empty without paths: the payload itself")
    paths: tuple[TargetPath, ...] = Field(default=(), description="where more texts are")
    to_upper: bool = Field(default=False, examples=[True], description="true: in capitals")
    to_lower: bool = Field(default=False, description="true: in small letters")

    @model_validator(mode="after")
    def _says_what_to_do(self) -> Self:
        if self.to_upper == self.to_lower:
            raise Unfit("toUpper and toLower are both " + ("set" if self.to_upper else "not set"), "set one of them")
        return self

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.path, *self.paths) if self.path or not self.paths else self.paths


def compile_modify(config: ModifyConfig, around: Around) -> Filter:
    case = str.upper if config.to_upper else str.lower
    places = [(reader(path), writer(path)) for path in map(target_path, config.targets)]

    def modify(batch: list[Event], faults: Faults) -> list[Event]:
        return [_modified(event, places, case) for event in batch]

    return modify


def _modified(event: Event, places: list[tuple[Read, Write]], case: Callable[[str], str]) -> Event:
    for read, write in places:
        text = read(event)
        if isinstance(text, str) and (new := case(text)) != text:
            event = write(event, new)
    return event


MODIFY = FilterPlugin("modify", ModifyConfig, compile_modify, pure=True)
