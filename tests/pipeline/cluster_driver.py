"""A driver of its own on somebody's Spark cluster: the intake of two queues, then one wave. Says in JSON what it saw."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from fleet_feed import CLIENT, queue_of, waiting_in
from spark_cluster import DRIVER_SETTINGS, executors
from trunkline.bridge.plan import read_offsets
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.workers import Workers
from trunkline.core.clock import SystemClock
from trunkline.core.config import BridgeConfig, SparkConfig
from trunkline.db.lease import acquire, connect_fenced
from trunkline.pipeline.intake import Intake
from trunkline.pipeline.queue_source import Settings
from trunkline.pipeline.session import Spark, open_session
from trunkline.pipeline.spark_waves import SparkWaves
from waiting import eventually


def run(spark: Spark, dsn: str, folder: Path) -> dict[str, object]:
    eventually(lambda: executors(spark) == 2, 60)
    with connect_fenced(dsn) as conn:
        grant = acquire(conn, "bridge", 600.0)
        assert grant is not None
        workers = Workers(dsn, grant, SHIPPED, BridgeConfig(), SystemClock(), lambda: None)
        settings = Settings(dsn, CLIENT, "bridge", grant, spark.cores)
        intake = Intake(spark, settings, 0.1, folder / "checkpoints", workers, SHIPPED, 1000)
        intake.start()

        def taken_in() -> bool:
            assert intake.failure() is None, intake.failure()
            offsets = read_offsets(conn, "bridge")
            conn.rollback()
            return offsets == {queue_of("a"): 4, queue_of("b"): 4}

        eventually(taken_in, 60)
        intake.stop()
        waited = waiting_in(dsn)
        waves = SparkWaves(spark, dsn, grant, SHIPPED, 30.0)
        outcomes = [outcome for type_ in ("clusters", "events") for outcome in waves.run(type_, ["a", "b"])]
    ran_by = spark.session.sparkContext.parallelize([0], 1).map(lambda _: os.getppid()).collect()
    return {
        "cores": spark.cores,
        "waited": waited,
        "outcomes": sorted((o.site, str(o.verdict)) for o in outcomes),
        "elsewhere": os.getpid() not in ran_by,
    }


if __name__ == "__main__":
    master, dsn, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    spark = open_session(folder, "cluster", fast_start=True, config=SparkConfig(master=master, settings=DRIVER_SETTINGS))
    try:
        sys.stdout.write(json.dumps(run(spark, dsn, folder)) + "\n")
    finally:
        spark.stop()
