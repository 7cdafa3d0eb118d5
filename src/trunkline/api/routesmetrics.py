"""The routing table as numbers. Events are labelled by the plugins of their routes: few, however many routes there are.

What pipelines did is of the site, and every node says the same: so it has names of its own, and sums over nodes stay right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

_GAUGES = (
    ("ids", "routes that this instance knows"),
    ("live", "live routes; ids that do the same share one"),
    ("resting", "routes that do not run here: inactive, or of another region"),
    ("refused", "routes that did not start here, or a revision of them that did not"),
    ("revision", "the newest revision that this instance has heard of"),
    ("instances", "instances of the site that are alive"),
    ("groups", "receiver groups that run here"),
)
_COUNTERS = (
    ("repairs", "comparisons of the table with the stored one"),
    ("repaired", "routes that they found wrong and set right"),
)
_EVENTS = (
    ("received", "events that came to a route's filters"),
    ("sent", "messages that are where they shall be"),
    ("dropped", "events that came to nothing in the filters"),
    ("dead", "dead letters"),
    ("kept", "messages that were kept for another try"),
    ("failed", "messages that are gone or back at their source"),
)
_SPARK = (("matched", "messages that left a route's filters"), *_EVENTS)
_GROUPS = (
    ("events", "events that a group read"),
    ("batches", "batches of a group that are done"),
    ("seconds", "how long its batches took"),
)


def routes_metrics(view: Mapping[str, Any]) -> Iterable[Metric]:
    for name, about in _GAUGES:
        yield GaugeMetricFamily(f"trunkline_routes_{name}", about, value=view.get(name, 0))
    for name, about in _COUNTERS:
        yield CounterMetricFamily(f"trunkline_routes_{name}", about, value=view.get(name, 0))
    for name, about in _EVENTS:
        yield _by_plugins(f"trunkline_routes_{name}", about, view.get("events", ()), name)
    yield _custom("trunkline_routes_custom", "events that metric filters counted", view.get("custom", {}))
    yield from _on_spark(view)


def _on_spark(view: Mapping[str, Any]) -> Iterable[Metric]:
    rows, groups = view.get("spark", ()), view.get("spark_groups", ())
    for name, about in _SPARK:
        yield _by_plugins(f"trunkline_routes_spark_{name}", f"{about}, on Spark", rows, name)
    yield _by_plugins("trunkline_routes_spark_seconds", "from coming in to being sent, of all that were sent", rows, "seconds")
    for name, about in _GROUPS:
        family = CounterMetricFamily(f"trunkline_routes_group_{name}", about, labels=("group",))
        for row in groups:
            family.add_metric((row["name"],), row[name])
        yield family
    behind = GaugeMetricFamily("trunkline_routes_group_behind", "events that wait for a group's next batch", labels=("group",))
    failing = GaugeMetricFamily("trunkline_routes_group_failing", "1 when a group does not read", labels=("group",))
    for row in groups:
        behind.add_metric((row["name"],), row["behind"])
        failing.add_metric((row["name"],), float(bool(row["failing"]) or not row["instance"]))
    yield from (behind, failing)
    yield _custom("trunkline_routes_spark_custom", "events that metric filters counted, on Spark", view.get("spark_custom", {}))


def _by_plugins(name: str, about: str, rows: Iterable[Mapping[str, Any]], number: str) -> Metric:
    family = CounterMetricFamily(name, about, labels=("receiver", "sender"))
    for row in rows:
        family.add_metric((row["receiver"], row["sender"]), row[number])
    return family


def _custom(name: str, about: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, about, labels=("name",))
    for one, count in counts.items():
        family.add_metric((one,), count)
    return family
