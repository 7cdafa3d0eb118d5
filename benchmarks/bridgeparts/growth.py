"""What a row costs when there are more of them: more rows of the same sites, or the same rows of more sites."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

from bridgeparts.hub import Hub, running
from bridgeparts.payloads import Fleet
from bridgeparts.rounds import Rounds, Took, cpu
from harness import Result
from trunkline.pipeline.session import Spark

SITES, POLICIES = 20, 50
_TARGET_ROWS = 300_000
"""Small sizes are measured more often, so that each gets about as many rows."""


def _half(sites: int, clusters: int, policies: int, prefix: str) -> Fleet:
    return Fleet(sites, clusters, policies, failing=clusters // 2, prefix=prefix)


def _cost(hub: Hub, fleet: Fleet, shared: bool) -> list[Took]:
    """From empty, and half of the rows flipped; the first time is for warming up."""
    rounds = Rounds(hub, fleet, shared)
    rounds.seed()
    times = max(1, min(3, _TARGET_ROWS // fleet.rows))
    if times > 1:
        rounds.insert(), rounds.flip()
    return [_sum(rounds.insert(), rounds.flip()) for _ in range(times)]


def _sum(one: Took, other: Took) -> Took:
    spent = {part: one.cpu[part] + other.cpu[part] for part in one.cpu}
    return Took(one.rows + other.rows, one.seconds + other.seconds, one.intake + other.intake, spent)


def _microseconds(took: list[Took]) -> float:
    return statistics.median(one.seconds / one.rows for one in took) * 1e6


def _report(name: str, fleet: Fleet, took: list[Took]) -> Iterator[Result]:
    unit = f"µs, {fleet.rows:,} rows of {fleet.sites:,} sites from empty, half of them flipped"
    yield Result(f"us_per_row_{name}", round(_microseconds(took), 2), unit)
    yield Result(f"rows_per_s_{name}", round(1e6 / _microseconds(took)), "rows/s")
    yield from cpu(name, took)


def more_rows(spark: Spark, sizes: Mapping[str, int]) -> Iterator[Result]:
    """`sizes`: rows by the name of the result, in growing order."""
    costs: dict[str, float] = {}
    with running(spark) as hub:
        fleets = {name: _half(SITES, rows // SITES // POLICIES, POLICIES, f"{name}-") for name, rows in sizes.items()}
        hub.create_topics([site for fleet in fleets.values() for site in fleet.names()])
        hub.start()
        for name, fleet in fleets.items():
            took = _cost(hub, fleet, shared=False)
            costs[name] = _microseconds(took)
            yield from _report(name, fleet, took)
    least, *_, most = costs
    unit = f"cost per row at {sizes[most]:,} rows / at {sizes[least]:,}"
    yield Result("cost_ratio_1m_vs_100k", round(costs[most] / costs[least], 3), unit, goal=1.2, most=True)


def more_sites(spark: Spark, rows: int, counts: Mapping[str, int], topics: int) -> Iterator[Result]:
    """`counts`: sites by the name of the result, in growing order, over one topic they share; then as so many topics."""
    costs: dict[str, float] = {}
    with running(spark) as hub:
        hub.create_topics(shared=True)
        hub.start()
        for name, sites in counts.items():
            fleet = _half(sites, rows // sites // 10, 10, f"{name}-")
            took = _cost(hub, fleet, shared=True)
            costs[name] = _microseconds(took)
            yield from _report(name, fleet, took)
    least, *_, most = costs
    unit = f"cost per row with {counts[most]:,} sites / with {counts[least]:,}"
    yield Result("cost_ratio_5000_vs_100_sites", round(costs[most] / costs[least], 3), unit, goal=1.3, most=True)
    with running(spark) as hub:
        fleet = _half(topics, rows // topics // 10, 10, "topics-")
        hub.create_topics(fleet.names())
        hub.start()
        took = _cost(hub, fleet, shared=False)
    yield from _report("1000_topics", fleet, took)
    unit = f"cost per row as {topics:,} topics / with {counts[least]:,} sites"
    yield Result("cost_ratio_1000_topics_vs_100_sites", round(_microseconds(took) / costs[least], 3), unit)
