"""Queues as numbers, labelled by session, queue or consumer. All of them are there from the first session or queue on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

Row = Mapping[str, Any]
Number = Callable[[Row], float | None]
Labels = Mapping[str, str]
"""Label → the key of its value."""
_SESSION = {"role": "role", "remote": "remote", "client": "client"}
_DESTINATION = {"destination": "destination", "client": "client"}
_QUEUE = {"queue": "name"}
_CONSUMER = {"client": "client", "consumer": "name"}

# name, what it is, of which list, its labels, its number; None: there is none of this row
_GAUGES: tuple[tuple[str, str, str, Labels, Number], ...] = (
    ("lag_entries", "entries that the session still has to bring", "sessions", _SESSION, lambda row: row["remaining"]),
    ("unacknowledged_seconds", "age of the oldest entry that the destination has not acknowledged", "sessions", _SESSION,
     lambda row: (row["unacknowledged_seconds"] or 0.0) if row["role"] == "source" else None),
    ("in_snapshot", "1 while the session receives or sends a snapshot", "sessions", _SESSION,
     lambda row: float(row["type"] == "SNAPSHOT")),
    ("stalled", "1 while the session stands still, for the reason that its status has", "sessions", _SESSION,
     lambda row: float(bool(row["stall"]))),
    ("status_age_seconds", "how long ago the leader wrote the session's status", "sessions", _SESSION,
     lambda row: row["age_seconds"]),
    ("needs_snapshot", "1 where nothing is kept any more for the destination", "sending", _DESTINATION,
     lambda row: float(row["needs_snapshot"])),
    ("waiting_entries", "entries of a receive queue that not all consumers have passed", "receiving", _QUEUE,
     lambda row: row["waiting"]),
    ("waiting_bytes", "their payloads", "receiving", _QUEUE, lambda row: row["waiting_bytes"]),
    ("full", "1 while a receive queue takes nothing", "receiving", _QUEUE, lambda row: float(row["full"])),
    ("consumer_idle_seconds", "how long ago the consumer was seen", "consumers", _CONSUMER,
     lambda row: row["idle_seconds"]),
    ("detached", "1 where a consumer was idle for too long, and nothing waits for it", "consumers", _CONSUMER,
     lambda row: float(row["detached"])),
    ("dead_letters", "messages that the consumer refused for good", "dead_letters",
     {"client": "client", "consumer": "consumer"},
     lambda row: row["letters"]),
)  # fmt: skip


def queues_metrics(view: Mapping[str, Any]) -> Iterable[Metric]:
    log = view.get("log", {})
    yield GaugeMetricFamily("trunkline_queues_log_head", "number of the log's last entry", value=log.get("head", 0))
    yield GaugeMetricFamily("trunkline_queues_log_lowest", "entries up to this one were trimmed", value=log.get("lowest", 0))
    yield GaugeMetricFamily("trunkline_queues_log_bytes", "what the log takes on disk", value=log.get("bytes", 0))
    yield GaugeMetricFamily("trunkline_queues_open_requests", "snapshots under way", value=len(view.get("requests", ())))
    for name, about, rows, labels, number in _GAUGES:
        yield _family(name, about, view.get(rows, ()), labels, number)


def _family(name: str, about: str, rows: Sequence[Row], labels: Labels, number: Number) -> Metric:
    family = GaugeMetricFamily(f"trunkline_queues_{name}", about, labels=list(labels))
    for row in rows:
        found = number(row)
        if found is not None:
            family.add_metric([str(row[key]) for key in labels.values()], found)
    return family
