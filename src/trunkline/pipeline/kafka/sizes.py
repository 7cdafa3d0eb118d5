"""How large a topic's records are: a few of them are read where the next batch begins.

Kafka tells offsets, not bytes. A topic is probed when it is first met, and again whenever so many of its records wait that
a wrong guess would matter; the answer is an estimate, and so is the limit that rests on it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from trunkline.pipeline.kafka.clients import Config
from trunkline.pipeline.kafka.fetch import CONSUMER
from trunkline.pipeline.kafka.judge import Move

_MANY = 2_000
_PROBE_SECONDS = 1.0
_AT_ONCE = 2_000
_USUAL = 1_024
# A small fetch: a few records of each partition are enough, and one comes however large it is.
PROBE: Config = {**CONSUMER, "fetch.message.max.bytes": 64 << 10, "queued.min.messages": 1, "queued.max.messages.kbytes": 4096}


class Sizes:
    """`close` when done."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._consumer: Consumer | None = None
        self._known: dict[str, int] = {}

    def of(self, moves: Sequence[Move]) -> Mapping[str, int]:
        waiting: dict[str, Move] = {}
        rows: dict[str, int] = {}
        for m in moves:
            rows[m.topic] = rows.get(m.topic, 0) + m.rows
            if m.rows > (waiting[m.topic].rows if m.topic in waiting else 0):
                waiting[m.topic] = m
        unsure = [m for topic, m in waiting.items() if topic not in self._known or rows[topic] >= _MANY]
        if unsure:
            self._known |= self._probe(unsure)
        return {topic: self._known.get(topic, _USUAL) for topic in waiting}

    def _probe(self, moves: Sequence[Move]) -> dict[str, int]:
        if self._consumer is None:
            self._consumer = Consumer(self._config)
        self._consumer.assign([TopicPartition(m.topic, m.partition, m.first) for m in moves])
        sizes: dict[str, list[int]] = {}
        pending = {m.topic for m in moves}
        until = time.monotonic() + _PROBE_SECONDS
        while pending and time.monotonic() < until:
            for message in self._consumer.consume(_AT_ONCE, 0.02):
                _note(message, sizes, pending)
        self._consumer.unassign()
        return {topic: sum(found) // len(found) for topic, found in sizes.items()}

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _note(message: Message, sizes: dict[str, list[int]], pending: set[str]) -> None:
    topic, error = message.topic(), message.error()
    if topic is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):
        return
    pending.discard(topic)
    if error is None:
        headers: Any = message.headers() or ()
        size = len(message) + len(message.key() or b"") + sum(len(name) + len(value or b"") for name, value in headers)
        sizes.setdefault(topic, []).append(size)
