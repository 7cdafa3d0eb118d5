"""Rows to topics on a real broker: what a record carries, and that what is not delivered fails."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from kafka_topics import QUIET, Topics
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.db.lease import acquire, connect_fenced
from trunkline.pipeline.kafka.format import FORMAT, KafkaFormat
from trunkline.pipeline.kafka.settings import Settings, Subscription
from trunkline.pipeline.kafka.sink import PRODUCER, SinkSettings
from trunkline.pipeline.session import Spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

SCHEMA = "topic STRING, key STRING, value BINARY, ce_id STRING, ce_type STRING, headers MAP<STRING, STRING>, other INT"
_numbers = itertools.count(1)


@pytest.fixture
def topics(kafka: KafkaBroker, spark: Spark) -> Iterator[Topics]:
    spark.register(KafkaFormat)
    topics = Topics(kafka.bootstrap, f"sink{next(_numbers)}")
    yield topics
    topics.close()


def write(frame: DataFrame, bootstrap: str, **options: str) -> None:
    frame.write.format(FORMAT).mode("append").options(bootstrap=bootstrap, **options).save()


def records(topics: Topics, topic: str) -> list[Message]:
    """All of its partition 0."""
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "x", "enable.partition.eof": True, **QUIET})
    consumer.assign([TopicPartition(topics.name(topic), 0, 0)])
    found: list[Message] = []
    while (message := consumer.poll(30)) is not None:
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            break
        found.append(message)
    consumer.close()
    return found


def facts(message: Message) -> tuple[Any, ...]:
    headers: Any = message.headers()
    return message.key(), message.value(), dict(headers)


def test_every_column_arrives_where_it_belongs_and_null_is_absent(spark: Spark, topics: Topics) -> None:
    topics.create("a", "b")
    rows = [
        (topics.name("a"), "k", b"v", "m1", "t", {"plain": "x"}, 1),
        (topics.name("a"), None, None, "m2", None, None, 2),
        (topics.name("b"), None, b"", "m3", None, {}, 3),
    ]
    write(spark.session.createDataFrame(rows, SCHEMA).coalesce(1), topics.bootstrap)
    assert [facts(m) for m in records(topics, "a")] == [
        (b"k", b"v", {"ce_id": b"m1", "ce_type": b"t", "plain": b"x"}),
        (None, None, {"ce_id": b"m2"}),
    ]
    assert [facts(m) for m in records(topics, "b")] == [(None, b"", {"ce_id": b"m3"})]


def test_the_option_goes_before_the_column(spark: Spark, topics: Topics) -> None:
    topics.create("a")
    rows = spark.session.createDataFrame([("elsewhere", "text", 7)], "topic STRING, value STRING, ce_id INT")
    write(rows, topics.bootstrap, topic=topics.name("a"))
    assert [facts(m) for m in records(topics, "a")] == [(None, b"text", {"ce_id": b"7"})]


@pytest.mark.parametrize(
    ("columns", "missing"),
    [("'v' AS value, 't' AS topic", "ce_id"), ("'1' AS ce_id, 't' AS topic", "value"), ("'v' AS value, '1' AS ce_id", "topic")],
)
def test_rows_without_a_needed_column_are_refused_before_anything_is_sent(
    spark: Spark, topics: Topics, columns: str, missing: str
) -> None:
    with pytest.raises(PySparkException, match=f"the rows have no column {missing}"):
        write(spark.session.sql(f"SELECT {columns}"), topics.bootstrap)


def test_a_row_without_its_message_id_fails_the_batch(spark: Spark, topics: Topics) -> None:
    topics.create("a")
    rows = spark.session.createDataFrame([("v", None)], "value STRING, ce_id STRING")
    with pytest.raises(PySparkException, match="a row has no ce_id"):
        write(rows, topics.bootstrap, topic=topics.name("a"))
    assert records(topics, "a") == []


def test_a_record_that_is_not_delivered_fails_the_batch_and_the_next_batch_is_well(spark: Spark, topics: Topics) -> None:
    topics.create("a", config={"max.message.bytes": "2000"})
    rows = spark.session.sql(
        "SELECT repeat('x', CAST(size AS INT)) AS value, 'm' AS ce_id FROM VALUES (10), (5000) AS t (size)"
    )
    with pytest.raises(PySparkException, match=r"was not delivered: .*too large"):
        write(rows.coalesce(1), topics.bootstrap, topic=topics.name("a"))
    write(rows.where("length(value) < 100"), topics.bootstrap, topic=topics.name("a"))
    assert {m.value() for m in records(topics, "a")} == {b"x" * 10}


def test_a_broker_that_is_not_there_fails_the_batch_in_time(spark: Spark, topics: Topics) -> None:
    rows = spark.session.sql("SELECT 'v' AS value, 'm' AS ce_id")
    with pytest.raises(PySparkException, match="was not delivered"):
        write(rows, "127.0.0.1:9", topic="t", delivery_seconds="1")


def test_from_a_stream_in_foreach_batch_a_batch_done_again_doubles_records_but_not_their_ids(
    spark: Spark, topics: Topics, make_database: Callable[..., str], tmp_path: Path
) -> None:
    topics.create("in", "out")
    topics.put("in", "1", "2", headers={"ce_type": "t", "plain": "x"})
    dsn = make_database("pipeline")
    with connect_fenced(dsn) as conn:
        grant = acquire(conn, "group", 600.0)
    assert grant is not None
    settings = Settings(dsn, "g", grant, spark.cores, topics.bootstrap, Subscription(frozenset({topics.name("in")})))

    def take(batch: DataFrame, _: int) -> None:
        named = batch.drop("ce_id").selectExpr("*", "concat(topic, '/', partition, '/', offset) AS ce_id")
        for _ in range(2):  # as after a failure behind the sink
            write(named, topics.bootstrap, topic=topics.name("out"))

    stream = spark.session.readStream.format(FORMAT).options(**settings.options()).load()
    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", tmp_path.as_uri()).trigger(availableNow=True)
    query.start().awaitTermination(60)
    name = topics.name("in")
    once = [
        (None, value, {"ce_id": f"{name}/0/{n}".encode(), "ce_type": b"t", "plain": b"x"})
        for n, value in enumerate((b"1", b"2"))
    ]
    assert [facts(m) for m in records(topics, "out")] == once * 2


def test_what_the_guarantees_stand_on_cannot_be_configured_away() -> None:
    config = SinkSettings("b", client={"acks": "0", "enable.idempotence": "false", "compression.type": "lz4"}).config()
    assert {name: config[name] for name in PRODUCER} == PRODUCER
    assert (config["acks"], config["enable.idempotence"], config["linger.ms"]) == ("all", True, 20)
    assert (config["compression.type"], config["log_level"]) == ("lz4", 0)
