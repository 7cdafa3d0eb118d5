"""Topics of one test on the shared broker, and what can befall them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from waiting import eventually

QUIET = {"log_level": 0}


class Topics:
    """Names are given without the test's prefix. `close` when done."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap, self.prefix = bootstrap, prefix
        self.admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        self._producers: list[Producer] = []
        self._plain: Producer | None = None

    def name(self, topic: str) -> str:
        return f"{self.prefix}-{topic}"

    def producer(self, **config: Any) -> Producer:
        own = {name.replace("_", "."): value for name, value in config.items()}
        self._producers.append(Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, **QUIET, **own}))
        return self._producers[-1]

    def create(self, *topics: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        new = [NewTopic(self.name(t), partitions, 1, config=dict(config or {})) for t in topics]
        for future in self.admin.create_topics(new).values():
            future.result()
        eventually(lambda: self._all_lead(dict.fromkeys(topics, partitions)))

    def _all_lead(self, topics: Mapping[str, int]) -> bool:
        self.admin.list_topics(timeout=10)  # without it the client goes on with what it knows of old partitions
        places = {TopicPartition(self.name(t), p): OffsetSpec.latest() for t, n in topics.items() for p in range(n)}
        return not any(future.exception() for future in self.admin.list_offsets(places).values())

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([self.name(topic)])[self.name(topic)].result()
        eventually(lambda: self.name(topic) not in self.admin.list_topics(timeout=10).topics)

    def recreate(self, topic: str, partitions: int = 1) -> None:
        self.delete(topic)

        def made() -> bool:
            try:
                self.create(topic, partitions=partitions)
            except KafkaException:
                return False  # the broker still clears the old one away
            return True

        eventually(made)

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(self.name(topic), partitions)])[self.name(topic)].result()
        eventually(lambda: self._all_lead({topic: partitions}))
        self._plain = None  # it knows the old partitions only

    def trim(self, topic: str, before: int, partition: int = 0) -> None:
        at = TopicPartition(self.name(topic), partition, before)
        for future in self.admin.delete_records([at]).values():
            future.result()

    def put(self, topic: str, *values: str | bytes | None, partition: int = 0, **more: Any) -> None:
        self._plain = self._plain or self.producer()
        for value in values:
            self._plain.produce(self.name(topic), value, partition=partition, **more)
        assert self._plain.flush(30) == 0

    def abort(self, topic: str, *values: str) -> None:
        producer = self.producer(transactional_id=f"{self.prefix}-aborting")
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name(topic), value, partition=0)
        producer.flush(30)
        producer.abort_transaction(30)
        self.until_decided(topic)

    def until_decided(self, topic: str) -> None:
        """The markers of a transaction come a moment after its end."""
        at = TopicPartition(self.name(topic), 0)

        def end(isolation: IsolationLevel) -> int:
            [future] = self.admin.list_offsets({at: OffsetSpec.latest()}, isolation_level=isolation).values()
            return int(future.result().offset)

        eventually(lambda: end(IsolationLevel.READ_COMMITTED) == end(IsolationLevel.READ_UNCOMMITTED))

    def offsets(self, topic: str) -> list[int]:
        """Of the records that are still there, in partition 0."""
        return [int(message.offset()) for message in self.records(topic, [0])]  # type: ignore[arg-type]

    def values(self, topic: str) -> list[bytes]:
        """Of all partitions, one after the other; none where there is no such topic."""
        found = self.admin.list_topics(timeout=10).topics.get(self.name(topic))
        return [message.value() for message in self.records(topic, sorted(found.partitions))] if found else []  # type: ignore[misc]

    def records(self, topic: str, partitions: Sequence[int]) -> list[Message]:
        own = {"group.id": self.prefix, "enable.partition.eof": True, "auto.offset.reset": "earliest", **QUIET}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **own})
        found: list[Message] = []
        for partition in partitions:
            consumer.assign([TopicPartition(self.name(topic), partition, 0)])
            while (message := consumer.poll(10)) is not None and message.error() is None:
                found.append(message)
        consumer.close()
        return found

    def close(self) -> None:
        for producer in self._producers:
            producer.close()
