"""Rows become messages exactly once: whatever fails, is done again, or is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from killed_copy import copy
from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructField, StructType
from received_rows import put

from trunkline.core.errors import Invalid, Terminal
from trunkline.pipeline.queue_append import BatchId, PartitionWriter
from trunkline.pipeline.queue_source import FORMAT, QueueSource
from trunkline.pipeline.session import Spark
from trunkline.queues.client import Message, QueueClient
from waiting import eventually

KILLED = Path(__file__).with_name("killed_copy.py")
_TABLES = "queue, receive, consumer, consumed, spark_plan, spark_append, send_log, ticket"


class Hub:
    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def ask(self, query: str) -> list[Any]:
        with psycopg.connect(self.dsn) as conn:
            return [row[0] if len(row) == 1 else row for row in conn.execute(query.encode()).fetchall()]

    def do(self, statement: str) -> None:
        with psycopg.connect(self.dsn) as conn:
            conn.execute(statement.encode())

    @contextmanager
    def failing_after(self, rows: int) -> Iterator[None]:
        """The transaction that goes beyond so many rows of a partition fails."""
        self.do(f"ALTER TABLE queues.spark_append ADD CONSTRAINT no_luck CHECK (written <= {rows})")
        try:
            yield
        finally:
            self.do("ALTER TABLE queues.spark_append DROP CONSTRAINT no_luck")

    def sent(self) -> list[bytes]:
        return self.ask("SELECT payload FROM queues.send_log ORDER BY id")

    def guards(self) -> list[tuple[int, int, int]]:
        return self.ask("SELECT batch, partition, written FROM queues.spark_append ORDER BY 1, 2")


@pytest.fixture(scope="module")
def queues(make_databases: Callable[..., str]) -> str:
    dsn = make_databases("queues")
    Hub(dsn).do("INSERT INTO queues.site (name) VALUES ('hub'), ('shop')")
    return dsn


@pytest.fixture
def hub(queues: str) -> Iterator[Hub]:
    hub = Hub(queues)
    yield hub
    hub.do("TRUNCATE " + ", ".join(f"queues.{table}" for table in _TABLES.split(", ")) + " RESTART IDENTITY")


class Task:
    """A task of partition 3, as often as it is tried."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def write(self, *transactions: str, run: str = "run", number: int = 5) -> int:
        with closing(psycopg.connect(self._hub.dsn)) as conn:
            writer = PartitionWriter(conn, QueueClient("app"), BatchId("q", run, number), 3)
            for words in transactions:
                writer.write([Message(word.encode(), ["hub"], {}) for word in words.split()])
            return writer.rows


@pytest.fixture
def task(hub: Hub) -> Task:
    return Task(hub)


def test_a_task_done_again_passes_over_what_is_in_and_writes_the_rest(hub: Hub, task: Task) -> None:
    task.write("a b", "c d")  # and dies
    assert hub.guards() == [(5, 3, 4)]
    assert task.write("a b", "c d", "e") == 5
    assert task.write("a b", "c d", "e") == 5
    assert (hub.sent(), hub.guards()) == ([b"a", b"b", b"c", b"d", b"e"], [(5, 3, 5)])


def test_rows_and_their_number_commit_together(hub: Hub, task: Task) -> None:
    with hub.failing_after(2), pytest.raises(psycopg.errors.CheckViolation):
        task.write("a b", "c d")
    assert (hub.sent(), hub.guards()) == ([b"a", b"b"], [(5, 3, 2)])


@pytest.mark.parametrize("others", [("b a", "c d"), ("a b", "d c"), ("a b c", "d"), ("a", "b c d"), ("a x",)])
def test_a_batch_that_comes_again_with_other_rows_or_cuts_fails_and_writes_nothing(
    hub: Hub, task: Task, others: tuple[str, ...]
) -> None:
    task.write("a b", "c d")
    with pytest.raises(Terminal, match="rows were sent already, and are others now"):
        task.write(*others, "e f")
    assert (hub.sent(), hub.guards()) == ([b"a", b"b", b"c", b"d"], [(5, 3, 4)])


def test_a_number_alone_is_no_batch(hub: Hub, task: Task) -> None:
    task.write("a")
    task.write("b", run="another checkpoint")
    assert hub.sent() == [b"a", b"b"]


def test_h28_a_checkpoint_that_was_put_back_fails(hub: Hub, task: Task) -> None:
    task.write("a", number=5)
    task.write("b", number=6)
    with pytest.raises(Terminal, match="batch 6 was written before it"):
        task.write("c", number=5)
    assert hub.sent() == [b"a", b"b"]


def write(frame: Any, hub: Hub, **options: str) -> None:
    given = {"dsn": hub.dsn, "client": "app", "query": "test", **options}
    frame.write.format(FORMAT).mode("append").options(**given).save()


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_columns_of_every_accepted_type_become_messages(spark: Spark, hub: Hub) -> None:
    spark.register(QueueSource)
    given = [
        "SELECT 'text' AS payload, 'hub' AS destinations, 1 AS other",
        "SELECT X'00ff' AS payload, array('shop', 'hub', 'hub') AS destinations, map('a', 'b') AS headers",
        """SELECT '' AS payload, '*' AS destinations, '{"c":"d"}' AS headers""",
    ]
    for query in given:
        write(spark.session.sql(query), hub)
    rows = hub.ask("SELECT payload, destinations, coalesce(headers, '{}') FROM queues.send_log ORDER BY id")
    assert rows == [(b"text", ["hub"], {}), (b"\x00\xff", ["hub", "shop"], {"a": "b"}), (b"", ["*"], {"c": "d"})]
    assert hub.guards() == []  # a write without a name cannot come again


