"""From topics through a real streaming query into a Postgres table, exactly once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame

from kafka_topics import Topics
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.core.backoff import Backoff
from trunkline.core.clock import SystemClock
from trunkline.db.lease import acquire, connect_fenced
from trunkline.pipeline.kafka.intake import Gather, KafkaIntake, Write
from trunkline.pipeline.kafka.offsets import read_offsets
from trunkline.pipeline.kafka.plan import Plan
from trunkline.pipeline.kafka.settings import Settings, Subscription
from trunkline.pipeline.query import Supervisor
from trunkline.pipeline.session import Spark
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

GROUP = "g"
_numbers = itertools.count(1)


def into_table(batch: DataFrame, plan: Plan) -> Write:
    table: Any = batch.select("topic", "partition", "offset", "value").toArrow()
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def write(conn: psycopg.Connection[Any]) -> None:
        with conn.cursor() as cursor, cursor.copy("COPY taken (topic, partition, at, value) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        with conn.cursor() as cursor:
            wishes = [(g.topic, g.first, g.end) for g in plan.gaps()] + [(c.topic, None, None) for c in plan.changes]
            cursor.executemany("INSERT INTO resync VALUES (%s, %s, %s)", wishes)

    return write


class Running:
    """A holder of the lease with its query, and what the test wants to know of it."""

    def __init__(
        self,
        spark: Spark,
        dsn: str,
        topics: Topics,
        folder: Path,
        stack: ExitStack,
        max_records: int,
        gather: Gather = into_table,
    ) -> None:
        self.dsn, self.topics, self.folder = dsn, topics, folder
        self.conn = stack.enter_context(connect_fenced(dsn))
        self.conn.execute("CREATE TABLE IF NOT EXISTS taken (topic text, partition int, at bigint, value bytea)")
        self.conn.execute("CREATE TABLE IF NOT EXISTS resync (topic text, first bigint, upto bigint)")
        self.conn.commit()
        grant = acquire(self.conn, "group", 600.0)
        assert grant is not None
        subscription = Subscription.prefix(topics.prefix + "-")
        settings = Settings(
            dsn, GROUP, grant, spark.cores, topics.bootstrap, subscription, max_records=max_records, patience_seconds=4.0
        )
        self.intake = KafkaIntake(spark, settings, 0.1, folder / "checkpoints", gather)
        stack.callback(self.intake.stop)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        found = self.conn.execute(query.encode()).fetchall()
        self.conn.rollback()
        return found

    def taken(self) -> list[str]:
        return [value.decode() for (value,) in self.rows("SELECT value FROM taken ORDER BY topic, partition, at")]

    def stands(self) -> dict[str, dict[int, int]]:
        found = read_offsets(self.conn, GROUP)
        self.conn.rollback()
        return {topic.removeprefix(f"{self.topics.prefix}-"): standing.next for topic, standing in found.items()}

    def until(self, holds: Callable[[], bool]) -> None:
        def holds_or_fails() -> bool:
            assert self.intake.failure() is None
            return holds()

        eventually(holds_or_fails, 90, lambda: (self.taken()[-5:], self.stands()))


@pytest.fixture
def topics(kafka: KafkaBroker) -> Iterator[Topics]:
    topics = Topics(kafka.bootstrap, f"intake{next(_numbers)}")
    yield topics
    topics.close()


@pytest.fixture
def run(spark: Spark, make_database: Callable[..., str], topics: Topics, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    dsn = make_database("pipeline")
    with ExitStack() as stack:
        yield lambda max_records=1000, gather=into_table: Running(spark, dsn, topics, tmp_path, stack, max_records, gather)


def test_rows_and_offsets_arrive_together_and_new_topics_are_found_by_a_running_query(
    run: Callable[..., Running], topics: Topics
) -> None:
    running = run(max_records=70)
    topics.create("a", partitions=2)
    numbers = [f"{n:03}" for n in range(200)]
    topics.put("a", *numbers)
    running.intake.start()
    running.until(lambda: running.taken() == numbers)
    topics.create("b")
    topics.put("b", "new")
    topics.put("a", "other", partition=1)
    running.until(lambda: running.taken() == [*numbers, "other", "new"])
    assert running.stands() == {"a": {0: 200, 1: 1}, "b": {0: 1}}
    assert running.rows("SELECT count(*) FROM pipeline.kafka_plan") == [(0,)]


def test_lost_records_and_topics_made_anew_reach_the_caller_in_the_same_transaction(
    run: Callable[..., Running], topics: Topics
) -> None:
    running = run()
    topics.create("a", "b")
    topics.put("a", "1")
    topics.put("b", "old")
    running.intake.start()
    running.until(lambda: running.taken() == ["1", "old"])
    running.intake.stop()
    topics.put("a", "2", "3", "4")
    topics.trim("a", before=3)
    topics.recreate("b")
    topics.put("b", "x", "y")
    running.intake.start()
    running.until(lambda: sorted(running.taken()) == ["1", "4", "old", "x", "y"])
    assert sorted(running.rows("SELECT * FROM resync")) == [(topics.name("a"), 1, 3), (topics.name("b"), None, None)]
    assert running.rows("SELECT from_offset, to_offset FROM pipeline.kafka_gap") == [(1, 3)]


def test_h28_a_restart_with_its_checkpoint_gone_resumes_at_the_offsets_of_postgres(
    run: Callable[..., Running], topics: Topics
) -> None:
    running = run()
    topics.create("a")
    topics.put("a", "1", "2")
    running.intake.start()
    running.until(lambda: running.taken() == ["1", "2"])
    [first] = (running.folder / "checkpoints").iterdir()
    running.intake.stop()
    topics.put("a", "3")
    # As after a restore of Postgres alone: an old checkpoint would be ahead, and is not asked.
    running.conn.execute("UPDATE pipeline.kafka_offset SET next_offset = 1")
    running.conn.execute("DELETE FROM taken WHERE at = 1")
    running.conn.commit()
    running.intake.start()
    running.until(lambda: running.taken() == ["1", "2", "3"])
    [second] = (running.folder / "checkpoints").iterdir()
    assert second != first


@pytest.mark.parametrize("position", [1, 3], ids=["behind", "ahead"])
def test_h28_offsets_that_moved_under_a_running_query_end_it_and_a_restart_goes_on_from_them(
    run: Callable[..., Running], topics: Topics, position: int
) -> None:
    running = run()
    topics.create("a")
    topics.put("a", "1", "2")
    running.intake.start()
    running.until(lambda: running.taken() == ["1", "2"])
    running.conn.execute("UPDATE pipeline.kafka_offset SET next_offset = %s", (position,))
    running.conn.commit()
    topics.put("a", "3", "4")
    eventually(lambda: running.intake.failure() is not None)
    assert "does not begin where the offsets stand" in str(running.intake.failure())
    assert running.taken() == ["1", "2"]
    running.intake.stop()
    running.intake.start()
    running.until(lambda: running.stands() == {"a": {0: 4}})
    assert running.taken() == ["1", "2", *["2", "3", "4"][position - 1 :]]


def test_h31_what_was_read_of_a_topic_made_anew_meanwhile_is_not_taken_in(run: Callable[..., Running], topics: Topics) -> None:
    incidents = iter([lambda: (topics.recreate("a"), topics.put("a", "x", "y", "z"))])

    def gather(batch: DataFrame, plan: Plan) -> Write:
        write = into_table(batch, plan)
        next(incidents, lambda: None)()
        return write

    topics.create("a")
    topics.put("a", "1", "2")
    running = run(gather=gather)
    running.intake.start()
    eventually(lambda: running.intake.failure() is not None)
    assert "made anew while they were read" in str(running.intake.failure())
    assert (running.taken(), running.stands()) == ([], {})
    running.intake.stop()
    running.intake.start()
    running.until(lambda: running.taken() == ["x", "y", "z"])


def test_the_broker_killed_and_back_loses_and_doubles_nothing(
    spark: Spark, make_database: Callable[..., str], tmp_path: Path
) -> None:
    """A broker of its own: the shared one has other guests. The producer of the test tries until it is acknowledged."""
    with ExitStack() as stack:
        broker = KafkaBroker(tmp_path / "broker")
        stack.callback(broker.stop)
        broker.start()
        topics = Topics(broker.bootstrap, "own")
        stack.callback(topics.close)
        topics.create("a", partitions=2)
        running = Running(spark, make_database("pipeline"), topics, tmp_path, stack, 400)
        supervisor = Supervisor(running.intake, SystemClock(), Backoff(0.1, 1.0, lambda: 1.0))
        stack.callback(supervisor.stop)
        producer = topics.producer(enable_idempotence=True)
        sent = [f"{n:04}" for n in range(3000)]

        def send(first: int, end: int) -> None:
            for n in range(first, end):
                producer.produce(topics.name("a"), sent[n], partition=n % 2)

        send(0, 1000)
        supervisor.start()
        eventually(lambda: len(running.taken()) >= 400, 60, running.stands)
        broker.kill()
        send(1000, 2000)
        eventually(lambda: running.intake.failure() is not None, 60, running.stands)
        broker.start()
        send(2000, 3000)

        def all_taken() -> bool:
            supervisor.supervise()
            producer.poll(0)
            return len(running.taken()) >= len(sent)

        eventually(all_taken, 90, running.stands)
        assert Counter(running.taken()) == Counter(sent)
        assert running.stands() == {"a": {0: 1500, 1: 1500}}
