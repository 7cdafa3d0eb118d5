"""A named consumer's stream: offsets, plans and rows as Spark asks for them, and one real query that dies and starts again."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from received_rows import CLIENT, put, queue_of

from trunkline.core.errors import Invalid, Terminal
from trunkline.core.jsoncodec import loads
from trunkline.pipeline.queue_source import FORMAT, QueueSource
from trunkline.pipeline.queue_stream import QueueStreamReader, Ranges, StreamSettings
from trunkline.pipeline.session import Spark
from trunkline.queues.consumers import Detached, attach, detach_idle, positions
from trunkline.queues.kinds import Kind
from waiting import eventually

ALL = ReadAllAvailable()
A, B = queue_of("a"), queue_of("b")
_TABLES = "queue, receive, consumer, consumed, spark_plan"


class Hub:
    def __init__(self, dsn: str, stack: ExitStack) -> None:
        self.dsn, self._stack = dsn, stack

    def reader(self, consumer: str = "etl", max_entries: int = 1000) -> QueueStreamReader:
        reader = QueueStreamReader(StreamSettings(self.dsn, CLIENT, consumer, max_entries=max_entries))
        self._stack.callback(reader.stop)
        return reader

    def put(self, remote: str, count: int) -> None:
        put(self.dsn, remote, [f"{remote}{n}".encode() for n in range(count)])

    def stands(self, consumer: str = "etl") -> dict[str, int]:
        with psycopg.connect(self.dsn) as conn:
            return {place.name: place.position for place in positions(conn, CLIENT, consumer)}

    def plan(self) -> Any:
        with psycopg.connect(self.dsn) as conn:
            return conn.execute("SELECT from_offsets, to_offsets FROM queues.spark_plan").fetchone()

    def do(self, statement: str, *args: Any) -> None:
        with psycopg.connect(self.dsn) as conn:
            conn.execute(statement.encode(), args)


@pytest.fixture(scope="module")
def queues(make_databases: Callable[..., str]) -> str:
    return make_databases("queues")


@pytest.fixture
def hub(queues: str) -> Iterator[Hub]:
    with ExitStack() as stack:
        hub = Hub(queues, stack)
        yield hub
    hub.do("TRUNCATE " + ", ".join(f"queues.{table}" for table in _TABLES.split(", ")) + " RESTART IDENTITY")


def rows_of(reader: QueueStreamReader, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
    return [row for task in reader.partitions(start, end) for batch in reader.read(task) for row in batch.to_pylist()]


def test_a_new_consumer_starts_at_the_tails_and_one_that_was_there_where_it_stands(hub: Hub) -> None:
    hub.put("a", 9)
    hub.put("b", 1)
    hub.do("UPDATE queues.queue SET tail = 4 WHERE remote = 'a'")
    reader = hub.reader()
    assert reader.initialOffset() == {A: 5, B: 1}
    reader.commit(reader.latestOffset({A: 5, B: 1}, ALL))
    assert hub.reader().initialOffset() == {A: 10, B: 2}
    assert hub.reader("other").initialOffset() == {A: 5, B: 1}


def test_h29_the_plan_is_committed_before_the_end_is_named_and_nothing_is_passed_by_it(hub: Hub) -> None:
    hub.put("a", 5)
    assert hub.reader().latestOffset({A: 1}, ALL) == {A: 6}
    assert (hub.plan(), hub.stands()) == (({A: 1}, {A: 6}), {A: 0})


def test_a_batch_is_passed_by_commit_or_when_the_next_one_is_asked_for(hub: Hub) -> None:
    hub.put("a", 5)
    reader = hub.reader()
    reader.latestOffset({A: 1}, ALL)
    reader.commit({A: 6})
    assert hub.stands() == {A: 5}
    reader.commit({A: 6})
    hub.put("a", 2)
    assert reader.latestOffset({A: 6}, ALL) == {A: 8}
    hub.put("b", 1)
    assert reader.latestOffset({A: 8}, ALL) == {A: 8, B: 2}
    assert hub.stands() == {A: 7, B: 0}
    reader.commit({A: 6})  # of long ago
    assert hub.stands() == {A: 7, B: 0}


def test_with_nothing_new_the_start_comes_back_and_no_plan_is_made(hub: Hub) -> None:
    put(hub.dsn, "a", [b"x"], client="another")
    reader = hub.reader()
    assert reader.latestOffset({}, ALL) == {}
    hub.do("INSERT INTO queues.queue (client, remote) VALUES ('pol', 'empty')")
    assert reader.latestOffset({}, ALL) == {}
    assert hub.plan() is None


def test_a_batch_is_bounded_and_shared_among_queues(hub: Hub) -> None:
    hub.put("a", 100)
    hub.put("b", 3)
    reader = hub.reader(max_entries=10)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    assert reader.latestOffset({}, limit) == {A: 8, B: 4}
    assert reader.reportLatestOffset() == {A: 101, B: 4}


def test_available_now_ends_where_the_queues_ended_when_it_began(hub: Hub) -> None:
    hub.put("a", 5)
    reader = hub.reader()
    reader.prepareForTriggerAvailableNow()
    hub.put("a", 5)
    hub.put("b", 5)
    assert reader.latestOffset({A: 1}, ReadMaxRows(3)) == {A: 4}
    assert reader.latestOffset({A: 4}, ALL) == {A: 6}
    assert reader.latestOffset({A: 6}, ALL) == {A: 6}


@pytest.mark.parametrize("start", [{A: 3}, {A: 5}, {A: 9}, {A: 20}, {}])
def test_h28_a_checkpoint_of_another_time_is_refused_and_nothing_is_passed(hub: Hub, start: dict[str, int]) -> None:
    """As after a restore of the database, or of the checkpoint: the consumer stands at 3, its plan ended at 7."""
    hub.put("a", 10)
    reader = hub.reader()
    reader.latestOffset({A: 1}, ReadMaxRows(3))
    reader.latestOffset({A: 4}, ReadMaxRows(3))
    with pytest.raises(Terminal, match="new, empty checkpoint folder"):
        hub.reader().latestOffset(start, ALL)
    with pytest.raises(Terminal, match="is not the one that was planned"):
        hub.reader().partitions(start, {A: 11})
    assert (hub.stands(), hub.plan()) == ({A: 3}, ({A: 4}, {A: 7}))


def test_h28_an_end_before_the_start_is_refused(hub: Hub) -> None:
    hub.put("a", 3)
    reader = hub.reader()
    reader.commit(reader.latestOffset({}, ALL))
    hub.do("UPDATE queues.queue SET head = 1")
    with pytest.raises(Terminal, match="the queues end before"):
        reader.latestOffset({A: 4}, ALL)


def test_a_killed_query_reads_its_last_batch_again_and_goes_on_behind_it(hub: Hub) -> None:
    hub.put("a", 5)
    hub.reader().latestOffset({A: 1}, ReadMaxRows(3))
    again = hub.reader()
    assert again.initialOffset() == {A: 1}
    assert [r["payload"] for r in rows_of(again, {A: 1}, {A: 4})] == [b"a0", b"a1", b"a2"]
    assert again.latestOffset({A: 4}, ALL) == {A: 6}
    assert hub.stands() == {A: 3}


def test_rows_have_all_columns_of_every_kind(hub: Hub) -> None:
    request = uuid.uuid4()
    put(hub.dsn, "a", [b""], Kind.START, request)
    put(hub.dsn, "a", [b"s0", b"s1"], Kind.SNAPSHOT, request)
    put(hub.dsn, "a", [b""], Kind.LAST, request)
    put(hub.dsn, "a", [b"e"])
    reader = hub.reader()
    rows = rows_of(reader, {A: 1}, reader.latestOffset({A: 1}, ALL))
    assert [(r["position"], r["type"], r["payload"]) for r in rows] == [
        (1, "START", b""), (2, "SNAPSHOT", b"s0"), (3, "SNAPSHOT", b"s1"), (4, "LAST", b""), (5, "LOG_ENTRY", b"e"),
    ]  # fmt: skip
    second, last = rows[2], rows[4]
    assert (second["queue"], second["remote"], second["seq"], second["index"]) == (A, "a", 7, 1)
    assert (second["request"], second["message_id"]) == (str(request), f"a/{request}/1")
    assert (last["request"], last["seq"], last["index"], last["message_id"]) == (None, 5, 0, "a/5/0")
    assert loads(second["headers"]) == {"n": "1"}
    assert QueueSource({"consumer": "etl"}).schema() == (
        "queue STRING, position BIGINT, remote STRING, type STRING, seq BIGINT, index INT, request STRING, message_id STRING, "
        "headers STRING, payload BINARY"
    )
    assert list(second) == [
        "queue",
        "position",
        "remote",
        "type",
        "seq",
        "index",
        "request",
        "message_id",
        "headers",
        "payload",
    ]


def test_a_position_that_is_gone_fails_the_task(hub: Hub) -> None:
    hub.put("a", 5)
    reader = hub.reader()
    (task,) = reader.partitions({A: 1}, reader.latestOffset({A: 1}, ALL))
    for gone, first in ((3, 3), (5, 3), (1, 1)):
        hub.do("DELETE FROM queues.receive WHERE position = %s", gone)
        with pytest.raises(Terminal, match=f"position {first} is no longer there"):
            list(reader.read(task))


def test_large_batches_are_cut_the_same_way_on_every_machine(hub: Hub) -> None:
    hub.do(
        "INSERT INTO queues.spark_plan (client, consumer, from_offsets, to_offsets) VALUES ('pol', 'etl', '{}', %s)",
        Jsonb({A: 10_001, B: 101}),
    )
    tasks = hub.reader().partitions({}, {A: 10_001, B: 101})
    assert sorted(sum(end - first for _, first, end in t.pieces) for t in tasks if isinstance(t, Ranges)) == [5050, 5050]


def test_h23_a_detached_consumer_is_told_so(hub: Hub) -> None:
    with psycopg.connect(hub.dsn) as conn:
        attach(conn, CLIENT, "etl")
        conn.execute("UPDATE queues.consumer SET seen_at = now() - interval '1 day'")
        assert detach_idle(conn, 3600) == [(CLIENT, "etl")]
    with pytest.raises(Detached):
        hub.reader().initialOffset()


def test_options_that_are_missing_are_named() -> None:
    with pytest.raises(Invalid, match="not told its dsn and client"):
        StreamSettings.of({"consumer": "etl"})
    given = {"dsn": "d", "client": "c", "consumer": "x", "tasks": "3", "max_entries": "7"}
    assert StreamSettings.of(given) == StreamSettings("d", "c", "x", 3, 7)


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_query_that_fails_in_the_middle_goes_on_where_it_was_done(spark: Spark, hub: Hub, tmp_path: Path) -> None:
    hub.put("a", 250)
    hub.put("b", 30)
    spark.register(QueueSource)
    batches: list[list[tuple[str, int]]] = []
    broken = [True]

    def take(batch: DataFrame, _: int) -> None:
        if len(batches) == 2 and broken:
            broken.clear()
            raise RuntimeError("no luck")
        batches.append([(row.remote, row.position) for row in batch.collect()])

    def start() -> Any:
        options = {"dsn": hub.dsn, "client": CLIENT, "consumer": "etl", "max_entries": "100"}
        stream = spark.session.readStream.format(FORMAT).options(**options).load()
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", tmp_path.as_uri())
        return writer.trigger(processingTime="100 milliseconds").start()

    query = start()
    with pytest.raises(PySparkException, match="no luck"):
        query.awaitTermination(60)
    passed = hub.stands()
    assert sum(passed.values()) in (100, 200)  # behind what was done, and not further
    query = start()
    try:
        eventually(lambda: sum(hub.stands().values()) == 280, why=hub.stands)
    finally:
        query.stop()
    seen = [row for batch in batches for row in batch]
    assert all(len(batch) <= 100 for batch in batches)
    assert sorted(seen) == [*(("a", n) for n in range(1, 251)), *(("b", n) for n in range(1, 31))]
