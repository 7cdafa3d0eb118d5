"""Records of a topic in bulk: the client tells only of those that were not delivered.

A producer is shared by all senders of this process that reach the same cluster in the same way, whatever their topics: a
thousand topics are not a thousand producers. What was not delivered is known by what each record was given along: the client
does not give its headers back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from trunkline.routes.ends import Sendable, Undelivered
from trunkline.routes.secrets import scrubbed
from trunkline.routes.senders.kafka import KafkaSenderConfig, Record
from trunkline.routes.senders.kafka_sending import DELIVERY_SECONDS, METADATA_SECONDS, NEVER, PARTITIONS_SECONDS
from trunkline.routes.senders.kafka_settings import MESSAGE_ID, producer_settings

_OURS = {"delivery.report.only.error": True}
_POLL_SECONDS = 0.05
MOST_KEPT = 8  # producers without a user that are kept for the next one


class _Shared:
    """A producer, and what it could not deliver: by topic and message id."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.broken = ""
        self.failed: dict[tuple[str, str], KafkaError] = {}
        self._seconds = settings["message.timeout.ms"] / 1000 + 5
        self.producer = Producer({**settings, **_OURS, "error_cb": self._error})

    def undelivered(self, of: tuple[str, str], error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failed[of] = error

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.broken = error.str()

    def flush(self) -> int:
        return self.producer.flush(self._seconds)

    def close(self) -> None:
        self.producer.purge()
        self.producer.close()


_producers: dict[tuple[tuple[str, Any], ...], _Shared] = {}
_lock = threading.Lock()


def _shared(settings: dict[str, Any]) -> _Shared:
    name = tuple(sorted(settings.items()))
    with _lock:
        found = _producers.pop(name, None)
        if found is not None and found.broken:
            found.close()
            found = None
        if found is None:
            found = _Shared(settings)
        _producers[name] = found
        if len(_producers) > MOST_KEPT:
            _producers.pop(next(iter(_producers))).close()
        return found


class KafkaBulk:
    def __init__(self, config: KafkaSenderConfig, seconds: float = DELIVERY_SECONDS) -> None:
        self._config, self._topic, self._seconds = config, config.topic, seconds
        self._settings = producer_settings(config, seconds)
        self._given: set[str] = set()
        self._refused: dict[str, Undelivered] = {}
        self._used: _Shared | None = None
        self._partitions, self._asked = 0, float("-inf")

    def put(self, messages: Sequence[Sendable]) -> None:
        shared = self._used = self._used or _shared(self._settings)
        produce, topic, told = shared.producer.produce, self._topic, shared.undelivered
        for one in messages:
            record: Record = one.message
            self._given.add(one.id)
            try:
                partition = -1 if record.partition is None else self._partition(record)
                failed = partial(told, (topic, one.id))
                produce(topic, record.value, record.key, partition, failed, headers=[(MESSAGE_ID, one.id)])
            except BufferError:
                self._wait_and_put(shared, one)
            except KafkaException as error:
                self._refused[one.id] = self._answer(error.args[0])
        shared.producer.poll(0)

    def finish(self) -> dict[str, Undelivered]:
        shared, self._used = self._used, None
        given, self._given = self._given, set()
        refused, self._refused = self._refused, {}
        if shared is None:
            return refused
        left = shared.flush()
        failed, shared.failed = shared.failed, {}
        for (topic, id), error in failed.items():
            if topic == self._topic and id in given:
                refused[id] = self._answer(error)
            else:
                shared.failed[topic, id] = error  # another sender's, which asks for it
        if left or shared.broken:
            why = Undelivered(shared.broken or f"Kafka topic {self._topic}: it did not answer in time", again=True)
            shared.broken = why.reason
            return {id: refused.get(id, why) for id in given}
        return refused

    def close(self) -> None:
        """The producer is kept for others."""

    def _wait_and_put(self, shared: _Shared, one: Sendable) -> None:
        record: Record = one.message
        deadline = time.monotonic() + self._seconds
        partition = -1 if record.partition is None else self._partition(record)
        failed = partial(shared.undelivered, (self._topic, one.id))
        while True:
            shared.producer.poll(_POLL_SECONDS)
            try:
                return shared.producer.produce(
                    self._topic, record.value, record.key, partition, failed, headers=[(MESSAGE_ID, one.id)]
                )  # fmt: skip
            except BufferError:
                if time.monotonic() > deadline:
                    self._refused[one.id] = Undelivered(f"Kafka topic {self._topic}: no room in the client", again=True)
                    return None

    def _partition(self, record: Record) -> int:
        assert record.partition is not None
        if not record.modulo:
            return record.partition
        shared = self._used or _shared(self._settings)
        if time.monotonic() - self._asked > PARTITIONS_SECONDS or not self._partitions:
            found = shared.producer.list_topics(self._topic, METADATA_SECONDS).topics[self._topic]
            if found.error is not None:
                raise KafkaException(found.error)
            self._partitions, self._asked = len(found.partitions), time.monotonic()
        return record.partition % self._partitions

    def _answer(self, error: KafkaError) -> Undelivered:
        reason = scrubbed(f"Kafka topic {self._topic}: {error.str()}", self._config)
        return Undelivered(reason, error.code() not in NEVER)
