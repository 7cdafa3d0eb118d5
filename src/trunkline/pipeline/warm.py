"""Warming up: everything a batch needs is used once before the lease is asked for, so that a takeover is quick."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame

from trunkline.pipeline.conflate import conflate
from trunkline.pipeline.queue_source import FORMAT, QueueSource
from trunkline.pipeline.session import Spark


def _a_batch(_: DataFrame, __: int) -> None:
    pass


def warm_up(spark: Spark, scratch: Path) -> None:
    """The source's planner, a streaming query of one batch, and a conflation of nothing through Python workers."""
    session = spark.session
    session.dataSource.register(QueueSource)
    schema = session.readStream.format(FORMAT).load().schema
    trial = session.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").load()
    writer = trial.writeStream.foreachBatch(_a_batch).trigger(once=True)
    query = writer.option("checkpointLocation", (scratch / "warm-up").as_uri()).start()
    conflate(session.createDataFrame([], schema).mapInArrow(lambda batches: batches, schema), rows=0)
    query.awaitTermination(60)
