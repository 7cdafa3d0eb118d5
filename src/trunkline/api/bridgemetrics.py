"""The bridge as numbers, from the hub's database. With many sites there is one series of all, `site="*"`, and not one each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

# of each site: name, what it counts
_COUNTERS = {
    "received": "bundles that came",
    "conflated": "bundles that a newer one replaced before they were applied",
    "rejected": "messages that were no bundle of their sender",
    "stale": "bundles that were not newer than what was applied",
    "applied": "bundles that were applied",
    "quarantined": "bundles that were set aside",
    "discarded": "bundles whose base is gone, that a resync made up for, or that no table is for",
    "joined": "parts of bundles that became one with another",
    "expired": "parts of bundles whose rest never came",
    "rows_received": "rows in bundles that were applied",
    "rows_written": "rows that were inserted, changed or deleted for them",
}
# of the whole bridge: name, what it is, key
_GAUGES = (
    ("sites", "sites that were heard", "sites"),
    ("silent_sites", "sites unheard for so long that their rows are hidden", "silent"),
    ("inbox_entries", "bundles that are not applied yet", "waiting"),
    ("inbox_bytes", "their payloads", "waiting_bytes"),
    ("parked", "of these: those that wait for their base or for a resync", "parked"),
    ("oldest_waiting_seconds", "how long the oldest of them waits", "oldest_seconds"),
    ("quarantine_open", "bundles in quarantine that nobody has dealt with", "quarantined"),
    ("resyncs_wanted", "resyncs that sites are asked for", "resyncs"),
    ("running", "1 while a bridge holds the lease", "running"),
    ("staleness_max_seconds", "the largest staleness of a site", "staleness_max"),
)


def bridge_metrics(view: Mapping[str, Any]) -> Iterable[Metric]:
    """Of an empty view, as of a site without a bridge, only the names."""
    for name, about, key in _GAUGES:
        family = GaugeMetricFamily(f"trunkline_bridge_{name}", about, labels=())
        if key in view:
            family.add_metric((), float(view[key] or 0.0))
        yield family
    for name, about in _COUNTERS.items():
        counter = CounterMetricFamily(f"trunkline_bridge_{name}", about, labels=("site",))
        for row in view.get("counters", ()):
            counter.add_metric((row["site"],), row[name])
        yield counter
    staleness = GaugeMetricFamily("trunkline_bridge_staleness_seconds", "age of a site's newest status", labels=("site",))
    for row in view.get("staleness", ()):
        staleness.add_metric((row["site"],), row["seconds"])
    yield staleness
