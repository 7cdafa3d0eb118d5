"""The numbers of a view as gauges, read when somebody asks.

A number's last key names the gauge, the keys above it are the label `of`: trunk's {"links": {"hub": {"sent": 3}}} becomes
`trunkline_trunk_sent{of="links.hub"} 3`. So one gauge holds the same number of every site, and sums are one query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


class ViewCollector(Collector):
    def __init__(self, views: Mapping[str, Callable[[], dict[str, Any]]], ready: Callable[[], tuple[bool, str]]) -> None:
        self._views, self._ready = views, ready

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()  # the names depend on the views, which must not be asked before the node runs

    def collect(self) -> Iterable[GaugeMetricFamily]:
        yield GaugeMetricFamily("trunkline_ready", "1 when the node does its work", value=float(self._ready()[0]))
        for view, read in self._views.items():
            yield from _families(view, read())


def _families(view: str, tree: dict[str, Any]) -> Iterable[GaugeMetricFamily]:
    samples: dict[str, dict[str, float]] = {}
    for path, number in _numbers(tree, ()):
        name = f"trunkline_{view}_{_NOT_IN_A_NAME.sub('_', path[-1])}"
        samples.setdefault(name, {})[".".join(path[:-1])] = number
    for name, by_place in samples.items():
        family = GaugeMetricFamily(name, f"from the node's {view}", labels=("of",))
        for place, number in by_place.items():
            family.add_metric((place,), number)
        yield family


def _numbers(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for n, inner in enumerate(value):
            yield from _numbers(inner, (*path, str(n)))
    elif isinstance(value, bool | int | float) and path:
        yield path, float(value)
