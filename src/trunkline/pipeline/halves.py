"""Both halves of the bridge while one grant of its lease holds: intake on Spark, DB workers and the keeper beside it.

The halves fail apart. A query that ends is started anew at the stored offsets, with backoff, while the workers go on;
whoever finds the grant past stops all, and the lease decides what comes next. Queues and Kafka are read by a query each.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import structlog

from trunkline.bridge.askers import Asker, QueueAsker
from trunkline.bridge.keeper import Keeper
from trunkline.bridge.types import Types
from trunkline.bridge.workers import Workers
from trunkline.core.clock import Clock
from trunkline.core.config import BridgeConfig
from trunkline.core.errors import Invalid
from trunkline.db.lease import Grant
from trunkline.pipeline import bridge_kafka, intake
from trunkline.pipeline.bridge_kafka import BridgeKafka, kafka_settings
from trunkline.pipeline.intake import Intake
from trunkline.pipeline.kafka_asker import KafkaAsker
from trunkline.pipeline.query import BatchQuery, Supervisor
from trunkline.pipeline.queue_source import Settings
from trunkline.pipeline.session import Spark
from trunkline.pipeline.spark_waves import SparkWaves

GROUP = "bridge"

log = structlog.get_logger(__name__)


def require_input(bridge: BridgeConfig) -> None:
    if bridge.client is None and bridge.kafka is None:
        raise Invalid("bridge", "it reads neither queues nor Kafka", "set `bridge.client` or `bridge.kafka`")


class Halves:
    """Called from one thread only; `supervise` as often as one likes."""

    def __init__(
        self, spark: Spark, dsn: str, bridge: BridgeConfig, types: Types, grant: Grant, scratch: Path, clock: Clock
    ) -> None:
        self._fenced = threading.Event()
        self._spark, self._dsn, self._bridge, self._types, self._grant = spark, dsn, bridge, types, grant
        waves = SparkWaves(spark, dsn, grant, types, bridge.statement_seconds)
        self._workers = Workers(dsn, grant, types, bridge, clock, self._fenced.set, waves)
        self._intakes = [Supervisor(query, clock) for query in self._queries(scratch / "checkpoints")]
        self._keeper = Keeper(dsn, grant, types, bridge, clock, _askers(dsn, bridge), self.caught_up, self._fenced.set)
        self._stopped = False

    def _queries(self, checkpoints: Path) -> list[BatchQuery]:
        """Each in a folder of its own: a start empties it."""
        bridge, tasks = self._bridge, self._spark.cores
        beside = (self._workers, self._types, bridge.waiting_rows)
        queries: list[BatchQuery] = []
        if bridge.client is not None:
            queues = Settings(self._dsn, bridge.client, GROUP, self._grant, tasks)
            queries.append(Intake(self._spark, queues, bridge.trigger_seconds, checkpoints / "queues", *beside))
        if bridge.kafka is not None:
            topics = kafka_settings(self._dsn, GROUP, self._grant, tasks, bridge.kafka, self._types)
            queries.append(BridgeKafka(self._spark, topics, bridge.trigger_seconds, checkpoints / "kafka", *beside))
        return queries

    def caught_up(self) -> bool:
        return all(query.caught_up() for query in self._intakes)

    def start(self) -> None:
        self._workers.start()
        for query in self._intakes:
            query.start()
        self._keeper.start()

    def supervise(self) -> None:
        if self._stopped:
            return
        if self._fenced.is_set():
            log.warning("bridge stops", reason="its lease is another's")
            self.stop()
        else:
            for query in self._intakes:
                query.supervise()

    def stop(self) -> None:
        """Lets the batches and the applies in flight end."""
        if not self._stopped:
            self._stopped = True
            for query in self._intakes:
                query.stop()
            self._keeper.stop()
            self._workers.stop()


def _askers(dsn: str, bridge: BridgeConfig) -> Mapping[str, Asker]:
    """By the transport that a site was heard over."""
    askers: dict[str, Asker] = {}
    if bridge.client is not None:
        askers[intake.TRANSPORT] = QueueAsker(dsn, bridge.client)
    if bridge.kafka is not None:
        kafka = bridge.kafka
        client = {name: value.reveal() for name, value in kafka.client.items()}
        askers[bridge_kafka.TRANSPORT] = KafkaAsker(kafka.bootstrap, kafka.control, client)
    return askers
