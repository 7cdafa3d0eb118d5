"""What EARS takes and nothing here acts upon: it is taken, too, with a warning, so that nobody relies on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from trunkline.core.mistakes import Location
from trunkline.routes.route import SAME_MODES, DeliveryMode

_OF_ROUTE = {"debug": "leave it out; `trunkline routes explain` and the metrics say what a route does"}
_TRACES = "leave it out; the trace of an event names its message, and a dead letter holds it"
_OF_PLUGIN = {
    "tracePayloadOnNack": _TRACES,
    "trace_payload_on_nack": _TRACES,
    "dynamicMetricLabel": "leave it out; the metrics have the names of plugins",
    "dynamic_metric_label": "leave it out; the metrics have the names of plugins",
}
_MODES = ("deliveryMode", "delivery_mode")
_KNOWN = (*DeliveryMode, *SAME_MODES)
_ALIKE = 0.7

Idle = tuple[Location, str, str]
"""Where it stands, the reason, and the next step."""


def has_idle(route: Mapping[str, Any]) -> bool:
    """Quickly, for the hundred thousands that have none."""
    chain = route.get("filterChain") or route.get("filter_chain")
    uses = (route.get("receiver"), route.get("sender"), *(chain if isinstance(chain, list) else ()))
    configs = [use.get("config") for use in uses if isinstance(use, dict)]
    told = any(isinstance(config, dict) and not _OF_PLUGIN.keys().isdisjoint(config) for config in configs)
    return told or any(route.get(key) for key in _OF_ROUTE)


def idle_keys(route: Mapping[str, Any]) -> Iterator[Idle]:
    for key, step in _OF_ROUTE.items():
        if route.get(key):
            yield (key,), "it has no effect", step


def idle_config(config: Any) -> Iterator[Idle]:
    if isinstance(config, Mapping):
        for key in config.keys() & _OF_PLUGIN.keys():
            if config[key]:
                yield (key,), "it has no effect", _OF_PLUGIN[key]


def strange_mode(route: Mapping[str, Any]) -> str:
    """The key of a deliveryMode that nobody knows, which EARS never looks at; one that is nearly right is a mistake."""
    for key in _MODES:
        mode = route.get(key)
        if isinstance(mode, str) and mode not in _KNOWN and not get_close_matches(mode.lower(), _KNOWN, 1, _ALIKE):
            return key
    return ""
