"""A bridge over the Kafka topics of one test, and what the test wants to know of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_topics import Topics
from trunkline.bridge.keeper import Keeper
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.workers import Workers
from trunkline.core.clock import SystemClock
from trunkline.core.config import BridgeConfig, BridgeKafkaConfig
from trunkline.db.lease import acquire, connect_fenced
from trunkline.pipeline.bridge_kafka import BridgeKafka, kafka_settings
from trunkline.pipeline.kafka.offsets import read_offsets
from trunkline.pipeline.session import Spark
from trunkline.pipeline.spark_waves import SparkWaves
from waiting import eventually

Message = tuple[dict[str, str], bytes]
GROUP = "bridge"
# The connections of the bridge itself.
_OTHERS = "datname = current_database() AND pid <> pg_backend_pid() AND starts_with(application_name, 'trunkline')"


class KafkaBridge:
    """A holder of the lease with both halves; `start` them, and `keep` where time matters. Sites are the topics, without the
    test's prefix. `max_records`: of one batch; `direct_rows`: of one that the driver reads itself."""

    def __init__(self, spark: Spark, dsn: str, topics: Topics, folder: Path, stack: ExitStack, **config: Any) -> None:
        self.dsn, self.topics, self.folder = dsn, topics, folder
        self.conn = stack.enter_context(connect_fenced(dsn))
        self.conn.execute("UPDATE site.lease SET expires_at = '-infinity'")
        grant = acquire(self.conn, "bridge", 600.0)
        assert grant is not None
        kafka = BridgeKafkaConfig(
            bootstrap=topics.bootstrap, topics=rf"{topics.prefix}-(?P<site>.+)", shared=config.pop("shared", ())
        )
        settings = kafka_settings(dsn, GROUP, grant, spark.cores, kafka)
        settings = replace(settings, max_records=config.pop("max_records", settings.max_records))
        more = {"direct_rows": config.pop("direct_rows")} if "direct_rows" in config else {}
        bridge = BridgeConfig(client=None, kafka=kafka, workers=2, **config)
        waves = SparkWaves(spark, dsn, grant, SHIPPED, bridge.statement_seconds)
        self.workers = Workers(dsn, grant, SHIPPED, bridge, SystemClock(), lambda: None, waves)
        beside = (self.workers, SHIPPED, bridge.waiting_rows)
        self.intake = BridgeKafka(spark, settings, 0.1, folder / "checkpoints", *beside, **more)
        self.keeper = Keeper(dsn, grant, SHIPPED, bridge, SystemClock(), {}, self.intake.caught_up, lambda: None)
        stack.callback(self.workers.stop)
        stack.callback(self.keeper.stop)
        stack.callback(self.intake.stop)

    def start(self) -> None:
        self.workers.start()
        self.intake.start()

    def keep(self) -> None:
        self.keeper.start()

    def stop(self) -> None:
        self.intake.stop()
        self.keeper.stop()
        self.workers.stop()

    def crash(self) -> None:
        """Its lease is another's and its connections are cut in the middle of what they do: from here on it changes nothing.
        What is left of its threads, `stop` ends."""
        self.conn.execute("UPDATE site.lease SET epoch = epoch + 1")
        self.conn.commit()
        self.rows(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_OTHERS}")

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

    def tally(self, site: str) -> dict[str, int]:
        """What became of all that was received of it, without what is 0."""
        names = ("received", "conflated", "rejected", "stale", "applied", "quarantined", "discarded", "joined", "expired")
        found = self.rows(f"SELECT {', '.join(names)} FROM bridge.counter WHERE site = %s", site)
        return {name: number for name, number in zip(names, found[0], strict=True) if number} if found else {}

    def ledger(self, site: str) -> dict[str, tuple[int, int]]:
        """Generation and value of what was applied last, by type."""
        found = self.rows("SELECT type, generation, value FROM bridge.ledger WHERE site = %s", site)
        return {type_: (generation, value) for type_, generation, value in found}

    def compliance(self, site: str) -> dict[tuple[str, str], str]:
        """By policy and cluster."""
        found = self.rows("SELECT policy_id, cluster_name, state::text FROM fleet.compliance WHERE site = %s", site)
        return {(policy, name): state for policy, name, state in found}

    def offsets(self) -> dict[str, int]:
        """Of partition 0."""
        found = read_offsets(self.conn, GROUP)
        self.conn.rollback()
        return {topic.removeprefix(f"{self.topics.prefix}-"): standing.next.get(0, 0) for topic, standing in found.items()}

    def connections(self) -> int:
        [(count,)] = self.rows(f"SELECT count(*) FROM pg_stat_activity WHERE {_OTHERS}")
        return int(count)

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
