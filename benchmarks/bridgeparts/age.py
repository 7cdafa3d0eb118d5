"""How old status is when it is committed: every site sends four types of ten changed rows every few seconds."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial

from bridgeparts.hub import running
from bridgeparts.payloads import BASE, CLUSTERS, FLIP, POLICIES, Fleet, Message, clusters, compliance, flip, policies
from bridgeparts.rounds import _COUNTER
from harness import Result
from trunkline.pipeline.session import Spark

CHANGED = 10
TYPES = (CLUSTERS, POLICIES, BASE, FLIP)
_EVERY_SECONDS = 5.0
_WARM_ROUNDS = 16
"""Until the JVM has compiled what it runs: before, a batch takes three times as long."""


def round_of(sites: int, number: int) -> Iterator[Message]:
    """Site by site. The base says compliant, what depends on it the opposite, so that each changes all rows of the other."""
    fleet, generation = Fleet(sites, CHANGED, 1, CHANGED, "age"), number + 1
    rules = Fleet(sites, 0, CHANGED, prefix="age")
    types = (clusters(fleet, generation), policies(rules, generation), compliance(fleet.flipped(0), generation))
    for four in zip(*types, flip(fleet, generation, generation), strict=True):
        yield from four


def age(spark: Spark, sites: int, seconds: float) -> Iterator[Result]:
    rounds = round(seconds / _EVERY_SECONDS)
    with running(spark) as hub:
        hub.create_topics(Fleet(sites, 0, 0, prefix="age").names())
        hub.start()
        hub.feeder.begin_pace(partial(round_of, sites), _WARM_ROUNDS + rounds, _EVERY_SECONDS)
        sent = hub.feeder.answer(hub.supervise)
        hub.wait_applied(TYPES, _WARM_ROUNDS + rounds, sites * len(TYPES), "age")
        begun = sent.first + _WARM_ROUNDS * _EVERY_SECONDS
        ages = {type_: hub.ages([type_], begun, sent.last + 1) for type_ in TYPES}
        written = hub.one(_COUNTER)
    every = sorted(age for some in ages.values() for age in some)
    unit = f"s, {sites:,} sites × {len(TYPES)} types of {CHANGED} changed rows every {_EVERY_SECONDS:g} s, {seconds:g} s"
    yield Result("age_p99_s", round(_p99(every), 3), unit, goal=3.0, most=True)
    yield Result("age_p50_s", round(statistics.median(every), 3), "s")
    yield Result("age_most_s", round(every[-1], 3), "s")
    yield Result(
        "age_applied_share", round(len(every) / (rounds * sites * len(TYPES)), 4), "of all bundles; the rest was conflated"
    )
    yield Result("age_rows_written", written, "rows in all, with those while warming up")
    for type_, some in ages.items():
        yield Result(f"age_p99_s_{type_.replace('-', '_')}", round(_p99(sorted(some)), 3), "s")


def _p99(ages: list[float]) -> float:
    return ages[min(len(ages) - 1, int(len(ages) * 0.99))]
