"""Kafka on Spark: rates of source and sink with records of 1 KiB and CloudEvents headers, and one batch over many topics.

Everything is measured warm, on one broker, and by the time of a whole micro-batch as Spark reports it. `tuples` is the same
source with rows as tuples instead of Arrow batches; `ceiling` a plain consumer in this process that makes nothing of what it
reads.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from harness import Result, Size, growth, run, seconds
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.db.embedded import EmbeddedPostgres
from trunkline.db.lease import Grant, acquire
from trunkline.db.migrate import migrate
from trunkline.pipeline.kafka.clients import configuration
from trunkline.pipeline.kafka.fetch import CONSUMER, fetch
from trunkline.pipeline.kafka.format import FORMAT, KafkaFormat
from trunkline.pipeline.kafka.intake import KafkaIntake, Write
from trunkline.pipeline.kafka.plan import Plan
from trunkline.pipeline.kafka.records import SCHEMA
from trunkline.pipeline.kafka.settings import Settings, Subscription
from trunkline.pipeline.kafka.source import KafkaReader
from trunkline.pipeline.session import Spark, open_session

PARTITIONS = 32
RECORDS = 200_000
TOPICS = 1_000
NEWS = 4
RUNS = 3
BATCHES = 6
ROUNDS = 40
HEADERS = (
    "'1.0' AS ce_specversion", "concat('m/', id) AS ce_id", "'site' AS ce_source", "'clusters' AS ce_type",
    "'2026-01-01T00:00:00+00:00' AS ce_time", "'complete' AS ce_mode", "'1' AS ce_incarnation",
    "CAST(id AS STRING) AS ce_generation",
)  # fmt: skip


class TupleReader(KafkaReader):
    """The same rows, one by one."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for batch in super().read(partition):
            columns = [column.to_pylist() for column in batch.columns[:-1]]
            yield from (tuple(row) for row in zip(*columns, [None] * batch.num_rows, strict=True))


class TupleFormat(DataSource):
    @classmethod
    def name(cls) -> str:
        return "trunkline.kafka.tuples"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> TupleReader:
        return TupleReader(Settings.of(self.options))


@dataclass
class Bench:
    spark: Spark
    broker: KafkaBroker
    dsn: str
    grant: Grant
    folder: Path
    admin: AdminClient
    _groups: Iterator[int] = field(default_factory=itertools.count)

    def settings(self, subscription: Subscription, max_records: int) -> Settings:
        group = f"bench{next(self._groups)}"
        return Settings(
            self.dsn, group, self.grant, self.spark.cores, self.broker.bootstrap, subscription,
            max_records=max_records, max_bytes=1 << 30,
        )  # fmt: skip

    def create(self, *names: str, partitions: int = 1) -> None:
        for future in self.admin.create_topics([NewTopic(n, partitions, 1) for n in names]).values():
            future.result()
        places = {TopicPartition(n, p): OffsetSpec.latest() for n in names for p in range(partitions)}
        while any(future.exception() for future in self.admin.list_offsets(places).values()):
            time.sleep(0.2)
            self.admin.list_topics(timeout=10)


def write(bench: Bench, topic: str, records: int) -> float:
    bench.create(topic, partitions=PARTITIONS)
    rows = bench.spark.session.range(0, records, 1, bench.spark.cores).selectExpr("repeat('x', 1024) AS value", *HEADERS)
    writer = rows.write.format(FORMAT).mode("append").options(bootstrap=bench.broker.bootstrap, topic=topic)
    return seconds(writer.save)


def read(bench: Bench, topic: str, records: int, source: str = FORMAT) -> float:
    """Seconds of the best of several batches of `records`; the first ones are for warming up."""
    settings = bench.settings(Subscription(frozenset({topic})), records)
    stream = bench.spark.session.readStream.format(source).options(**settings.options()).load()
    folder = bench.folder / settings.group
    query = stream.writeStream.format("noop").option("checkpointLocation", folder.as_uri()).trigger(availableNow=True).start()
    query.awaitTermination()
    whole = [p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress if p.numInputRows == records]
    return float(min(whole[1:]))


def ceiling(bench: Bench, topic: str, records: int) -> float:
    consumer = Consumer(configuration(bench.broker.bootstrap, CONSUMER, {}))
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in range(PARTITIONS)]
    pieces = [(topic, partition, 0, end) for partition, end in enumerate(ends)]

    def consume() -> None:
        assert sum(map(len, fetch(consumer, pieces, 10.0))) == records

    took = seconds(consume)
    consumer.close()
    return took


