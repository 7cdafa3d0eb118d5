"""A bridge over the Kafka topics of one test, and what the test wants to know of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kafka_topics import Topics
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.workers import Workers
from trunkline.core.clock import SystemClock
from trunkline.core.config import BridgeConfig, BridgeKafkaConfig
from trunkline.db.lease import acquire, connect_fenced
from trunkline.pipeline.bridge_kafka import BridgeKafka, kafka_settings
from trunkline.pipeline.kafka.offsets import read_offsets
from trunkline.pipeline.session import Spark
from waiting import eventually

Message = tuple[dict[str, str], bytes]
GROUP = "bridge"


class KafkaBridge:
    """A holder of the lease with both halves; `start` them. Sites are the topics, without the test's prefix."""

    def __init__(self, spark: Spark, dsn: str, topics: Topics, folder: Path, stack: ExitStack, **config: Any) -> None:
        self.dsn, self.topics, self.folder = dsn, topics, folder
        self.conn = stack.enter_context(connect_fenced(dsn))
        self.conn.execute("UPDATE site.lease SET expires_at = '-infinity'")
        grant = acquire(self.conn, "bridge", 600.0)
        assert grant is not None
        kafka = BridgeKafkaConfig(
            bootstrap=topics.bootstrap, topics=rf"{topics.prefix}-(?P<site>.+)", shared=config.pop("shared", ())
        )
        bridge = BridgeConfig(client=None, kafka=kafka, workers=2, **config)
        self.workers = Workers(dsn, grant, SHIPPED, bridge, SystemClock(), lambda: None)
        settings = kafka_settings(dsn, GROUP, grant, spark.cores, kafka)
        self.intake = BridgeKafka(spark, settings, 0.1, folder / "checkpoints", self.workers, SHIPPED, bridge.waiting_rows)
        stack.callback(self.workers.stop)
        stack.callback(self.intake.stop)

    def start(self) -> None:
        self.workers.start()
        self.intake.start()

    def stop(self) -> None:
        self.intake.stop()
        self.workers.stop()

    def put(self, topic: str, *messages: Message, **more: Any) -> None:
        for headers, payload in messages:
            self.topics.put(topic, payload, headers=headers, **more)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        found = self.conn.execute(query.encode(), values).fetchall()
        self.conn.rollback()
        return found

    def counters(self, site: str) -> dict[str, int]:
        names = ("received", "conflated", "rejected", "stale", "applied", "quarantined")
        found = self.rows(f"SELECT {', '.join(names)} FROM bridge.counter WHERE site = %s", site)
        return dict(zip(names, found[0], strict=True)) if found else {}

    def offsets(self) -> dict[str, int]:
        """Of partition 0."""
        found = read_offsets(self.conn, GROUP)
        self.conn.rollback()
        return {topic.removeprefix(f"{self.topics.prefix}-"): standing.next.get(0, 0) for topic, standing in found.items()}

    def waiting(self) -> int:
        [(count,)] = self.rows("SELECT count(*) FROM bridge.inbox")
        return int(count)

    def until(self, holds: Callable[[], bool], seconds: float = 60.0) -> None:
        def holds_or_fails() -> bool:
            assert self.intake.failure() is None
            return holds()

        eventually(holds_or_fails, seconds, lambda: (self.offsets(), self.waiting()))

    def until_taken_in(self, **offsets: int) -> None:
        self.until(lambda: self.offsets() == offsets)

    def until_applied(self, **offsets: int) -> None:
        self.until(lambda: self.offsets() == offsets and self.waiting() == 0)
