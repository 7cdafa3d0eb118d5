"""Far more bundles than can be applied: how fast they are taken in, against the same source read to nowhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from bridgeparts.feeder import SHARED, made
from bridgeparts.hub import Hub, running
from bridgeparts.payloads import BASE, Message, small
from bridgeparts.progress import went_on
from harness import Result
from trunkline.bridge.shipped import SHIPPED
from trunkline.pipeline.kafka.format import FORMAT, KafkaFormat
from trunkline.pipeline.kafka.settings import BUNDLES, Settings, Subscription
from trunkline.pipeline.newest import Newest
from trunkline.pipeline.session import Spark

SIZE = 1024
_WARM_BUNDLES = 60_000
"""Enough for Spark to conflate them as it does in overload."""
_COUNTS = "SELECT sum(received)::bigint, sum(conflated)::bigint, sum(applied)::bigint FROM bridge.counter"


def versions(names: Sequence[str], first: int, last: int) -> Iterator[Message]:
    """One version of all sites after the other."""
    for generation in range(first, last + 1):
        yield from small(names, generation, SIZE)


def _batches(progress: Sequence[Any]) -> tuple[int, float]:
    """Rows that reached Spark, and seconds of whole batches."""
    with_rows = [p for p in progress if went_on(p)]
    return sum(p.numInputRows for p in with_rows), sum(p.durationMs["triggerExecution"] for p in with_rows) / 1000


def read_to_nowhere(hub: Hub, group: str, newest: str = "") -> float:
    """Seconds that the bridge's own source takes for all of the topic. `newest`: what it conflates by itself."""
    subscription = Subscription(frozenset({SHARED}))
    place = (hub.dsn, group, hub.grant, hub.spark.cores, hub.broker.bootstrap, subscription)
    settings = Settings(*place, envelope=BUNDLES, newest=newest)
    stream = hub.spark.session.readStream.format(FORMAT).options(**settings.options()).load()
    folder = hub.folder / group
    writer = stream.writeStream.format("noop").option("checkpointLocation", folder.as_uri())
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return _batches(query.recentProgress)[1]


def overload(spark: Spark, sites: int, bundles: int) -> Iterator[Result]:
    """The rate of reading is that of the same source that gives every bundle to Spark, and of the one that, as the bridge's
    does, leaves out those it can: the better one counts."""
    names, each, warm = [f"busy{n:05}" for n in range(sites)], bundles // sites, _WARM_BUNDLES // sites
    with running(spark) as hub:
        hub.create_topics(shared=True)
        spark.register(KafkaFormat)
        hub.feeder.stream(made(versions, names, 1, warm), True)
        hub.start()
        hub.wait_applied([BASE], warm, sites, "busy")
        hub.stop()
        hub.feeder.stream(made(versions, names, warm + 1, warm + each), True)
        all_, newest = sites * (each + warm), str(Newest.of(SHIPPED))
        for group in ("warm", "read"):
            read = all_ / read_to_nowhere(hub, group)
        conflated = all_ / read_to_nowhere(hub, "conflated", newest)
        yield Result("read_bundles_per_s", round(read), "bundles/s of 1 KB, the same source to noop")
        yield Result("read_conflated_bundles_per_s", round(conflated), "bundles/s of 1 KB, to noop, conflated while read")
        yield from _intake(hub, sites, sites * each, warm + each, max(read, conflated))


def _intake(hub: Hub, sites: int, bundles: int, newest: int, read: float) -> Iterator[Result]:
    before, split, begun = _counts(hub), hub.split(), time.time()
    hub.start()
    query = hub.query()
    last = hub.wait_applied([BASE], newest, sites, "busy")
    cpu = split.used()
    received, conflated, applied = (a - b for a, b in zip(_counts(hub), before, strict=True))
    assert received == bundles, f"{bundles} sent, {received} counted"
    time.sleep(1.0)  # progress is told a little after the commit
    rows, seconds = _batches(query.recentProgress)
    yield Result("intake_bundles_per_s", round(bundles / seconds), f"bundles/s of 1 KB, {bundles:,} of {sites:,} sites")
    yield Result("intake_share_of_read", round(bundles / seconds / read, 3), "of what is read to noop", goal=0.7)
    yield Result("overload_seconds", round(last - begun, 2), "s, start of the query to the newest version of every site")
    yield Result("overload_rows_to_spark", rows, "rows; the others were conflated while they were read")
    yield Result("overload_conflated_share", round(conflated / received, 4), "of all bundles")
    yield Result("overload_applied", applied, "bundles")
    for part in ("spark", "python", "postgres", "kafka"):
        yield Result(f"cpu_us_per_bundle_{part}", round(cpu[part] / bundles * 1e6, 2), "µs, in overload")


def _counts(hub: Hub) -> tuple[int, ...]:
    found = hub.conn.execute(_COUNTS).fetchone()
    assert found is not None
    return tuple(map(int, found))
