"""The intake query over Kafka: a micro-batch becomes one transaction of the bridge's inbox, offsets among it.

T1  Where a topic was trimmed before it was read, deleted, made anew, or cut short by its broker, its site may have lost
    something: in the transaction that goes past it, all the site has is asked for again. On a topic that sites share, that is
    every site heard over Kafka.
T2  The workers hear of a batch after its commit, never before.
T3  While too much waits for the workers nothing more is taken in.
T4  A batch that is small enough to be conflated by hand is read here. Spark plans it all the same, and runs no task for it.

How offsets and rows stay together is `trunkline.pipeline.kafka.intake`; whose a message is, `trunkline.pipeline.kafka.bundles`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import structlog
from pyspark.sql import DataFrame

from trunkline.bridge.inbox import Batch, Lost, write_batch
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.types import Types
from trunkline.bridge.units import Waiting
from trunkline.bridge.workers import Workers
from trunkline.core.config import BridgeKafkaConfig
from trunkline.db.lease import Grant
from trunkline.pipeline.conflate import HAND_ROWS, Conflated, Conflation
from trunkline.pipeline.kafka.bundles import Senders
from trunkline.pipeline.kafka.direct import DirectReader
from trunkline.pipeline.kafka.intake import KafkaIntake, Write
from trunkline.pipeline.kafka.plan import Plan
from trunkline.pipeline.kafka.settings import BUNDLES, Settings, Subscription
from trunkline.pipeline.newest import Newest
from trunkline.pipeline.session import BRIDGE_POOL, Spark
from trunkline.pipeline.sort_out import sort_out

TRANSPORT = "kafka"
_HEARD = "SELECT site FROM bridge.site WHERE transport = %s ORDER BY site"

log = structlog.get_logger(__name__)


def kafka_settings(
    dsn: str, group: str, grant: Grant, tasks: int, config: BridgeKafkaConfig, types: Types = SHIPPED
) -> Settings:
    subscription = Subscription(frozenset(config.shared), config.topics or None)
    Senders(subscription)  # a pattern that does not name the site is refused here, not by a task
    client = {name: value.reveal() for name, value in config.client.items()}
    newest = str(Newest.of(types))
    return Settings(dsn, group, grant, tasks, config.bootstrap, subscription, client=client, envelope=BUNDLES, newest=newest)


def losses(plan: Plan) -> Iterator[tuple[str, str]]:
    """Topics, and what befell them."""
    for gap in plan.gaps():
        lost = f"{gap.end - gap.first} records of {gap.topic}@{gap.partition}, from offset {gap.first} on"
        yield gap.topic, f"{lost}, were deleted before they were read"
    for change in plan.changes:
        befell = {None: "was deleted", change.old.id: "lost its newest records"}.get(change.new_id, "was made anew")
        yield change.topic, f"topic {change.topic} {befell}; what had not been read of it is lost"


class BridgeKafka(KafkaIntake):
    def __init__(
        self,
        spark: Spark,
        settings: Settings,
        trigger_seconds: float,
        checkpoints: Path,
        workers: Workers,
        types: Types,
        most_waiting: int,
        direct_rows: int = HAND_ROWS,
    ) -> None:
        super().__init__(spark, settings, trigger_seconds, checkpoints, self._read_batch, BRIDGE_POOL)
        self._workers, self._types, self._most_waiting = workers, types, most_waiting
        self._senders = Senders(settings.subscription)
        self._conflation = Conflation(types, few_come=bool(settings.newest))
        self._direct, self._direct_rows = DirectReader(settings), direct_rows
        self._taken: list[Waiting] = []

    def stop(self) -> None:
        super().stop()
        self._direct.close()

    def _take_in(self, batch: DataFrame) -> None:
        self.hold_while(lambda: self._workers.backlog() > self._most_waiting)
        super()._take_in(batch)
        self._workers.notice(self._taken)

    def _read_batch(self, batch: DataFrame, plan: Plan) -> Write:
        sorted_out = sort_out(self._types, self._conflated(batch, plan), TRANSPORT)

        def write(conn: psycopg.Connection[Any]) -> None:
            self._taken = write_batch(conn, self._types, self._with_losses(conn, sorted_out, plan))

        return write

    def _conflated(self, batch: DataFrame, plan: Plan) -> Conflated:
        if plan.rows() <= self._direct_rows:
            return self._conflation.by_hand(self._direct.read(plan))
        return self._conflation.conflate(batch, plan.rows())

    def _with_losses(self, conn: psycopg.Connection[Any], batch: Batch, plan: Plan) -> Batch:
        lost = {
            site: Lost(site, reason) for topic, reason in losses(plan) for site in self._sites(conn, topic)
        }  # one wish per site is enough
        for each in lost.values():
            log.warning("status was lost; a resync is wanted", site=each.site, reason=each.reason)
        return replace(batch, lost=list(lost.values()))

    def _sites(self, conn: psycopg.Connection[Any], topic: str) -> list[str]:
        if self._senders.is_shared(topic):
            return [site for (site,) in conn.execute(_HEARD, (TRANSPORT,)).fetchall()]
        return [site] if (site := self._senders.of_topic(topic)) else []
