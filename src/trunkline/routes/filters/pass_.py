"""pass: lets everything pass."""

from __future__ import annotations

from trunkline.routes.event import Event
from trunkline.routes.fields import RouteModel
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin


class PassConfig(RouteModel):
    """Lets every event pass as it is."""


def everything(batch: list[Event], faults: Faults) -> list[Event]:
    return batch


def compile_pass(config: PassConfig, around: Around) -> Filter:
    return everything


PASS = FilterPlugin("pass", PassConfig, compile_pass, pure=True)
