"""metric: counts what passes."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from trunkline.core.errors import Invalid
from trunkline.routes.event import Event
from trunkline.routes.fields import RouteModel, checked
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,127}")


def _check_word(text: str) -> None:
    if text and not _WORD.fullmatch(text):
        raise Invalid(f"name {text!r}", "it cannot be a counter's", "use letters, digits, _ . and -, with a letter in front")


Word = Annotated[str, checked(_check_word)]


class MetricConfig(RouteModel):
    """Adds the events that come by to a counter, and lets them pass."""

    name: Word = Field(default="generic", min_length=1, description="the counter's name, after the prefix")
    prefix: Word = Field(default="ears.custom.", description="how its name begins")


def compile_metric(config: MetricConfig, around: Around) -> Filter:
    name, count = config.prefix + config.name, around.count

    def metric(batch: list[Event], faults: Faults) -> list[Event]:
        count(name, len(batch))
        return batch

    return metric


METRIC = FilterPlugin("metric", MetricConfig, compile_metric)
