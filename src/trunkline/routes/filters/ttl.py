"""ttl: keeps back events that are too old."""

from __future__ import annotations

from pydantic import Field

from trunkline.core.scalars import Number, Whole
from trunkline.routes.event import Event
from trunkline.routes.fields import EventPath, RouteModel
from trunkline.routes.filters.kinds import is_number, mismatch
from trunkline.routes.filters.pass_ import everything
from trunkline.routes.paths import event_path, reader
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin

_HALF_A_MICROSECOND = 0.5  # times are compared in microseconds: a float holds those of today exactly, nanoseconds not


class TtlConfig(RouteModel):
    """Keeps back an event once it is `ttl` old. One from the future passes, one without a time cannot be processed."""

    path: EventPath = Field(default="", description="where the event's time is, a number counted from 1970-01-01 UTC")
    ttl: Whole = Field(default=300_000, ge=0, description="milliseconds; an event of this age is too old")
    nano_factor: Number = Field(
        default=1_000_000, gt=0, description="nanoseconds in one unit of that time: 1000000 if it is in milliseconds"
    )
    disabled: bool = Field(default=False, description="true: every event passes")


def compile_ttl(config: TtlConfig, around: Around) -> Filter:
    if config.disabled:
        return everything
    path, now = event_path(config.path), around.now
    read, factor, limit = reader(path), config.nano_factor / 1000, config.ttl * 1000 - _HALF_A_MICROSECOND

    def ttl(batch: list[Event], faults: Faults) -> list[Event]:
        out: list[Event] = []
        oldest = now() * 1_000_000 - limit
        for event in batch:
            time = read(event)
            if not is_number(time):
                faults.add(event, mismatch(path, "a time as a number", time))
            elif time * factor > oldest:
                out.append(event)
        return out

    return ttl


TTL = FilterPlugin("ttl", TtlConfig, compile_ttl, pure=True)
