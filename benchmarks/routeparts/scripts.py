"""Filters with a language of their own, over events of about 1 KB: `expr` in this process, `js` in a child of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from harness import Result
from trunkline.core.jsoncodec import dumps
from trunkline.routes.event import Event
from trunkline.routes.filters.expr import EXPR
from trunkline.routes.filters.js import JS
from trunkline.routes.plugin import Around, Filter, FilterPlugin

BATCHES = (1, 10, 100, 1_000)
ROUNDS = 5
EXPRESSION = 'payload.level > 3 && payload.kind.startsWith("alarm")'  # the example of its documentation
SCRIPT = "_.payload.seen = _.payload.at.site + '/' + _.payload.id; return _.event;"


class NoFaults:
    def add(self, event: Event, reason: str) -> None:
        raise AssertionError(reason)


def kilobyte(number: int) -> dict[str, Any]:
    """45 fields."""
    fields = {f"field_{n:02}": f"value {number % 97} {n}" for n in range(38)}
    place = {"site": "leaf-1", "rack": number % 40}
    return {"kind": "alarm", "id": f"a-{number:08}", "severity": "high", "level": 5, "customer": number, "at": place, **fields}


def scripts(events: int) -> Iterator[Result]:
    made = [Event(kilobyte(n)) for n in range(events)]
    size = len(dumps(made[0].payload))
    rate = _rate(_compiled(EXPR, {"expression": EXPRESSION}), made, 100)
    yield Result("expr_evaluations_per_s", rate, f"events/s of {size} bytes, parsed, in batches of 100", goal=250_000)
    js = _compiled(JS, {"source": SCRIPT})
    for batch in BATCHES:
        rate = _rate(js, made[: max(100, min(events, batch * 100))], batch)
        yield Result(f"js_calls_per_s_batches_of_{batch}", rate, f"events/s of {size} bytes, parsed before and after")


def _compiled(plugin: FilterPlugin[Any], raw: dict[str, Any]) -> Filter:
    return plugin.compile(plugin.config.model_validate(raw), Around())


def _rate(filter: Filter, events: list[Event], size: int) -> int:
    batches = [events[at : at + size] for at in range(0, len(events), size)]

    def work() -> float:
        begun = time.perf_counter()
        assert sum(len(filter(batch, NoFaults())) for batch in batches) == len(events)
        return time.perf_counter() - begun

    work()
    return round(len(events) / min(work() for _ in range(ROUNDS)))