TEXT, BYTES = StringType(), BinaryType()


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"payload": TEXT}, "the rows have no column destinations"),
        ({"destinations": TEXT}, "the rows have no column payload"),
        ({"payload": IntegerType(), "destinations": TEXT}, "column payload is of type int"),
        ({"payload": BYTES, "destinations": TEXT, "headers": ArrayType(TEXT)}, "column headers is of type array<string>"),
    ],
)
def test_rows_that_cannot_be_messages_are_refused_before_anything_is_sent(columns: dict[str, DataType], why: str) -> None:
    schema = StructType([StructField(name, type_) for name, type_ in columns.items()])
    for make in (QueueSource.writer, QueueSource.streamWriter):
        with pytest.raises(Invalid, match=why):
            make(QueueSource({"dsn": "d", "client": "c", "query": "q"}), schema, False)


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_row_that_is_no_message_fails_the_batch_and_says_why(spark: Spark, hub: Hub) -> None:
    spark.register(QueueSource)
    for query, why in (
        ("CAST(NULL AS STRING) AS payload, 'hub' AS destinations", "a row has no payload"),
        ("'x' AS payload, 'nowhere' AS destinations", "not a known site"),
        ("'x' AS payload, 'hub' AS destinations, '[1]' AS headers", "not texts by name"),
    ):
        with pytest.raises(PySparkException, match=why):
            write(spark.session.sql(f"SELECT {query}"), hub)
    assert hub.sent() == []


def test_options_that_are_missing_are_named() -> None:
    with pytest.raises(Invalid, match="not told its dsn and client and query"):
        QueueSource({}).writer(None, False)  # type: ignore[arg-type]


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_batch_whose_task_fails_after_its_first_transaction_is_sent_once(spark: Spark, hub: Hub, tmp_path: Path) -> None:
    spark.register(QueueSource)
    rows = spark.session.range(2_000, numPartitions=1).selectExpr("CAST(id AS STRING) AS payload", "'hub' AS destinations")
    with hub.failing_after(1_000), pytest.raises(PySparkException, match="no_luck"):
        write(rows, hub, batch="b1")
    assert len(hub.sent()) == 1_000
    for _ in range(2):  # and once more, as `foreachBatch` may
        write(rows, hub, batch="b1")
        assert hub.sent() == [str(n).encode() for n in range(2_000)]
    assert hub.guards() == [(0, 0, 2_000)]


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_stream_from_queue_to_queue_that_fails_half_way_sends_each_entry_once(spark: Spark, hub: Hub, tmp_path: Path) -> None:
    spark.register(QueueSource)
    entries = [str(n).encode() for n in range(2_000)]
    put(hub.dsn, "a", entries)

    def start() -> Any:
        reading = {"dsn": hub.dsn, "client": "pol", "consumer": "copy", "tasks": "1"}
        rows = spark.session.readStream.format(FORMAT).options(**reading).load()
        rows = rows.selectExpr("payload", "array('hub') AS destinations", "headers")
        writing = {"dsn": hub.dsn, "client": "copy", "query": "copy", "checkpointLocation": (tmp_path / "c").as_uri()}
        return rows.writeStream.format(FORMAT).options(**writing).trigger(processingTime="100 milliseconds").start()

    with hub.failing_after(1_000), pytest.raises(PySparkException, match="no_luck"):
        start().awaitTermination(100)
    assert len(hub.sent()) == 1_000
    assert hub.ask("SELECT position FROM queues.consumed") == [0]  # not done, so not passed
    query = start()
    try:
        eventually(lambda: hub.ask("SELECT position FROM queues.consumed") == [2_000], why=hub.guards)
        put(hub.dsn, "a", [b"more"])
        eventually(lambda: hub.ask("SELECT position FROM queues.consumed") == [2_001], why=hub.guards)
    finally:
        query.stop()
    assert hub.sent() == [*entries, b"more"]
    assert {batch for batch, _, _ in hub.guards()} <= {1, 2}  # what Spark may repeat, and no more


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(240)
def test_g1_a_copy_whose_driver_is_killed_sends_each_entry_once_and_in_order(spark: Spark, hub: Hub, tmp_path: Path) -> None:
    entries = [str(n).encode() for n in range(3_000)]
    put(hub.dsn, "a", entries)
    words = [sys.executable, str(KILLED), hub.dsn, str(tmp_path / "checkpoint"), str(tmp_path / "scratch")]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        eventually(lambda: len(hub.sent()) > 500, 100, (tmp_path / "log").read_text)
    finally:
        process.kill()
        process.wait(20)
    query = copy(spark, hub.dsn, tmp_path / "checkpoint")  # while what it left running in its JVM may still write
    try:
        eventually(lambda: hub.ask("SELECT position FROM queues.consumed") == [3_000], 100, hub.guards)
    finally:
        query.stop()
    assert hub.sent() == entries
