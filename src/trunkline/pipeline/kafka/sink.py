"""The writing half of format `trunkline.kafka`: rows to topics, at least once.

W1  A task that ends well has every one of its records acknowledged by all in-sync replicas; a record that could not be
    delivered fails the task, and with it the batch.
W2  A task or batch that is done again sends again. The producer is idempotent only within one task, so every record carries
    its message id in the header `ce_id`, and who must not see doubles compares it.

Columns: `value` (null is a tombstone), `ce_id`, and where there are any `topic`, `key`, `headers` (a map) and further `ce_…`
columns, which become headers where they are not null. The option `topic` goes before the column. Other columns are not
sent. Use it as `df.write.format("trunkline.kafka").mode("append").option("bootstrap", …).save()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from trunkline.core.errors import Invalid, Retryable
from trunkline.pipeline.kafka.clients import Config, borrowed, configuration
from trunkline.pipeline.kafka.settings import client_options

MESSAGE_ID = "ce_id"
_HEADER_PREFIX = "ce_"
_DELIVERY_SECONDS = 30.0
_POLL_SECONDS = 0.05

PRODUCER: Config = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 20,
    "delivery.report.only.error": True,
    "queue.buffering.max.kbytes": 64 << 10,
}


@dataclass(frozen=True)
class SinkSettings:
    bootstrap: str
    topic: str | None = None
    delivery_seconds: float = _DELIVERY_SECONDS
    client: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType) -> SinkSettings:
        columns = set(schema.fieldNames())
        bootstrap, topic = options.get("bootstrap"), options.get("topic")
        if not bootstrap:
            raise Invalid("Kafka sink", "it is not told where Kafka is", "set the option bootstrap to host:port")
        missing = {"value", MESSAGE_ID, *(() if topic else ("topic",))} - columns
        if missing:
            raise Invalid("Kafka sink", f"the rows have no column {', '.join(sorted(missing))}", "add it to the rows")
        seconds = float(options.get("delivery_seconds", _DELIVERY_SECONDS))
        return cls(bootstrap, topic, seconds, client_options(options))

    def config(self) -> Config:
        own = {**PRODUCER, "message.timeout.ms": round(self.delivery_seconds * 1000)}
        return configuration(self.bootstrap, own, self.client)


class Sender:
    """A producer, and what it could not deliver."""

    def __init__(self, config: Config) -> None:
        self._failure: str | None = None
        self._seconds = config["message.timeout.ms"] / 1000 + 5
        self._producer = Producer({**config, "on_delivery": self._undelivered, "error_cb": self._broken})

    def _undelivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = f"a record for {message.topic()} was not delivered: {error.str()}"

    def _broken(self, error: KafkaError) -> None:
        if error.fatal():
            self._failure = error.str()

    def send(self, topic: str, key: bytes | None, value: bytes | None, headers: list[tuple[str, Any]]) -> None:
        while True:
            try:
                return self._producer.produce(topic, value, key, headers=headers)
            except BufferError:
                self._producer.poll(_POLL_SECONDS)
                self._require_delivery()
            except KafkaException as error:
                raise Retryable(
                    f"Kafka topic {topic}", error.args[0].str(), "mend what it says; the batch is done again"
                ) from None

    def note(self) -> None:
        """Hears of failures early."""
        self._producer.poll(0)
        self._require_delivery()

    def finish(self) -> None:
        left = self._producer.flush(self._seconds)
        self._require_delivery()
        if left:
            why = f"{left} records were not acknowledged in time"
            raise Retryable("Kafka sink", why, "see whether its brokers run; the batch is done again")

    def _require_delivery(self) -> None:
        if self._failure is not None:
            raise Retryable("Kafka sink", self._failure, "mend what it says; the batch is done again")

    def close(self) -> None:
        self._producer.purge()
        self._producer.close()


@dataclass
class Written(WriterCommitMessage):
    records: int


def send_all(settings: SinkSettings, rows: Iterator[pa.RecordBatch]) -> Written:
    records = 0
    with borrowed(Sender, settings.config()) as sender:
        for batch in rows:
            for record in _records(batch, settings.topic):
                sender.send(*record)
            records += batch.num_rows
            sender.note()
        sender.finish()
    return Written(records)


def _records(
    batch: pa.RecordBatch, topic: str | None
) -> Iterator[tuple[str, bytes | None, bytes | None, list[tuple[str, Any]]]]:
    names = [name for name in batch.schema.names if name.startswith(_HEADER_PREFIX)]
    known = zip(*(batch.column(name).cast(pa.string()).to_pylist() for name in names), strict=True)
    others = _column(batch, "headers")
    topics = [topic] * batch.num_rows if topic else _column(batch, "topic")
    own = names.index(MESSAGE_ID)
    rows = zip(topics, _column(batch, "key"), _column(batch, "value"), known, others, strict=True)
    for name, key, value, texts, more in rows:
        if texts[own] is None or name is None:
            missing = MESSAGE_ID if name is not None else "topic"
            raise Invalid("Kafka sink", f"a row has no {missing}", "give every row one")
        headers = [pair for pair in zip(names, texts, strict=True) if pair[1] is not None]
        yield name, key, value, [*headers, *(more or ())]


def _column(batch: pa.RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(name)
    if pa.types.is_string(column.type) and name in ("key", "value"):
        column = column.cast(pa.binary())
    values: list[Any] = column.to_pylist()
    return values


class KafkaWriter(DataSourceArrowWriter):
    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return send_all(self._settings, iterator)


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return send_all(self._settings, iterator)
