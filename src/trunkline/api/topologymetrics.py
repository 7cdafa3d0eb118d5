"""Paths and carried records as numbers with labels of their own: a link, an origin, a manner of moving.

Everything that is counted begins at 0 with its link, so that a rate has a beginning. A new leader counts from 0 again, as a
counter may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

MANNERS = ("first", "forced", "voluntary", "watchdog")
FROM_THE_START = ("received", "duplicate", "stray", "catch_up", "sent", "relayed")
DIRECTIONS = {"sent": "sent_bytes", "received": "received_bytes"}
_NOT_COUNTED_APART = frozenset({"bytes", *DIRECTIONS.values()})
"""`bytes` is the records' share of `received_bytes`."""


def topology_metrics(view: Mapping[str, Any]) -> Iterable[Metric]:
    rows = len(view.get("rows", ()))
    yield GaugeMetricFamily("trunkline_topology_rows", "sites whose records are taken from a neighbour", value=rows)
    yield GaugeMetricFamily("trunkline_topology_neighbours", "sites with a link", value=len(view.get("neighbours", ())))
    moves = CounterMetricFamily("trunkline_topology_moves", "choices of a neighbour to take from", labels=("manner",))
    for manner in MANNERS:
        moves.add_metric((manner,), view.get("moves", {}).get(manner, 0))
    yield moves


def trunk_metrics(view: Mapping[str, Any]) -> Iterable[Metric]:
    links: Mapping[str, Mapping[str, int]] = view.get("links", {})
    counted = sorted({what for link in links.values() for what in link} - _NOT_COUNTED_APART - {*FROM_THE_START})
    for what in (*FROM_THE_START, *counted):
        yield _per_link(what, links)
    yield _bytes(links)
    yield _lags(view.get("streams", ()))


def _per_link(what: str, links: Mapping[str, Mapping[str, int]]) -> Metric:
    family = CounterMetricFamily(f"trunkline_trunk_{what}", f"{what.replace('_', ' ')}, per link", labels=("link",))
    for site, link in links.items():
        if what in link or what in FROM_THE_START:
            family.add_metric((site,), link.get(what, 0))
    return family


def _bytes(links: Mapping[str, Mapping[str, int]]) -> Metric:
    family = CounterMetricFamily("trunkline_trunk_bytes", "bytes on the link's connection", labels=("link", "direction"))
    for site, link in links.items():
        for direction, key in DIRECTIONS.items():
            family.add_metric((site, direction), link.get(key, 0))
    return family


def _lags(streams: Iterable[Mapping[str, Any]]) -> Metric:
    lags: dict[str, int] = {}
    for stream in streams:
        if stream.get("lag") is not None:
            lags[stream["origin"]] = max(stream["lag"], lags.get(stream["origin"], 0))
    family = GaugeMetricFamily("trunkline_trunk_lag_entries", "entries of the origin's log still to come", labels=("origin",))
    for origin, lag in lags.items():
        family.add_metric((origin,), lag)
    return family
