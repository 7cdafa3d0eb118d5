"""celsius: degrees Fahrenheit become degrees Celsius."""

from __future__ import annotations

from pydantic import Field

from trunkline.routes.event import Event
from trunkline.routes.fields import EventPath, RouteModel
from trunkline.routes.paths import CannotSet, event_path, reader, target_path, writer
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin


class CelsiusConfig(RouteModel):
    """Writes a temperature in degrees Celsius. An event without a number there cannot be processed."""

    path: EventPath = Field(examples=["payload.temperature"], description="where the degrees Fahrenheit are")
    to_path: str = Field(default="", description="where the degrees Celsius are set; empty: in place of the others")
    digits: int = Field(default=1, ge=0, le=6, description="digits behind the point")


def compile_celsius(config: CelsiusConfig, around: Around) -> Filter:
    path = event_path(config.path)
    read, write = reader(path), writer(target_path(config.to_path or config.path))

    def celsius(batch: list[Event], faults: Faults) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            degrees = read(event)
            if isinstance(degrees, bool) or not isinstance(degrees, int | float):
                faults.add(event, f"{path}: degrees are a number, found {degrees!r}")
                continue
            try:
                out.append(write(event, round((degrees - 32) / 1.8, config.digits)))
            except CannotSet as error:
                faults.add(event, str(error))
        return out

    return celsius


CELSIUS = FilterPlugin("celsius", CelsiusConfig, compile_celsius, pure=True)
