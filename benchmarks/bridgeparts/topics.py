"""One micro-batch of the bridge over many topics, each with a few new bundles; and many sites that speak in one moment."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

from bridgeparts.feeder import made
from bridgeparts.hub import Hub, running
from bridgeparts.payloads import BASE, FLIP, HEARTBEAT, HUB_INFO, Fleet, Message, compliance, flip, heartbeat, hub_info
from bridgeparts.progress import planned
from harness import Result
from trunkline.pipeline.session import Spark

NEWS = (HEARTBEAT, HUB_INFO, BASE, FLIP)
TRIGGER_SECONDS = 3.0
_WARM_BATCHES = 15
"""For each round that counts: a driver that has run for an hour has compiled what it runs."""
_SEND_AT = 1.5
"""Seconds into a trigger's interval: what is sent then is all there at the next one."""


def many_topics(spark: Spark, topics: int, rounds: int) -> Iterator[Result]:
    fleet = Fleet(topics, clusters=10, policies=1, failing=10, prefix="topic")
    with running(spark) as hub:
        hub.create_topics(fleet.names())
        warm = _run_warm(hub, fleet, _WARM_BATCHES * rounds)
        hub.start(TRIGGER_SECONDS)
        query = hub.query()
        for generation in range(warm + 1, warm + 2 * rounds + 1):
            _send_between_triggers(hub, fleet, generation)
        progress = [p for p in query.recentProgress if planned(p) == topics * len(NEWS)]
        whole, add = ([p.durationMs[phase] / 1000 for p in progress] for phase in ("triggerExecution", "addBatch"))
    assert len(whole) > rounds, f"only {len(whole)} of {2 * rounds} batches held what one round sent"
    median = statistics.median(whole[-rounds:])
    unit = f"s, {topics:,} topics with {len(NEWS)} new bundles each, median of {rounds}"
    yield Result("batch_s_1000_topics", round(median, 3), unit, goal=0.5, most=True)
    yield Result("batch_s_1000_topics_add", round(statistics.median(add[-rounds:]), 3), "s of it from reading to commit")


def _run_warm(hub: Hub, fleet: Fleet, batches: int) -> int:
    """Batches of a few topics, one right after the other; gives the last generation sent."""
    few = replace(fleet, sites=min(fleet.sites, 20))
    hub.start()
    for generation in range(1, batches + 1):
        hub.feeder.prepare(made(four_types, few, generation))
        hub.feeder.send()
        hub.wait_applied(NEWS, generation, len(NEWS) * few.sites, fleet.prefix)
    hub.stop()
    return batches


def _send_between_triggers(hub: Hub, fleet: Fleet, generation: int) -> None:
    hub.feeder.prepare(made(four_types, fleet, generation))
    time.sleep((_SEND_AT - time.time()) % TRIGGER_SECONDS)
    hub.feeder.send()
    hub.wait_applied(NEWS, generation, len(NEWS) * fleet.sites, fleet.prefix)


def three_types(fleet: Fleet, generation: int) -> Iterator[Message]:
    """All sites say one thing, then the next; dependents come with what they depend on."""
    yield from flip(fleet, generation, generation)
    yield from compliance(fleet.flipped(0), generation)
    yield from hub_info(fleet, generation)


def four_types(fleet: Fleet, generation: int) -> Iterator[Message]:
    yield from heartbeat(fleet, generation)
    yield from three_types(fleet, generation)


def burst(spark: Spark, sites: int) -> Iterator[Result]:
    """The first round is for warming up."""
    fleet = Fleet(sites, clusters=10, policies=1, failing=10, prefix="burst")
    took = []
    with running(spark) as hub:
        hub.create_topics(fleet.names())
        hub.start()
        for generation in (1, 2, 3):
            hub.feeder.prepare(made(three_types, fleet, generation))
            sent = hub.feeder.send()
            took.append(hub.wait_applied([HUB_INFO, BASE, FLIP], generation, 3 * sites, fleet.prefix) - sent.first)
    unit = f"s, {sites:,} sites × 3 types in one moment, sent to all committed"
    yield Result("burst_first_s", round(took[0], 2), "s, nothing was warm or known")
    yield Result("burst_s", round(statistics.median(took[1:]), 2), unit)
