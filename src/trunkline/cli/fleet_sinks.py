"""Where `trunkline fleet-load` writes: topics of Kafka, or the receive queues of a hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from trunkline.core.bundle import Bundle
from trunkline.core.errors import Invalid, Retryable

if TYPE_CHECKING:
    import psycopg

CREATE_AT_ONCE = 500
SHARED_PARTITIONS = 4
ANSWER_SECONDS = 30.0


class Sink(Protocol):
    def open(self, sites: Sequence[str]) -> None:
        """Makes what these sites need."""

    def send(self, site: str, messages: Sequence[Bundle]) -> None: ...
    def settle(self) -> None:
        """Now and then: writes what has come together."""

    def flush(self) -> None:
        """Everything is there when it returns."""

    def close(self) -> None: ...


class KafkaSink:
    def __init__(self, bootstrap: str, topic: str, shared: bool) -> None:
        self._bootstrap, self._topic, self._shared = bootstrap, topic, shared
        try:
            from trunkline.pipeline.kafka_records import Records
        except ImportError as error:
            raise Invalid("Kafka", f"its client is not installed ({error.name})", "pip install 'trunkline[pipeline]'") from None
        self._records = Records(bootstrap, {}, linger_ms=20)

    def open(self, sites: Sequence[str]) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        partitions = SHARED_PARTITIONS if self._shared else 1
        try:
            there = admin.list_topics(timeout=ANSWER_SECONDS).topics
            missing = [name for name in dict.fromkeys(map(self.name, sites)) if name not in there]
            for first in range(0, len(missing), CREATE_AT_ONCE):
                new = [NewTopic(name, partitions) for name in missing[first : first + CREATE_AT_ONCE]]
                for made in admin.create_topics(new, operation_timeout=ANSWER_SECONDS).values():
                    made.result()
        except KafkaException as error:
            why = error.args[0].str() if error.args else str(error)
            raise Retryable(f"Kafka at {self._bootstrap}", why, "see that its brokers are there") from None

    def name(self, site: str) -> str:
        return self._topic if self._shared else f"{self._topic}.{site}"

    def send(self, site: str, messages: Sequence[Bundle]) -> None:
        for one in messages:
            self._records.send(self.name(site), site, one.data, one.headers())

    def settle(self) -> None:
        """The client sends by itself."""

    def flush(self) -> None:
        self._records.flush()

    def close(self) -> None:
        self._records.close()


class QueueSink:
    """Writes as the trunk would: so the hub's bridge reads it like what its sites have sent."""

    def __init__(self, dsn: str, client: str) -> None:
        import psycopg

        self._client = client
        self._waiting: dict[str, list[Bundle]] = {}
        try:
            self._conn: psycopg.Connection[Any] = psycopg.connect(dsn, application_name="trunkline-fleet-load")
        except psycopg.Error as error:
            why = " ".join(str(error).split())
            raise Retryable(
                "the hub's database", why, "see that it is there, and that the connection string is right"
            ) from None

    def open(self, sites: Sequence[str]) -> None:
        if self._conn.execute("SELECT to_regclass('queues.receive')").fetchone() == (None,):
            raise Invalid("the hub's database", "it has no queues", "start the hub's node once, which makes them")
        self._conn.rollback()

    def send(self, site: str, messages: Sequence[Bundle]) -> None:
        self._waiting.setdefault(site, []).extend(messages)

    def settle(self) -> None:
        from trunkline.queues.feed import feed

        fed = {site: [(one.headers(), one.data) for one in messages] for site, messages in self._waiting.items()}
        feed(self._conn, self._client, fed)
        self._conn.commit()
        self._waiting.clear()

    def flush(self) -> None:
        self.settle()

    def close(self) -> None:
        self._conn.close()
