"""Spark as a consumer of receive queues and as a sender: rows per second of 1 KiB, measured warm, by whole micro-batches."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg

from harness import Result, growth, seconds
from queueparts.sites import CLIENT, SETTINGS
from trunkline.db.embedded import EmbeddedPostgres
from trunkline.db.migrate import migrate
from trunkline.pipeline.queue_source import FORMAT, QueueSource
from trunkline.pipeline.session import Spark, open_session
from trunkline.queues.registry import remember_site

BATCHES = 5
_QUEUE = "INSERT INTO queues.queue (client, remote, head, received_bytes) VALUES (%s, %s, %s, %s) RETURNING id"
_FILL = """
INSERT INTO queues.receive (slot, queue, position, type, seq, index, total, payload)
SELECT 0, %(queue)s, n, 1, n, 0, n * 1024, decode(repeat(lpad(to_hex(n), 8, '0'), 256), 'hex')
  FROM generate_series(1, %(entries)s) AS n
"""


def fill(dsn: str, entries: int) -> None:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(_QUEUE, (CLIENT, "a", entries, 1024 * entries)).fetchone()
        assert row is not None
        conn.execute(_FILL, {"queue": row[0], "entries": entries})


def read(spark: Spark, dsn: str, folder: Path, consumer: str, rows: int) -> float:
    """Seconds of the best batch of so many rows; the first one is for warming up."""
    options = {"dsn": dsn, "client": CLIENT, "consumer": consumer, "max_entries": str(rows), "tasks": str(spark.cores)}
    stream = spark.session.readStream.format(FORMAT).options(**options).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", (folder / consumer).as_uri())
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    whole = [p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress if p.numInputRows == rows]
    return float(min(whole[1:]))


def write(spark: Spark, dsn: str, rows: int) -> float:
    columns = ("CAST(repeat('x', 1024) AS BINARY) AS payload", "'b' AS destinations")
    frame = spark.session.range(0, rows, 1, spark.cores).selectExpr(*columns)
    return seconds(frame.write.format(FORMAT).mode("append").options(dsn=dsn, client=CLIENT, query="bench").save)


def spark_rates(rows: int) -> Iterator[Result]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(EmbeddedPostgres(folder / "postgres", SETTINGS))
        migrate(server.dsn, "queues")
        fill(server.dsn, BATCHES * rows)
        with psycopg.connect(server.dsn) as conn:
            remember_site(conn, "b")
        spark = open_session(folder / "spark", "bench")
        stack.callback(spark.stop)
        spark.register(QueueSource)
        taken = read(spark, server.dsn, folder, "whole", rows)
        half = read(spark, server.dsn, folder, "half", rows // 2)
        write(spark, server.dsn, rows)
        written, twice = write(spark, server.dsn, rows), write(spark, server.dsn, 2 * rows)
    yield Result("spark_source_per_s", round(rows / taken), f"entries/s of 1 KiB, batches of {rows:,}")
    yield growth("spark_source", half, taken)
    yield Result("spark_sink_per_s", round(rows / written), f"entries/s of 1 KiB, {rows:,} at once")
    yield growth("spark_sink", written, twice)
