"""Records of a topic in bulk: the client tells only of those that were not delivered.

A producer is shared by all senders of this process that reach the same cluster in the same way, whatever their topics: a
thousand topics are not a thousand producers.

1.  What was not delivered is told to the sender that gave it: each record goes along with where its failure is written down.
    The client does not give its headers back, and several threads may use one producer.
2.  A producer is closed when nobody uses it, and not before: with it would go what others gave it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any
from weakref import WeakSet

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from trunkline.routes.ends import Sendable, Undelivered
from trunkline.routes.secrets import scrubbed
from trunkline.routes.senders.kafka import KafkaSenderConfig, Record
from trunkline.routes.senders.kafka_sending import DELIVERY_SECONDS, METADATA_SECONDS, NEVER, PARTITIONS_SECONDS
from trunkline.routes.senders.kafka_settings import MESSAGE_ID, producer_settings

_OURS = {"delivery.report.only.error": True}
_POLL_SECONDS = 0.05
MOST_KEPT = 8  # producers; more only while they are used, each by a sender that waits for what it gave

Failures = dict[str, KafkaError]
"""By message id."""


def _undelivered(failures: Failures, id: str, error: KafkaError | None, _: Message) -> None:
    if error is not None:
        failures[id] = error


class _Shared:
    """A producer, and who uses it. `users`: one that is let go of in the middle uses it no more."""

    def __init__(self, name: _Name, settings: dict[str, Any]) -> None:
        self.name, self.broken = name, ""
        self.users: WeakSet[KafkaBulk] = WeakSet()
        self._seconds = settings["message.timeout.ms"] / 1000 + 5
        self.producer = Producer({**settings, **_OURS, "error_cb": self._error})

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.broken = error.str()

    def flush(self) -> int:
        return self.producer.flush(self._seconds)

    def close(self) -> None:
        self.producer.purge()
        self.producer.close()


_Name = tuple[tuple[str, Any], ...]
_producers: dict[_Name, _Shared] = {}
_broken: set[_Shared] = set()  # that somebody still uses
_lock = threading.Lock()


def producers() -> list[_Shared]:
    with _lock:
        return [*_producers.values(), *_broken]


def _used(settings: dict[str, Any], user: KafkaBulk) -> _Shared:
    name = tuple(sorted(settings.items()))
    with _lock:
        found = _producers.pop(name, None)
        if found is not None and found.broken:
            _broken.add(found)
            found = None
        _producers[name] = found = found or _Shared(name, settings)
        found.users.add(user)
        _make_room()
        return found


def _left(shared: _Shared, user: KafkaBulk) -> None:
    with _lock:
        shared.users.discard(user)
        _make_room()


def _make_room() -> None:
    idle = [one for one in _producers.values() if not one.users][: max(0, len(_producers) - MOST_KEPT)]
    idle += [one for one in _broken if not one.users]
    for one in idle:
        _broken.discard(one)
        if _producers.get(one.name) is one:
            del _producers[one.name]
        one.close()


class KafkaBulk:
    def __init__(self, config: KafkaSenderConfig, seconds: float = DELIVERY_SECONDS) -> None:
        self._config, self._topic, self._seconds = config, config.topic, seconds
        self._settings = producer_settings(config, seconds)
        self._given: set[str] = set()
        self._failures: Failures = {}
        self._refused: dict[str, Undelivered] = {}
        self._used: _Shared | None = None
        self._partitions, self._asked = 0, float("-inf")

    def put(self, messages: Sequence[Sendable]) -> None:
        shared = self._producer()
        produce, topic, failures = shared.producer.produce, self._topic, self._failures
        for one in messages:
            record: Record = one.message
            self._given.add(one.id)
            try:
                partition = -1 if record.partition is None else self._partition(record)
                failed = partial(_undelivered, failures, one.id)
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
        failures, self._failures = self._failures, {}  # what fails from now on was told already
        if shared is None:
            return refused
        try:
            left = shared.flush()
            refused |= {id: self._answer(error) for id, error in failures.items()}
            if left or shared.broken:
                why = Undelivered(shared.broken or f"Kafka topic {self._topic}: it did not answer in time", again=True)
                shared.broken = why.reason
                return {id: refused.get(id, why) for id in given}
            return refused
        finally:
            _left(shared, self)

    def close(self) -> None:
        """The producer is kept for others."""

    def _producer(self) -> _Shared:
        if self._used is None:
            self._used = _used(self._settings, self)
        return self._used

    def _wait_and_put(self, shared: _Shared, one: Sendable) -> None:
        record: Record = one.message
        deadline = time.monotonic() + self._seconds
        partition = -1 if record.partition is None else self._partition(record)
        failed = partial(_undelivered, self._failures, one.id)
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
        shared = self._producer()
        if time.monotonic() - self._asked > PARTITIONS_SECONDS or not self._partitions:
            found = shared.producer.list_topics(self._topic, METADATA_SECONDS).topics[self._topic]
            if found.error is not None:
                raise KafkaException(found.error)
            self._partitions, self._asked = len(found.partitions), time.monotonic()
        return record.partition % self._partitions

    def _answer(self, error: KafkaError) -> Undelivered:
        reason = scrubbed(f"Kafka topic {self._topic}: {error.str()}", self._config)
        return Undelivered(reason, error.code() not in NEVER)
