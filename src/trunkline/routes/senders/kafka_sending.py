"""Records of a topic, by producers that never hold up the loop.

K1  A record is sent when all replicas in sync have it. A producer is idempotent: what it sends again by itself is there once,
    and records of one partition stay in their order.
K2  A thread of its own hands records to the producers, call after call, for that may have to wait (for room, for the number of
    partitions). Another hears what became of them.
K3  Records of one key or partition take the same producer. Those of neither take one producer per call.
K4  A producer that cannot go on (a fatal error) is replaced by a new one at the next call.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from zlib import crc32

from confluent_kafka import KafkaError, KafkaException, Producer

from trunkline.routes.ends import Sendable, Undelivered
from trunkline.routes.secrets import scrubbed
from trunkline.routes.senders.kafka import KafkaSenderConfig, Record
from trunkline.routes.senders.kafka_settings import MESSAGE_ID, producer_settings

DELIVERY_SECONDS = 10.0
_POLL_SECONDS = 0.1
METADATA_SECONDS = 5.0
PARTITIONS_SECONDS = 60.0  # so long the number of partitions is believed

# Whatever else is wrong may pass: a broker that is away, a topic that is not there yet.
NEVER = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError._UNKNOWN_PARTITION,
    }
)
Answer = Undelivered | None
Told = Callable[[KafkaError | None, Any], None]


class _Batch:
    """The answers of one call; the last one wakes whoever waits."""

    def __init__(self, size: int, done: Callable[[list[Answer]], None]) -> None:
        self._answers: list[Answer] = [None] * size
        self._left, self._done, self._lock = size, done, threading.Lock()

    def answer(self, nth: int, answer: Answer) -> None:
        with self._lock:
            self._answers[nth] = answer
            self._left -= 1
            if self._left:
                return
        self._done(self._answers)


class _Polled:
    """A producer and the thread that hears what became of its records."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.broken = False
        self.producer = Producer({**settings, "error_cb": self._error})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="route-kafka-poll")
        self._thread.start()

    def _error(self, error: KafkaError) -> None:
        self.broken = self.broken or error.fatal()

    def _poll(self) -> None:
        while not self._stop.is_set():
            self.producer.poll(_POLL_SECONDS)

    def close(self) -> None:
        self.producer.flush(DELIVERY_SECONDS)
        self._stop.set()
        self._thread.join()
        self.producer.purge()
        self.producer.close()


class KafkaSending:
    def __init__(self, config: KafkaSenderConfig, seconds: float = DELIVERY_SECONDS) -> None:
        self._config, self._settings = config, producer_settings(config, seconds)
        self._give_up = seconds
        self._producers = [_Polled(self._settings) for _ in range(config.sender_pool_size)]
        self._thread = ThreadPoolExecutor(1, "route-kafka")
        self._calls = 0
        self._partitions, self._asked = 0, float("-inf")

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Answer]:
        if not messages:
            return []
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Answer]] = loop.create_future()

        def done(answers: list[Answer]) -> None:
            loop.call_soon_threadsafe(_set, future, answers)

        self._thread.submit(self._produce, list(messages), _Batch(len(messages), done))
        return await future

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._thread.shutdown()
        for polled in self._producers:
            polled.close()

    # -- in the thread

    def _produce(self, messages: list[Sendable], batch: _Batch) -> None:
        self._calls += 1
        self._replace_broken()
        for nth, one in enumerate(messages):
            try:
                self._produce_one(one, self._told(batch, nth))
            except KafkaException as error:
                batch.answer(nth, self._answer(error.args[0]))
            except Exception as error:
                batch.answer(nth, Undelivered(scrubbed(f"{type(error).__name__}: {error}", self._config), True))

    def _told(self, batch: _Batch, nth: int) -> Told:
        return lambda error, _: batch.answer(nth, self._answer(error))

    def _produce_one(self, one: Sendable, told: Told) -> None:
        record: Record = one.message
        own: dict[str, Any] = {} if record.partition is None else {"partition": self._partition(record)}
        producer = self._producer(record).producer
        deadline = time.monotonic() + self._give_up
        while True:
            try:
                return producer.produce(
                    self._config.topic, record.value, record.key, headers=[(MESSAGE_ID, one.id)], on_delivery=told, **own
                )
            except BufferError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)  # the other thread makes room

    def _producer(self, record: Record) -> _Polled:
        of = self._calls if record.partition is None else record.partition
        nth = crc32(record.key.encode()) if record.key is not None and record.partition is None else of
        return self._producers[nth % len(self._producers)]

    def _partition(self, record: Record) -> int:
        assert record.partition is not None
        if not record.modulo:
            return record.partition
        if time.monotonic() - self._asked > PARTITIONS_SECONDS or not self._partitions:
            found = self._producers[0].producer.list_topics(self._config.topic, METADATA_SECONDS).topics[self._config.topic]
            if found.error is not None:
                raise KafkaException(found.error)
            self._partitions, self._asked = len(found.partitions), time.monotonic()
        return record.partition % self._partitions

    def _replace_broken(self) -> None:
        for nth, polled in enumerate(self._producers):
            if polled.broken:
                polled.close()
                self._producers[nth] = _Polled(self._settings)

    def _answer(self, error: KafkaError | None) -> Answer:
        if error is None:
            return None
        reason = scrubbed(f"Kafka topic {self._config.topic}: {error.str()}", self._config)
        return Undelivered(reason, error.code() not in NEVER)


def _set(future: asyncio.Future[list[Answer]], answers: list[Answer]) -> None:
    if not future.done():  # whoever waited may have been cancelled
        future.set_result(answers)
