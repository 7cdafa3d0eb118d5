"""Status messages out of Kafka records: whose they are, and their headers as ours."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from fleet_feed import clusters
from hub_agent import PREFIX, compliance, event
from kafka_topics import Topics
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.core.bundle import parse_bundle
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps, loads
from trunkline.db.lease import acquire, connect_fenced
from trunkline.pipeline.arrivals import HEADER_COLUMNS
from trunkline.pipeline.kafka.bundles import Senders
from trunkline.pipeline.kafka.clients import close_kept
from trunkline.pipeline.kafka.settings import BUNDLES, Settings, Subscription
from trunkline.pipeline.kafka.source import KafkaReader

Row = dict[str, Any]
_numbers = itertools.count(1)


class Source:
    """Reads all that is in a test's topics, as a task would."""

    def __init__(self, dsn: str, topics: Topics, stack: ExitStack) -> None:
        self.dsn, self.topics, self._stack = dsn, topics, stack
        self.conn = stack.enter_context(connect_fenced(dsn))

    def read(self, *shared: str) -> list[Row]:
        grant = acquire(self.conn, "group", 600.0)
        assert grant is not None
        pattern = rf"{self.topics.prefix}-(?P<site>.+)"
        subscription = Subscription(frozenset(map(self.topics.name, shared)), pattern)
        reader = KafkaReader(Settings(self.dsn, "g", grant, 1, self.topics.bootstrap, subscription, envelope=BUNDLES))
        self._stack.callback(reader.stop)
        start = reader.initialOffset()
        tasks = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
        return sorted(rows, key=lambda r: (r["queue"], r["position"]))


@pytest.fixture
def source(make_database: Callable[..., str], kafka: KafkaBroker) -> Iterator[Source]:
    with ExitStack() as stack:
        stack.callback(close_kept)
        topics = Topics(kafka.bootstrap, f"bundles{next(_numbers)}")
        stack.callback(topics.close)
        yield Source(make_database("pipeline"), topics, stack)


def headers_of(row: Row) -> dict[str, str]:
    known = {name: row[name] for name in HEADER_COLUMNS if row[name] is not None}
    return {**(loads(row["headers"]) if row["headers"] else {}), **known}


def test_our_own_messages_come_as_they_are_with_their_place_and_time(source: Source) -> None:
    source.topics.create("h1", partitions=2)
    headers, payload = clusters("h1", 7, "c")
    source.topics.put("h1", payload, headers=headers, partition=1, timestamp=1_700_000_000_500)
    [row] = source.read()
    assert (row["queue"], row["position"], row["remote"]) == (f"{source.topics.name('h1')}@1", 0, "h1")
    assert headers_of(row) == headers
    assert row["headers"] is None
    assert (row["payload"], row["at"], row["kind"]) == (payload, 1_700_000_000.5, 1)


def test_messages_of_a_global_hub_agent_and_structured_ones_become_ours_beside_others(source: Source) -> None:
    source.topics.create("h1")
    structured = {
        "specversion": "1.0", "id": "s", "source": "h1", "type": "clusters", "mode": "complete", "incarnation": "1",
        "generation": "2", "data": [{"name": "c"}],
    }  # fmt: skip
    source.topics.put("h1", clusters("h1", 1, "c")[1], headers=clusters("h1", 1, "c")[0])
    for headers, payload in (compliance("h1", "3.4", compliant=["c"]), event("h1", "event.managedcluster", "5.6", {"a": 1},
                             sendmode="single", sessionid="run-1")):  # fmt: skip
        source.topics.put("h1", payload, headers=headers)
    source.topics.put("h1", dumps(structured), headers={"content-type": "application/cloudevents+json; charset=utf-8"})
    rows = source.read()
    ours, agent, single, whole = (parse_bundle(headers_of(r), r["payload"], "h1") for r in rows)
    assert ours.type == "clusters"
    assert (agent.type, agent.version.incarnation, agent.version.generation, agent.value) == ("clusters-per-policy", -1, 3, 4)
    assert (single.session, loads(single.data)) == ("run-1", [{"a": 1}])
    assert (whole.type, str(whole.version), loads(whole.data)) == ("clusters", "1.2", [{"name": "c"}])


def test_what_cannot_be_read_comes_all_the_same(source: Source) -> None:
    source.topics.create("h1")
    source.topics.put("h1", b"junk")
    source.topics.put("h1", None, headers={"ce_id": b"\xff", "own": "x", "none": None})
    source.topics.put("h1", b"{", headers={"content-type": "application/cloudevents+json"})
    source.topics.put("h1", b"[]", headers={"ce_type": PREFIX + "no.such"})
    rows = source.read()
    assert [r["payload"] for r in rows] == [b"junk", b"", b"{", b"[]"]
    assert headers_of(rows[1]) == {"ce_id": "\\xff", "own": "x"}
    for row in rows:
        with pytest.raises(Invalid):
            parse_bundle(headers_of(row), row["payload"], "h1")


def test_on_a_shared_topic_the_key_is_the_sender(source: Source) -> None:
    source.topics.create("all", "h1")
    source.topics.put("all", b"", key=b"h7")
    source.topics.put("h1", b"", key=b"h7")
    for key in (None, b"", b"\xff", b"no\x00name", b"x" * 70):
        source.topics.put("all", b"", key=key)
    rows = source.read("all")
    assert [r["remote"] for r in rows] == ["h7", "", "", "", "", "", "h1"]


def test_a_pattern_that_does_not_say_which_part_is_the_site_is_refused() -> None:
    with pytest.raises(Invalid, match=r"put that part in a group"):
        Senders(Subscription(pattern="status.*"))
    assert Senders(Subscription(pattern=r"a(?P<site>\d)?")).of("a", None) == ""