class ManyTopics:
    """Batches with a few new records in every topic. They are produced while the batch before is taken in, so that the next
    one finds them all; that time is not counted."""

    def __init__(self, bench: Bench, prefix: str, topics: int) -> None:
        self._names = [f"{prefix}{n:04}" for n in range(topics)]
        bench.create(*self._names)
        self._producer = Producer({"bootstrap.servers": bench.broker.bootstrap, "log_level": 0})
        self._bench, self._producing = bench, list[float]()
        settings = bench.settings(Subscription.prefix(prefix), 1 << 30)
        self._intake = KafkaIntake(bench.spark, settings, 0.1, bench.folder / prefix, self._gather)

    def _produce(self) -> None:
        value, headers = b"x" * 1024, {"ce_id": "1", "ce_type": "clusters", "ce_source": "site"}
        for name in self._names:
            for _ in range(NEWS):
                self._producer.produce(name, value, headers=headers)
        self._producer.flush()

    def _gather(self, batch: DataFrame, plan: Plan) -> Write:
        rows = batch.select("topic", "offset").toArrow().num_rows
        self._producing.append(seconds(self._produce))

        def write(conn: psycopg.Connection[Any]) -> None:
            conn.execute("INSERT INTO taken VALUES (%s)", (rows,))

        return write

    def measure(self) -> float:
        """Median seconds of the second half of all batches. What they took is asked once, in the end: reading the progress of
        all batches again and again would compete with what is measured."""
        self._intake.start()
        [query] = self._bench.spark.session.streams.active
        while len(self._producing) < ROUNDS + 2:
            assert self._intake.failure() is None, self._intake.failure()
            time.sleep(0.1)
        whole = self._whole(query)
        self._intake.stop()
        self._producer.close()
        return statistics.median(whole[ROUNDS // 2 :])

    def _whole(self, query: StreamingQuery) -> list[float]:
        progress = [p for p in query.recentProgress if p.numInputRows == len(self._names) * NEWS]
        return [p.durationMs["triggerExecution"] / 1000 - self._producing[p.batchId] for p in progress]


def measure(bench: Bench, size: Size) -> list[Result]:
    full = size is Size.FULL
    records, topics, turns = (RECORDS, TOPICS, RUNS) if full else (RECORDS // 10, TOPICS // 10, 2)
    bench.spark.register(KafkaFormat)
    bench.spark.register(TupleFormat)
    for n in range(turns):
        write(bench, f"warm{n}", records)
    written = min(write(bench, f"once{n}", records) for n in range(turns))
    written_more = write(bench, "more", BATCHES * records)
    arrow = min(read(bench, "more", records) for _ in range(turns))
    arrow_half = read(bench, "more", records // 2)
    tuples = read(bench, "more", records, TupleFormat.name())
    plain = min(ceiling(bench, "once0", records) for _ in range(turns))
    half, whole = ManyTopics(bench, "half", topics // 2).measure(), ManyTopics(bench, "many", topics).measure()
    return [
        Result("read_per_s", round(records / arrow), "records/s", goal=100_000),
        Result("read_tuples_per_s", round(records / tuples), "records/s"),
        Result("read_ceiling_per_s", round(records / plain), "records/s, one process"),
        growth("read", arrow_half, arrow),
        Result("batch_s_1000_topics", round(whole, 3), f"s, {topics} topics", goal=0.5, most=True),
        growth("batch_topics", half, whole),
        Result("write_per_s", round(records / written), "records/s", goal=60_000),
        growth("write", written, written_more * 2 / BATCHES),
    ]


def measure_all(size: Size) -> list[Result]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(EmbeddedPostgres(folder / "postgres"))
        migrate(server.dsn, "pipeline")
        broker = KafkaBroker(folder / "kafka")
        stack.callback(broker.stop)
        broker.start()
        spark = open_session(folder / "spark", "bench")
        stack.callback(spark.stop)
        with psycopg.connect(server.dsn) as conn:
            conn.execute("CREATE TABLE taken (rows int)")
            grant = acquire(conn, "group", 3600.0)
        assert grant is not None
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        return measure(Bench(spark, broker, server.dsn, grant, folder, admin), size)


if __name__ == "__main__":
    run("kafka", measure_all)
