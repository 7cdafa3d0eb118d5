"""A site whose pipeline runs routes, on one machine: Kafka, Postgres with fsync on, and Spark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from nodes import _database, until
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.core.clock import SystemClock
from trunkline.core.config import ProcessConfig
from trunkline.db.embedded import EmbeddedPostgres
from trunkline.db.migrate import migrate
from trunkline.pipeline.jobs.routing import PipelineRouting
from trunkline.pipeline.session import Spark
from trunkline.pipeline.threads import tune_threads
from trunkline.routes.keys import HOUSE, RouteKey
from trunkline.routes.making import making_at
from trunkline.routes.plugin import Around
from trunkline.routes.registry import registry
from trunkline.routes.storage.base import Change, Put, Remove
from trunkline.routes.workshop import Workshop

PARTITIONS = 8
FILL = "x" * 860
PARTS = ("queues", "bridge", "routes", "pipeline")
_KAFKA = {"message.max.bytes": str(64 << 20), "log.segment.bytes": str(64 << 20)}
_MANY = 5_000


def event(n: int, routes: int) -> bytes:
    """About 1 KB; it is for one of the routes."""
    kind = (n * 7919) % routes
    return json.dumps({"id": n, "kind": f"k{kind}", "at": time.time(), "tags": ["a", "b"], "body": FILL}).encode()


def route(n: int, receiver: Mapping[str, Any], sender: Mapping[str, Any], mark: object = "") -> dict[str, Any]:
    """The nth of many: it takes the events of its kind."""
    match = {"plugin": "match", "config": {"matcher": "pattern", "pattern": {"kind": f"k{n}"}}}
    fields = {"id": "{.id}", "at": "{.at}", "kind": "{.kind}", "site": "{site}", "mark": mark, "body": "{.body}"}
    transform = {"plugin": "transform", "config": {"transformation": fields}}
    return {"receiver": dict(receiver), "filterChain": [match, transform], "sender": dict(sender)}


@dataclass
class Site:
    """`with site.running():` its pipeline takes part in this process. Its topics have its name before their own."""

    spark: Spark
    name: str
    dsn: str
    folder: Path
    bootstrap: str
    routing: PipelineRouting | None = None
    _hash: Any = None

    @contextmanager
    def running(self) -> Iterator[Site]:
        config = ProcessConfig(site="hub", database=self.dsn)
        self.routing = PipelineRouting(config, self.spark, self.folder, SystemClock(), lambda counts, routes: None)
        self._hash = making_at(Workshop(registry(), Around({"site": "hub"})), "").hash
        tune_threads()  # as the process does
        self.routing.start()
        until(lambda: self.routing is not None and self.routing.manager is not None, "the routing table is there")
        try:
            yield self
        finally:
            self.routing.stop()
            self.routing = None

    def put(self, bodies: Mapping[str, dict[str, Any]]) -> None:
        self._change([Put(RouteKey(HOUSE, id), self._hash(HOUSE, body), body) for id, body in bodies.items()])

    def remove(self, ids: Sequence[str]) -> None:
        self._change([Remove(RouteKey(HOUSE, id)) for id in ids])

    def _change(self, changes: Sequence[Change]) -> None:
        routing = self.routing
        assert routing is not None, "it runs"
        assert routing.manager is not None, "its table is there"
        for at in range(0, len(changes), _MANY):
            routing.run(routing.manager.change(changes[at : at + _MANY]))

    def until_looked(self) -> None:
        """Its job has asked its source at least once."""

        def looked() -> bool:
            runner = self.routing.runner if self.routing is not None else None
            return runner is not None and bool(runner.jobs) and all(job.looked for job in runner.jobs.values())

        until(looked, "the job looks at its source")

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            return conn.execute(query.encode(), values).fetchall()

    def routed(self) -> int:
        """Events of all batches that are done."""
        [(events,)] = self.rows("SELECT coalesce(sum(events), 0)::bigint FROM pipeline.job_batch")
        return int(events)

    def rate(self, warm: int) -> float:
        """Events per second, behind the first `warm` events: from the end of that batch to the end of the last."""
        found = self.rows("SELECT events, extract(epoch FROM done_at)::float8 FROM pipeline.job_batch ORDER BY done_at")
        seen, begun, counted = 0, 0.0, 0
        for events, done in found:
            if seen >= warm:
                counted += events
            else:
                begun = done
            seen += events
        return counted / (found[-1][1] - begun) if counted else 0.0

    # -- Kafka

    def topic(self, topic: str) -> str:
        return f"{self.name}-{topic}"

    def receiver(self, topic: str) -> dict[str, Any]:
        return {"plugin": "kafka", "config": {"brokers": self.bootstrap, "topic": self.topic(topic), "startAt": "earliest"}}

    def sender(self, topic: str) -> dict[str, Any]:
        return {"plugin": "kafka", "config": {"brokers": self.bootstrap, "topic": self.topic(topic)}}

    def create(self, *topics: str, partitions: int = PARTITIONS) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic(self.topic(topic), partitions, 1) for topic in topics]).values():
            future.result()

    def fill(self, topic: str, events: int, routes: int) -> None:
        """Before anybody reads."""
        producer = self.producer(linger_ms=50)
        for n in range(events):
            while True:
                try:
                    producer.produce(self.topic(topic), event(n, routes), partition=n % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(120) == 0

    def producer(self, **own: Any) -> Producer:
        named = {name.replace("_", "."): value for name, value in own.items()}
        return Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, "queue.buffering.max.kbytes": 256 << 10, **named})

    def records(self, topic: str) -> int:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        places = {TopicPartition(self.topic(topic), p): OffsetSpec.latest() for p in range(PARTITIONS)}
        return sum(future.result().offset for future in admin.list_offsets(places).values())


class Listener:
    """Reads a topic from its end, in a thread, and gives each record with the moment it came to `hear`."""

    def __init__(self, site: Site, topic: str, hear: Any) -> None:
        own = {"group.id": "listener", "auto.offset.reset": "latest", "fetch.wait.max.ms": 5, "log_level": 0}
        self._consumer = Consumer({"bootstrap.servers": site.bootstrap, **own})
        self._consumer.assign([TopicPartition(site.topic(topic), p, -1) for p in range(PARTITIONS)])
        self._hear, self._stop = hear, threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _listen(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, 0.01):
                if message.error() is None:
                    self._hear(json.loads(message.value() or b"null"), time.time())


@contextmanager
def servers(folder: Path) -> Iterator[tuple[EmbeddedPostgres, KafkaBroker]]:
    settings = {"shared_buffers": "256MB", "max_connections": "200"}
    with EmbeddedPostgres(folder / "postgres", settings) as postgres:
        broker = KafkaBroker(folder / "kafka", _KAFKA)
        broker.start()
        try:
            yield postgres, broker
        finally:
            broker.stop()


def site(spark: Spark, postgres: EmbeddedPostgres, broker: KafkaBroker, folder: Path, name: str) -> Site:
    dsn = _database(postgres, name)
    migrate(dsn, *PARTS)
    return Site(spark, name, dsn, folder / name, broker.bootstrap)
