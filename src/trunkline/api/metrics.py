"""The numbers of a view as gauges, read when somebody asks, and those of the API's own requests.

A number's last key names the gauge, the keys above it are the label `of`: status's {"tasks": {"tick": {"failures": 3}}}
becomes `trunkline_status_failures{of="tasks.tick"} 3`. So one gauge holds the same number of every place, and sums are one
query. Topology, trunk, queues, bridge and routes have labels of their own. A view that fails takes only its own numbers away,
and `trunkline_view_answers` says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trunkline.api.bridgemetrics import bridge_metrics
from trunkline.api.queuesmetrics import queues_metrics
from trunkline.api.routesmetrics import routes_metrics
from trunkline.api.topologymetrics import topology_metrics, trunk_metrics
from trunkline.core.errors import TrunklineError
from trunkline.core.health import Check

log = structlog.get_logger()
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")
_BY_LABELS: Mapping[str, Callable[[Mapping[str, Any]], Iterable[Metric]]] = {
    "topology": topology_metrics,
    "trunk": trunk_metrics,
    "queues": queues_metrics,
    "bridge": bridge_metrics,
    "routes": routes_metrics,
}
_LABELS = ("route", "method", "status")


class HttpNumbers:
    """All labels are of few values: templates of addresses, known methods, statuses."""

    METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter("trunkline_http_requests", "requests that were answered", _LABELS, registry=registry)
        self._seconds = Histogram("trunkline_http_request_seconds", "how long they took", _LABELS, registry=registry)

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        self._requests.labels(route, method, status).inc()
        self._seconds.labels(route, method, status).observe(seconds)


class ViewCollector(Collector):
    def __init__(self, views: Mapping[str, Callable[[], dict[str, Any]]], checks: Callable[[], Sequence[Check]]) -> None:
        self._views, self._checks = views, checks

    def describe(self) -> Iterable[Metric]:
        return ()  # the names depend on the views, which must not be asked before the node runs

    def collect(self) -> Iterable[Metric]:
        yield from _checked(self._checks())
        answers = GaugeMetricFamily("trunkline_view_answers", "1 when the node's view could be read", labels=("view",))
        for view, read in self._views.items():
            families = _asked(view, read)
            answers.add_metric((view,), float(families is not None))
            yield from families or ()
        yield answers


def _asked(view: str, read: Callable[[], dict[str, Any]]) -> Iterable[Metric] | None:
    try:
        found = read()
        return _BY_LABELS[view](found) if view in _BY_LABELS else _families(view, found)
    except (TrunklineError, TimeoutError) as error:
        log.warning("a view of the node gives no numbers", view=view, reason=str(error) or "it did not answer")
        return None


def _checked(checks: Sequence[Check]) -> Iterable[GaugeMetricFamily]:
    ready = all(check.ok for check in checks)
    yield GaugeMetricFamily("trunkline_ready", "1 when the node does its work", value=float(ready))
    family = GaugeMetricFamily("trunkline_check", "1 when this check of the node is well", labels=("name",))
    for check in checks:
        family.add_metric((check.name,), float(check.ok))
    yield family


def _families(view: str, tree: dict[str, Any]) -> list[GaugeMetricFamily]:
    samples: dict[str, dict[str, float]] = {}
    for path, number in _numbers(tree, ()):
        name = f"trunkline_{view}_{_NOT_IN_A_NAME.sub('_', path[-1])}"
        samples.setdefault(name, {})[".".join(path[:-1])] = number
    return [_family(name, f"from the node's {view}", by_place) for name, by_place in samples.items()]


def _family(name: str, help_text: str, by_place: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=("of",))
    for place, number in by_place.items():
        family.add_metric((place,), number)
    return family


def _numbers(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for n, inner in enumerate(value):
            yield from _numbers(inner, (*path, str(n)))
    elif isinstance(value, bool | int | float) and path:
        yield path, float(value)
