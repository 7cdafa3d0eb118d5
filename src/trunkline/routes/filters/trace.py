"""trace: writes an event's trace id into it."""

from __future__ import annotations

from pydantic import Field

from trunkline.routes.codegen import Code
from trunkline.routes.fields import RouteModel
from trunkline.routes.filters.change import TargetPath, changing
from trunkline.routes.paths import event_path, target_path
from trunkline.routes.plugin import Around, Filter, FilterPlugin


class TraceConfig(RouteModel):
    """Sets the id of the trace that an event belongs to; null if it belongs to none."""

    path: TargetPath = Field(examples=[".tx.traceId"], description="where the id is set")


def compile_trace(config: TraceConfig, around: Around) -> Filter:
    code = Code()
    return changing(code, code.read(event_path("trace.id")), target_path(config.path))


TRACE = FilterPlugin("trace", TraceConfig, compile_trace)
