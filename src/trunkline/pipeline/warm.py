"""Warming up: everything a batch needs is used once before the lease is asked for, so that a takeover is quick.

The three trials wait for each other's processes more than they compute, so they run side by side. Who wants the first row soon
does not wait for them at all: the bridge starts beside the one trial that its first batch would otherwise wait for.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog
from pyspark.sql import DataFrame

from trunkline.bridge.shipped import SHIPPED
from trunkline.pipeline.arrivals import SCHEMA
from trunkline.pipeline.conflate import Conflation
from trunkline.pipeline.queue_source import FORMAT, QueueSource
from trunkline.pipeline.session import Spark

log = structlog.get_logger(__name__)


def warm_up_beside(spark: Spark) -> None:
    def conflate_nothing() -> None:
        try:
            _conflate_nothing(spark)
        except Exception as error:
            log.debug("warming up was cut short", reason=str(error))  # the session stopped first

    threading.Thread(target=conflate_nothing, name="warm-up", daemon=True).start()


def warm_up(spark: Spark, scratch: Path) -> None:
    with ThreadPoolExecutor(3, "warm-up") as threads:
        trials = (
            threads.submit(_plan_a_source, spark),
            threads.submit(_run_a_query, spark, scratch / "warm-up"),
            threads.submit(_conflate_nothing, spark),
        )
    for trial in trials:
        trial.result()


def _plan_a_source(spark: Spark) -> None:
    spark.register(QueueSource)
    spark.session.readStream.format(FORMAT).load()


def _run_a_query(spark: Spark, checkpoints: Path) -> None:
    trial = spark.session.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").load()
    writer = trial.writeStream.foreachBatch(_a_batch).trigger(once=True)
    writer.option("checkpointLocation", checkpoints.as_uri()).start().awaitTermination(60)


def _a_batch(_: DataFrame, __: int) -> None:
    pass


def _conflate_nothing(spark: Spark) -> None:
    nothing = spark.session.createDataFrame([], SCHEMA)
    Conflation(SHIPPED).conflate(nothing.mapInArrow(lambda batches: batches, SCHEMA), rows=0)
