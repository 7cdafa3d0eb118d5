"""Small batches read without a task: the same messages, and all of them or none."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from fleet_feed import clusters, events
from hub_agent import PREFIX, compliance
from kafka_topics import Topics
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.core.errors import Retryable
from trunkline.core.jsoncodec import dumps, loads
from trunkline.db.lease import acquire, connect_fenced
from trunkline.pipeline.arrivals import HEADER_COLUMNS
from trunkline.pipeline.conflate import Survivor
from trunkline.pipeline.kafka.clients import close_kept
from trunkline.pipeline.kafka.direct import DirectReader
from trunkline.pipeline.kafka.offsets import open_plan
from trunkline.pipeline.kafka.plan import Plan
from trunkline.pipeline.kafka.settings import BUNDLES, Settings, Subscription
from trunkline.pipeline.kafka.source import KafkaReader
from trunkline.queues.kinds import Kind

_numbers = itertools.count(1)


class Reading:
    """Plans all that is in a test's topics, and reads it either way."""

    def __init__(self, dsn: str, topics: Topics, stack: ExitStack) -> None:
        self.topics, self._conn = topics, stack.enter_context(connect_fenced(dsn))
        grant = acquire(self._conn, "group", 600.0)
        assert grant is not None
        subscription = Subscription(frozenset({topics.name("all")}), rf"{topics.prefix}-(?P<site>.+)")
        self._settings = Settings(dsn, "g", grant, 1, topics.bootstrap, subscription, patience_seconds=4.0, envelope=BUNDLES)
        self.direct = DirectReader(self._settings)
        stack.callback(self.direct.close)
        self._stack = stack

    def plan(self) -> Plan:
        self._task_rows = list(self._read_by_task())
        plan = open_plan(self._conn, "g")
        self._conn.rollback()
        assert plan is not None
        return plan

    def by_task(self) -> list[Survivor]:
        return sorted(map(_survivor, self._task_rows), key=lambda s: (s.queue, s.position))

    def by_itself(self, plan: Plan) -> list[Survivor]:
        return sorted(self.direct.read(plan), key=lambda s: (s.queue, s.position))

    def _read_by_task(self) -> Iterator[dict[str, Any]]:
        reader = KafkaReader(self._settings)
        self._stack.callback(reader.stop)
        start = reader.initialOffset()
        for task in reader.partitions(start, reader.latestOffset(start, ReadAllAvailable())):
            for batch in reader.read(task):
                yield from batch.to_pylist()


def _survivor(row: dict[str, Any]) -> Survivor:
    known = {name: row[name] for name in HEADER_COLUMNS if row[name] is not None}
    headers = {**(loads(row["headers"]) if row["headers"] else {}), **known}
    place = (row["queue"], row["position"], row["remote"])
    return Survivor(*place, headers, row["payload"], row["messages"], row["at"], Kind(row["kind"]))


@pytest.fixture
def reading(make_database: Callable[..., str], kafka: KafkaBroker) -> Iterator[Reading]:
    with ExitStack() as stack:
        stack.callback(close_kept)
        topics = Topics(kafka.bootstrap, f"direct{next(_numbers)}")
        stack.callback(topics.close)
        yield Reading(make_database("pipeline"), topics, stack)


def test_it_reads_what_a_task_reads(reading: Reading) -> None:
    topics = reading.topics
    topics.create("h1", partitions=2)
    topics.create("all", "h2")
    for number, (headers, payload) in enumerate([clusters("h1", 1, "c"), compliance("h1", "3.4", compliant=["c"])]):
        topics.put("h1", payload, headers=headers, partition=number, timestamp=1_700_000_000_500 + number)
    topics.put("h1", dumps({"id": "s"}), headers={"content-type": "application/cloudevents+json"})
    topics.put("h1", None, headers={"ce_id": b"\xff", "own": "x", "none": None})
    topics.put("h1", b"[]", headers=[("ce_type", (PREFIX + "no.such").encode()), ("twice", b"1"), ("twice", b"2")])
    topics.put("h1", b"junk")
    headers, payload = events("h2", 1, "e")
    topics.put("all", payload, headers=headers, key="h2")
    topics.put("all", payload, headers=headers)
    plan = reading.plan()
    found = reading.by_itself(plan)
    assert found == reading.by_task()
    assert Counter(s.remote for s in found) == {"h1": 6, "h2": 1, "": 1}


def test_a_plan_without_records_asks_for_none(reading: Reading) -> None:
    reading.topics.create("h1")
    assert reading.by_itself(reading.plan()) == []


def test_what_was_trimmed_meanwhile_raises_and_the_next_batch_is_read_all_the_same(reading: Reading) -> None:
    reading.topics.create("h1")
    reading.topics.put("h1", b"1", b"2", b"3")
    plan = reading.plan()
    assert [s.payload for s in reading.by_itself(plan)] == [b"1", b"2", b"3"]
    reading.topics.trim("h1", before=2)
    with pytest.raises(Retryable):
        reading.by_itself(plan)
    after = reading.plan()
    assert [s.payload for s in reading.by_itself(after)] == [b"3"]
