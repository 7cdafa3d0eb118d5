"""A hub as it is in production, on one machine: Kafka, Postgres with fsync on, Spark, and both halves of the bridge.

When something was applied is read from the database: a trigger writes down every advance of the ledger, and Postgres says when
the transaction that wrote it was committed. Nothing depends on how often anybody looks.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]
from pyspark.sql.streaming.query import StreamingQuery

from bridgeparts.feeder import SHARED, Feeder, feeding, topic_of
from bridgeparts.split import Split
from nodes import _database
from queueparts.sites import SETTINGS
from trunkline.bridge.shipped import SHIPPED
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.core.clock import SystemClock
from trunkline.core.config import BridgeConfig, BridgeKafkaConfig
from trunkline.db.embedded import EmbeddedPostgres
from trunkline.db.lease import Grant, acquire
from trunkline.db.migrate import migrate
from trunkline.pipeline.halves import Halves
from trunkline.pipeline.session import Spark
from trunkline.pipeline.threads import tune_threads

PARTITIONS = 32
PATIENCE_SECONDS = 600.0
_LOOK_SECONDS = 0.05
_LEASE_SECONDS = 24 * 3600.0
_TOPICS_AT_ONCE = 500
# A broker with thousands of partitions needs more room than one for tests.
_KAFKA = {"message.max.bytes": str(64 << 20), "replica.fetch.max.bytes": str(64 << 20), "log.segment.bytes": str(64 << 20)}

_AUDIT = """
CREATE SCHEMA bench;
CREATE TABLE bench.applied (site text, type text, generation bigint, event_time timestamptz);
CREATE FUNCTION bench.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO bench.applied SELECT site, type, generation, event_time FROM fresh;
    RETURN NULL;
END $$;
CREATE TRIGGER note_first AFTER INSERT ON bridge.ledger
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION bench.note();
CREATE TRIGGER note_next AFTER UPDATE ON bridge.ledger
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION bench.note();
CREATE TABLE bench.taken (at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION bench.note_taken() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO bench.taken DEFAULT VALUES;
    RETURN NULL;
END $$;
CREATE TRIGGER note_taken AFTER INSERT ON bridge.inbox FOR EACH STATEMENT EXECUTE FUNCTION bench.note_taken();
"""
_TAKEN = "SELECT extract(epoch FROM max(pg_xact_commit_timestamp(xmin)))::float8 FROM bench.taken"
_THERE = "SELECT count(*) FROM bridge.ledger WHERE type = ANY(%s) AND generation >= %s AND starts_with(site, %s)"
_LAST = """
SELECT extract(epoch FROM max(pg_xact_commit_timestamp(xmin)))::float8 FROM bench.applied
 WHERE type = ANY(%s) AND generation >= %s AND starts_with(site, %s)
"""
_AGES = """
SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin) - event_time)::float8 FROM bench.applied
 WHERE type = ANY(%s) AND event_time >= to_timestamp(%s) AND event_time < to_timestamp(%s)
"""
_SET_ASIDE = "SELECT count(*), min(site || ' ' || coalesce(type, '') || ': ' || reason) FROM bridge.quarantine"


@dataclass
class Hub:
    spark: Spark
    folder: Path
    server: EmbeddedPostgres
    broker: KafkaBroker
    feeder: Feeder
    dsn: str
    grant: Grant
    conn: psycopg.Connection[Any]
    _halves: Halves | None = None
    _starts: int = field(default=0)

    def create_topics(self, sites: Sequence[str] = (), shared: bool = False) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        topics = [NewTopic(topic_of(site), 1, 1) for site in sites] + [NewTopic(SHARED, PARTITIONS, 1)] * shared
        for at in range(0, len(topics), _TOPICS_AT_ONCE):
            for future in admin.create_topics(topics[at : at + _TOPICS_AT_ONCE]).values():
                future.result()
        places = {TopicPartition(t.topic, p): OffsetSpec.latest() for t in topics for p in range(t.num_partitions)}
        while any(future.exception() for future in admin.list_offsets(places).values()):
            time.sleep(0.2)
            admin.list_topics(timeout=10)

    def start(self, trigger_seconds: float = 0.2) -> None:
        self._starts += 1
        kafka = BridgeKafkaConfig(bootstrap=self.broker.bootstrap, shared=(SHARED,))
        config = BridgeConfig(client=None, kafka=kafka, trigger_seconds=trigger_seconds)
        scratch = self.folder / f"halves{self._starts}"
        self._halves = Halves(self.spark, self.dsn, config, SHIPPED, self.grant, scratch, SystemClock())
        self._halves.start()

    def stop(self) -> None:
        if self._halves is not None:
            self._halves.stop()
            self._halves = None

    def supervise(self) -> None:
        if self._halves is not None:
            self._halves.supervise()

    def query(self) -> StreamingQuery:
        [query] = self.spark.session.streams.active
        return query

    def one(self, statement: str, *values: object) -> Any:
        row = self.conn.execute(statement, values).fetchone()
        assert row is not None
        return row[0]

    def wait_applied(self, types: Sequence[str], generation: int, ledgers: int, prefix: str) -> float:
        """Until so many ledgers of sites with this prefix have come there; when the last was committed, in unix seconds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (there := self.one(_THERE, list(types), generation, prefix)) < ledgers:
            self.supervise()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{there} of {ledgers} applied: {self.conn.execute(_SET_ASIDE).fetchone()}")
            time.sleep(_LOOK_SECONDS)
        self.require_none_set_aside()
        return float(self.one(_LAST, list(types), generation, prefix))

    def last_taken_in(self) -> float:
        """When intake last committed something, in unix seconds."""
        return float(self.one(_TAKEN))

    def require_none_set_aside(self) -> None:
        found = self.conn.execute(_SET_ASIDE).fetchone()
        assert found == (0, None), f"set aside: {found}"

    def ages(self, types: Sequence[str], first: float, last: float) -> list[float]:
        """Of what was sent between these times: from then to its commit."""
        return [age for (age,) in self.conn.execute(_AGES, (list(types), first, last))]

    def split(self) -> Split:
        pids = {"postgres": self.server.pid, "kafka": self.broker.pid, "sender": self.feeder.pid}
        return Split({name: pid for name, pid in pids.items() if pid})

    def second_database(self, name: str) -> str:
        """On the same server, with the same tables and nothing in them."""
        dsn = _database(self.server, name)
        migrate(dsn, "queues", "bridge")
        return dsn


@contextmanager
def running(spark: Spark) -> Iterator[Hub]:
    tune_threads()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = {**SETTINGS, "track_commit_timestamp": "on"}
        server = stack.enter_context(EmbeddedPostgres(folder / "postgres", settings))
        migrate(server.dsn, "queues", "bridge", "pipeline")
        broker = KafkaBroker(folder / "kafka", _KAFKA)
        stack.callback(broker.stop)
        broker.start()
        feeder = stack.enter_context(feeding(broker.bootstrap))
        conn = stack.enter_context(psycopg.connect(server.dsn, autocommit=True))
        conn.execute(_AUDIT)
        assert conn.execute("SHOW fsync").fetchone() == conn.execute("SHOW synchronous_commit").fetchone() == ("on",)
        with psycopg.connect(server.dsn) as leasing:
            grant = acquire(leasing, "bridge", _LEASE_SECONDS)
        assert grant is not None
        hub = Hub(spark, folder, server, broker, feeder, server.dsn, grant, conn)
        stack.callback(hub.stop)
        yield hub
