"""The source's two halves on a real broker, called as Spark calls them but without it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from kafka_topics import Topics
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.core.errors import Fenced, Retryable, Terminal
from trunkline.db.lease import Grant, acquire, commit_fenced, connect_fenced
from trunkline.pipeline.kafka.clients import close_kept
from trunkline.pipeline.kafka.cluster import Cluster
from trunkline.pipeline.kafka.judge import Span
from trunkline.pipeline.kafka.offsets import move_offsets, open_plan, read_offsets
from trunkline.pipeline.kafka.plan import Plan
from trunkline.pipeline.kafka.records import SCHEMA
from trunkline.pipeline.kafka.settings import Settings, Subscription
from trunkline.pipeline.kafka.source import KafkaReader, Pieces
from waiting import eventually

GROUP = "g"
ALL = ReadAllAvailable()
Row = dict[str, Any]
_numbers = itertools.count(1)


class Site:
    """A reader group over all topics of one test, and a lease for it."""

    def __init__(self, dsn: str, topics: Topics, stack: ExitStack) -> None:
        self.dsn, self.topics, self._stack = dsn, topics, stack
        self.conn = stack.enter_context(connect_fenced(dsn))
        self.grant = self.win()

    def win(self) -> Grant:
        self.conn.execute("UPDATE site.lease SET expires_at = '-infinity'")
        self.conn.commit()
        grant = acquire(self.conn, "group", 600.0)
        assert grant is not None
        return grant

    def settings(self, **more: Any) -> Settings:
        subscription = more.pop("subscription", Subscription.prefix(self.topics.prefix + "-"))
        defaults: dict[str, Any] = {"patience_seconds": 10.0, "grant": self.grant, **more}
        return Settings(self.dsn, GROUP, tasks=2, bootstrap=self.topics.bootstrap, subscription=subscription, **defaults)

    def reader(self, **more: Any) -> KafkaReader:
        reader = KafkaReader(self.settings(**more))
        self._stack.callback(reader.stop)
        return reader

    def plan(self) -> Plan:
        plan = open_plan(self.conn, GROUP)
        self.conn.rollback()
        assert plan is not None
        return plan

    def take(self, plan: Plan) -> None:
        move_offsets(self.conn, GROUP, plan)
        commit_fenced(self.conn, self.grant)

    def stands(self) -> dict[str, dict[int, int]]:
        found = read_offsets(self.conn, GROUP)
        self.conn.rollback()
        return {topic.removeprefix(f"{self.topics.prefix}-"): standing.next for topic, standing in found.items()}

    def batch(self, reader: KafkaReader, limit: ReadLimit = ALL) -> list[Row]:
        """One whole batch, from Postgres's offsets to Postgres's offsets."""
        start = reader.initialOffset()
        end = reader.latestOffset(start, limit)
        if end == start:
            return []
        rows = read_all(reader, start, end)
        plan = self.plan()
        Cluster(self.topics.bootstrap, {}, 10.0).ask_same_topics(plan)()
        self.take(plan)
        assert reader.initialOffset() == end
        return rows


def read_all(reader: KafkaReader, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    tasks = reader.partitions(start, end)
    return [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def values(rows: list[Row]) -> list[str | None]:
    ordered = sorted(rows, key=lambda r: (r["topic"], r["partition"], r["offset"]))
    return [None if r["value"] is None else r["value"].decode() for r in ordered]


@pytest.fixture
def site(make_database: Callable[..., str], kafka: KafkaBroker) -> Iterator[Site]:
    with ExitStack() as stack:
        stack.callback(close_kept)
        topics = Topics(kafka.bootstrap, f"source{next(_numbers)}")
        stack.callback(topics.close)
        yield Site(make_database("pipeline"), topics, stack)


def test_a_new_topic_and_a_grown_partition_are_read_from_their_earliest_in_the_next_batch(site: Site) -> None:
    reader = site.reader()
    assert site.batch(reader) == []
    site.topics.create("a")
    site.topics.put("a", "1", "2")
    assert values(site.batch(reader)) == ["1", "2"]
    site.topics.create("b", partitions=2)
    site.topics.put("b", "3", partition=1)
    assert values(site.batch(reader)) == ["3"]
    site.topics.grow("a", 3)
    site.topics.put("a", "4", partition=2)
    assert values(site.batch(reader)) == ["4"]
    assert site.stands() == {"a": {0: 2, 1: 0, 2: 1}, "b": {0: 0, 1: 1}}


def test_topics_are_chosen_by_name_pattern_or_prefix_and_kafkas_own_only_by_name(site: Site) -> None:
    site.topics.create("a", "b", "c1", "c22")
    for topic in ("a", "b", "c1", "c22"):
        site.topics.put(topic, topic)
    a, c = site.topics.name("a"), site.topics.name("c")

    def read(subscription: Subscription) -> list[str | None]:
        site.conn.execute("DELETE FROM pipeline.kafka_plan")
        site.conn.commit()
        reader = site.reader(subscription=subscription)
        start = reader.initialOffset()
        return values(read_all(reader, start, reader.latestOffset(start, ALL)))

    assert read(Subscription(frozenset({a, "no-such-topic"}))) == ["a"]
    assert read(Subscription(pattern=f"{c}[0-9]")) == ["c1"]
    assert read(Subscription(frozenset({a}), f"{c}[0-9]+")) == ["a", "c1", "c22"]
    assert read(Subscription.prefix(c)) == ["c1", "c22"]
    assert not Subscription(pattern=".*").wants("__consumer_offsets")
    assert Subscription(frozenset({"__consumer_offsets"})).wants("__consumer_offsets")


def test_all_columns_tombstones_and_missing_headers(site: Site) -> None:
    site.topics.create("a")
    site.topics.put("a", "v", key="k", timestamp=1_700_000_000_123,
                    headers={"ce_id": "7", "ce_type": "t", "ce_other": b"\x01", "plain": None})  # fmt: skip
    site.topics.put("a", None, key="gone")
    site.topics.put("a", b"")
    site.topics.put("a", "w", headers=[("ce_id", "first"), ("ce_id", "last"), ("ce_source", b"\xff")])
    full, tombstone, empty, odd = sorted(site.batch(site.reader()), key=lambda r: int(r["offset"]))
    assert list(full) == [column.split()[0] for column in SCHEMA.replace("MAP<STRING, BINARY>", "MAP").split(", ")]
    assert {name: full[name] for name in ("topic", "partition", "offset", "key", "value", "ce_id", "ce_type", "ce_time")} == {
        "topic": site.topics.name("a"), "partition": 0, "offset": 0, "key": b"k", "value": b"v",
        "ce_id": "7", "ce_type": "t", "ce_time": None,
    }  # fmt: skip
    assert full["timestamp"].timestamp() == 1_700_000_000.123
    assert dict(full["headers"]) == {"ce_other": b"\x01", "plain": None}
    assert (tombstone["key"], tombstone["value"], tombstone["headers"], tombstone["ce_id"]) == (b"gone", None, None, None)
    assert (empty["key"], empty["value"]) == (None, b"")
    assert (odd["ce_id"], odd["ce_source"], dict(odd["headers"])) == ("last", None, {"ce_source": b"\xff"})


def test_aborted_records_and_markers_are_holes_and_no_loss(site: Site) -> None:
    site.topics.create("a")
    reader = site.reader()
    site.topics.put("a", "1")
    site.topics.abort("a", "x", "y")
    site.topics.put("a", "2")
    site.topics.abort("a", "z")
    assert values(site.batch(reader)) == ["1", "2"]
    [end] = site.stands()["a"].values()
    assert end > 5  # two records, three aborted ones, two markers
    assert site.batch(reader) == []
    site.topics.abort("a", "only", "holes")
    assert site.batch(reader) == []
    assert site.stands()["a"][0] > end
    site.topics.put("a", "3")
    assert values(site.batch(reader)) == ["3"]
    assert site.conn.execute("SELECT count(*) FROM pipeline.kafka_gap").fetchone() == (0,)


def test_a_batch_that_ends_among_aborted_records_ends(site: Site) -> None:
    site.topics.create("a")
    reader = site.reader()
    site.topics.put("a", "1")
    site.topics.abort("a", "x", "y", "z")
    site.topics.put("a", "2")
    batches = [values(site.batch(reader, ReadMaxRows(2))) for _ in range(4)]
    assert batches == [["1"], [], ["2"], []]


def test_compaction_leaves_holes_and_no_loss(site: Site) -> None:
    site.topics.create("a", config={"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001"})
    begin = int(time.time() * 1000) - 100_000
    for n in range(8):  # by its time each record begins a new segment, and all but the last are compacted
        site.topics.put("a", str(n), key="only" if n != 3 else "other", timestamp=begin + n * 10_000)
    eventually(lambda: site.topics.offsets("a") == [3, 6, 7], why=lambda: site.topics.offsets("a"))
    reader = site.reader()
    assert [values(site.batch(reader, ReadMaxRows(2))) for _ in range(4)] == [[], ["3"], [], ["6", "7"]]
    assert site.stands()["a"][0] == 8
    assert site.conn.execute("SELECT count(*) FROM pipeline.kafka_gap").fetchone() == (0,)


def test_an_open_transaction_is_read_when_it_is_committed(site: Site) -> None:
    site.topics.create("a")
    reader = site.reader()
    producer = site.topics.producer(transactional_id=site.topics.name("open"))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(site.topics.name("a"), "in doubt")
    producer.flush(30)
    site.topics.put("a", "behind it")
    assert site.batch(reader) == []
    producer.commit_transaction(30)
    site.topics.until_decided("a")
    assert values(site.batch(reader)) == ["in doubt", "behind it"]


def test_trimmed_records_are_recorded_as_lost_and_the_rest_is_read(site: Site) -> None:
    site.topics.create("a", partitions=2)
    reader = site.reader()
    site.topics.put("a", "1", "2")
    assert values(site.batch(reader)) == ["1", "2"]
    site.topics.put("a", "3", "4", "5", "6")
    site.topics.trim("a", before=5)
    with pytest.raises(Retryable, match=r"(?i)offset out of range"):  # so young that nobody asked whether they are still there
        site.batch(reader)
    reader = site.reader()
    assert values(site.batch(reader)) == ["6"]
    site.topics.put("a", "7", "8", "9", "10")
    assert values(site.batch(reader, ReadMaxRows(1))) == ["7"]
    site.topics.trim("a", before=10)
    assert site.batch(reader) == []
    gaps = site.conn.execute("SELECT topic, partition, from_offset, to_offset FROM pipeline.kafka_gap ORDER BY id").fetchall()
    assert gaps == [(site.topics.name("a"), 0, 2, 5), (site.topics.name("a"), 0, 7, 10)]
    site.topics.put("a", "11")
    assert values(site.batch(reader)) == ["11"]


@pytest.mark.parametrize(
    "new", [["x"], ["x", "y", "z"], ["x", "y", "z", "over", "and above"]], ids=["shorter", "equal", "longer"]
)
def test_h31_a_topic_made_anew_is_read_from_its_earliest_and_the_reset_recorded(site: Site, new: list[str]) -> None:
    site.topics.create("a", partitions=2)
    reader = site.reader()
    site.topics.put("a", "1", "2", "3")
    assert values(site.batch(reader)) == ["1", "2", "3"]
    [old] = (standing.id for standing in read_offsets(site.conn, GROUP).values())
    site.topics.recreate("a")
    site.topics.put("a", *new)
    if len(new) > 3:  # it looks like the old one gone on, until the batch is to be committed
        with pytest.raises(Retryable, match="made anew while they were read"):
            site.batch(reader)
        reader = site.reader()
    got = values(site.batch(reader))
    if len(new) == 3:  # it stands where the old one did; who it is comes out with its next record, before any is read
        assert got == []
        site.topics.put("a", "more")
        got, new = values(site.batch(site.reader())), [*new, "more"]
    assert got == new
    [now] = read_offsets(site.conn, GROUP).values()
    assert now.next == {0: len(new)}
    assert site.conn.execute("SELECT topic, old_id, new_id, stood FROM pipeline.kafka_change").fetchall() == [
        (site.topics.name("a"), old, now.id, {"0": 3, "1": 0})
    ]
    assert site.conn.execute("SELECT count(*) FROM pipeline.kafka_gap").fetchone() == (0,)


def test_h31_a_topic_made_anew_that_outgrows_the_old_one_during_a_look_is_read_from_its_earliest(site: Site) -> None:
    name = site.topics.name("a")

    class Interrupted(Cluster):
        """Something happens between the two tries of a look."""

        def _settle(self, topics: Any, ids: Any, offsets: Any) -> Any:
            if ids:
                site.topics.put("a", "2", "3", "4", "5")
            return super()._settle(topics, ids, offsets)

    site.topics.create("a")
    site.topics.put("a", "1", "2", "3")
    site.batch(site.reader())
    offsets = read_offsets(site.conn, GROUP)
    cluster = Interrupted(site.topics.bootstrap, {}, 10.0)
    cluster.look(lambda topic: topic == name, offsets)
    site.topics.recreate("a")
    site.topics.put("a", "1")
    seen = cluster.look(lambda topic: topic == name, offsets).seen[name]
    assert seen.id != offsets[name].id
    assert seen.spans == {0: Span(0, 5)}


def test_a_deleted_topic_is_forgotten_with_a_record_and_the_others_go_on(site: Site) -> None:
    site.topics.create("a", "b")
    reader = site.reader()
    site.topics.put("a", "1")
    site.topics.put("b", "2")
    assert values(site.batch(reader)) == ["1", "2"]
    site.topics.delete("a")
    site.topics.put("b", "3")
    assert values(site.batch(reader)) == ["3"]
    assert site.stands() == {"b": {0: 2}}
    assert site.conn.execute("SELECT topic, new_id FROM pipeline.kafka_change").fetchall() == [(site.topics.name("a"), None)]
    assert site.batch(reader) == []


def test_a_topic_that_was_only_out_of_sight_goes_on_where_it_stood(site: Site) -> None:
    site.topics.create("a")
    reader = site.reader()
    site.topics.put("a", "1", "2")
    assert values(site.batch(reader)) == ["1", "2"]
    site.conn.execute(
        "INSERT INTO pipeline.kafka_change (reader_group, topic, old_id, stood)"
        " SELECT reader_group, topic, topic_id, '{\"0\": 2}' FROM pipeline.kafka_offset"
    )
    site.conn.execute("DELETE FROM pipeline.kafka_offset")
    site.conn.commit()
    site.topics.put("a", "3")
    assert values(site.batch(reader)) == ["3"]


def test_a_topic_no_longer_wanted_keeps_its_offsets(site: Site) -> None:
    site.topics.create("a", "b")
    site.topics.put("a", "1")
    site.topics.put("b", "2")
    assert values(site.batch(site.reader())) == ["1", "2"]
    site.topics.put("a", "3")
    site.topics.put("b", "4")
    only_b = Subscription(frozenset({site.topics.name("b")}))
    assert values(site.batch(site.reader(subscription=only_b))) == ["4"]
    assert site.stands() == {"a": {0: 1}, "b": {0: 2}}
    assert values(site.batch(site.reader())) == ["3"]


def test_h28_a_query_starts_where_postgres_stands_and_refuses_ends_it_did_not_plan(site: Site) -> None:
    site.topics.create("a")
    site.topics.put("a", "1", "2")
    reader = site.reader()
    site.batch(reader)
    end = site.reader().initialOffset()
    with pytest.raises(Terminal, match="new, empty checkpoint"):
        site.reader().partitions(end, end)
    site.topics.put("a", "3")
    reader.latestOffset(end, ALL)
    for start, other in ((end, {"stand": "other"}), ({"stand": "other"}, end), (end, end), ({}, {})):
        with pytest.raises(Terminal, match="new, empty checkpoint"):
            reader.partitions(start, other)
    with pytest.raises(Terminal, match="new, empty checkpoint"):
        site.reader().latestOffset(end, ALL)


def test_h28_an_end_before_the_start_is_refused(site: Site) -> None:
    site.topics.create("a")
    site.topics.put("a", "1", "2")
    reader = site.reader()
    site.batch(reader)
    site.conn.execute("UPDATE pipeline.kafka_offset SET next_offset = 7")
    site.conn.commit()
    start = reader.initialOffset()
    with pytest.raises(Terminal, match="goes backward: read up to 7, but it ends at 2"):
        reader.latestOffset(start, ALL)
    assert open_plan(site.conn, GROUP) is None


def test_h29_the_plan_is_committed_before_the_end_is_named_and_a_new_holder_repeats_it(site: Site) -> None:
    site.topics.create("a")
    site.topics.put("a", "1", "2")
    first = site.reader()
    end = first.latestOffset(first.initialOffset(), ALL)
    plan = site.plan()
    assert plan.applied_to({}) and plan.epoch == site.grant.epoch  # noqa: PT018
    site.topics.put("a", "3")
    site.grant = site.win()
    reader = site.reader()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == end
    assert site.plan().epoch == site.grant.epoch
    assert values(read_all(reader, start, end)) == ["1", "2"]
    site.take(site.plan())
    assert values(site.batch(reader)) == ["3"]


def test_h29_an_open_plan_that_can_no_longer_be_read_is_replaced_by_one_that_says_what_was_lost(site: Site) -> None:
    site.topics.create("a")
    reader = site.reader()
    site.topics.put("a", "1")
    site.batch(reader)
    site.topics.put("a", "2", "3")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    site.topics.trim("a", before=2)
    with pytest.raises(Retryable, match=r"(?i)offset out of range"):
        read_all(reader, start, end)
    assert values(site.batch(site.reader())) == ["3"]
    assert site.conn.execute("SELECT from_offset, to_offset FROM pipeline.kafka_gap").fetchall() == [(1, 2)]


def test_h29_an_open_plan_from_before_a_restore_is_replaced(site: Site) -> None:
    site.topics.create("a")
    site.topics.put("a", "1", "2", "3")
    reader = site.reader()
    site.batch(reader, ReadMaxRows(2))
    reader.latestOffset(reader.initialOffset(), ALL)
    site.conn.execute("UPDATE pipeline.kafka_offset SET next_offset = 1")
    site.conn.commit()
    assert values(site.batch(reader)) == ["2", "3"]


def test_h31_a_topic_made_anew_between_plan_and_commit_is_not_taken_for_the_old_one(site: Site) -> None:
    site.topics.create("a")
    site.topics.put("a", "1", "2")
    reader = site.reader()
    reader.latestOffset(reader.initialOffset(), ALL)
    plan = site.plan()
    cluster = Cluster(site.topics.bootstrap, {}, 10.0)
    cluster.ask_same_topics(plan)()
    site.topics.recreate("a")
    site.topics.put("a", "x", "y", "z")
    with pytest.raises(Retryable, match="made anew while they were read"):
        cluster.ask_same_topics(plan)()
    assert values(site.batch(reader)) == ["x", "y", "z"]


def test_h01_a_past_holder_plans_nothing(site: Site) -> None:
    site.topics.create("a")
    site.topics.put("a", "1")
    reader = site.reader()
    site.win()
    with pytest.raises(Fenced):
        reader.latestOffset(reader.initialOffset(), ALL)
    assert open_plan(site.conn, GROUP) is None


def test_with_nothing_new_the_start_comes_back_itself(site: Site) -> None:
    site.topics.create("a")
    site.topics.put("a", "1")
    reader = site.reader()
    site.batch(reader)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) is start
    assert open_plan(site.conn, GROUP) is None
    site.topics.put("a", "2", "3", "4")
    assert reader.latestOffset(start, ReadMaxRows(1)) != start
    assert reader.reportLatestOffset() == {"planned": 1, "behind": 2}


def test_bytes_and_rows_bound_a_batch_for_every_topics_own_size(site: Site) -> None:
    site.topics.create("small", "large")
    site.topics.put("small", *["s" * 100] * 400)
    site.topics.put("large", *["l" * 20_000] * 40)
    reader = site.reader(max_bytes=200_000, max_records=100)
    assert reader.getDefaultReadLimit() == ReadMaxBytes(200_000)
    sizes, lengths = [], []
    while rows := site.batch(reader, reader.getDefaultReadLimit()):
        sizes.append(sum(len(r["value"]) for r in rows))
        lengths.append(len(rows))
    assert sum(lengths) == 440
    assert max(sizes) <= 200_000
    assert max(lengths) <= 100
    assert len(sizes) < 10


def test_a_run_to_the_end_of_what_is_there_leaves_what_comes_later(site: Site) -> None:
    site.topics.create("a")
    site.topics.put("a", "1", "2", "3")
    reader = site.reader()
    reader.prepareForTriggerAvailableNow()
    site.topics.put("a", "4")
    site.topics.create("b")
    site.topics.put("b", "5")
    assert values(site.batch(reader, ReadMaxRows(2))) == ["1", "2"]
    assert values(site.batch(reader)) == ["3"]
    assert site.batch(reader) == []
    assert values(site.batch(site.reader())) == ["4", "5"]


def test_many_topics_are_read_by_as_many_tasks_as_cores(site: Site) -> None:
    names = [f"t{n:03}" for n in range(1000)]
    site.topics.create(*names)
    for name in names:
        site.topics.put(name, "1", "2")
    reader = site.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    tasks = reader.partitions(start, end)
    assert sorted(len(task.pieces) for task in tasks if isinstance(task, Pieces)) == [500, 500]
    assert len(read_all(reader, start, end)) == 2000


def test_a_broker_that_is_not_there_is_said_in_time(site: Site) -> None:
    reader = KafkaReader(
        Settings(site.dsn, GROUP, site.grant, 2, "127.0.0.1:9", Subscription(pattern=".*"), patience_seconds=0.5)
    )
    with pytest.raises(Retryable, match=r"Kafka at 127.0.0.1:9"):
        reader.latestOffset(reader.initialOffset(), ALL)
    with pytest.raises(Retryable, match=r"nothing came for 0.5 s before offset 9 of t/0"):
        list(reader.read(Pieces([("t", 0, 0, 9)])))
    reader.stop()


def test_settings_survive_as_options(site: Site) -> None:
    settings = site.settings(subscription=Subscription(frozenset({"a", "b"}), "c.*"), client={"compression.type": "lz4"})
    assert Settings.of(settings.options()) == settings
