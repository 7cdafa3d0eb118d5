"""Kafka into Postgres exactly once: a micro-batch's rows and the offsets behind them become one transaction.

What is done with the rows is the caller's. `Gather` reads the batch, on Spark, outside any transaction, and returns the
function that writes what it found inside one; that function is also where lost records (`plan.gaps()`) and topics made anew
(`plan.changes`) are turned into a wish for a resync.

E1  A batch that is not taken in raises: returning would tell Spark that it is done.
E2  After the batch was read and before anything is committed, its topics must still be the ones that were planned.
E3  The fence is last (H01), so a batch of a past holder leaves nothing behind.
E4  A deadlock is nobody's fault: the same batch is written again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import DataFrame

from trunkline.db.lease import PATIENCE, commit_fenced, connect_fenced
from trunkline.pipeline.kafka.cluster import Cluster
from trunkline.pipeline.kafka.format import FORMAT, KafkaFormat
from trunkline.pipeline.kafka.offsets import move_offsets, open_plan
from trunkline.pipeline.kafka.plan import Plan
from trunkline.pipeline.kafka.settings import Settings
from trunkline.pipeline.query import BatchQuery, require_empty
from trunkline.pipeline.session import Spark

Write = Callable[[psycopg.Connection[Any]], None]
Gather = Callable[[DataFrame, Plan], Write]

# The name carries the version of what a query's checkpoint would mean.
_VERSION = "v1"
_TRIES = 5


class KafkaIntake(BatchQuery):
    def __init__(
        self,
        spark: Spark,
        settings: Settings,
        trigger_seconds: float,
        checkpoints: Path,
        gather: Gather,
        pool: str | None = None,
    ) -> None:
        name = f"kafka-{settings.group}-{_VERSION}"
        super().__init__(name, self._read, trigger_seconds, checkpoints, self._take_in, pool)
        self._spark, self._settings, self._gather = spark, settings, gather
        self._conn: psycopg.Connection[Any] | None = None
        self._cluster: Cluster | None = None

    def stop(self) -> None:
        super().stop()
        self._cluster = None
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _read(self) -> DataFrame:
        self._spark.register(KafkaFormat)
        return self._spark.session.readStream.format(FORMAT).options(**self._settings.options()).load()

    def _take_in(self, batch: DataFrame) -> None:
        settings, conn = self._settings, self._connection()
        plan = open_plan(conn, settings.group)
        conn.rollback()
        if plan is None:
            return require_empty(batch, settings.group)
        write = self._gather(batch, plan)
        require_same_topics = self._kafka().ask_same_topics(plan)
        for left in reversed(range(_TRIES)):
            try:
                write(conn)
                move_offsets(conn, settings.group, plan)
                require_same_topics()
                return commit_fenced(conn, settings.grant)
            except BaseException as error:
                conn.rollback()
                if not left or not isinstance(error, psycopg.errors.DeadlockDetected):
                    raise
        return None

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = connect_fenced(self._settings.dsn, **PATIENCE)
        return self._conn

    @property
    def connection(self) -> psycopg.Connection[Any] | None:
        return self._conn

    def _kafka(self) -> Cluster:
        if self._cluster is None:
            s = self._settings
            self._cluster = Cluster(s.bootstrap, s.client, s.patience_seconds)
        return self._cluster
