"""Reading a task's pieces: every record from the first offset up to and without the end, and proof that the end was reached.

F1  A partition is done when a record at or past its last offset came, or the broker said that the log ends there. So holes
    before the end (aborted records, markers, compaction) neither stop nor fool it.
F2  A piece that cannot be read whole raises: trimmed meanwhile, deleted, or a broker that says nothing for too long.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from trunkline.core.errors import Retryable
from trunkline.pipeline.kafka.admit import Piece
from trunkline.pipeline.kafka.clients import Config

# `consume` waits for all of them or for the time, so the time is what an end costs.
_AT_ONCE = 1_000
_WAIT_SECONDS = 0.005
# Behind the ends of their pieces: so many may come before the client is told to fetch no more of those partitions.
_MOST_STRAYS = 500
# The client goes on trying by itself; how long it may is our patience.
_PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT}

Place = tuple[str, int]
"""topic, partition"""

CONSUMER: Config = {
    "group.id": "trunkline",  # the client wants one; nothing is ever committed under it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 10,  # a full queue is asked again soon; the default of 1 s is what a batch would wait
    "fetch.message.max.bytes": 256 << 10,  # what is fetched past a piece's end is thrown away
    "queued.max.messages.kbytes": 8 << 10,  # as is this
}


def fetch(consumer: Consumer, pieces: Sequence[Piece], patience_seconds: float) -> Iterator[list[Message]]:
    left = {(topic, partition): end for topic, partition, _, end in pieces}
    consumer.assign([TopicPartition(topic, partition, first) for topic, partition, first, _ in pieces])
    heard, strays, idle = time.monotonic(), 0, list[Place]()
    while left:
        came = consumer.consume(_AT_ONCE, _WAIT_SECONDS)
        records, done = _sort_out(came, left)
        strays, idle = strays + sum(message.error() is None for message in came) - len(records), idle + done
        if idle and left and strays > _MOST_STRAYS:  # or they fill the queue
            consumer.incremental_unassign([TopicPartition(topic, partition) for topic, partition in idle])
            strays, idle = 0, []
        if records:
            yield records
        now = time.monotonic()
        if records or done:
            heard = now
        elif now - heard > patience_seconds:
            raise _stalled(left, patience_seconds)
    consumer.unassign()


def _sort_out(messages: Sequence[Message], left: dict[Place, int]) -> tuple[list[Message], list[Place]]:
    """The records that belong to the pieces, and the partitions that are done; these leave `left`."""
    records, done = [], []
    for message in messages:
        error = message.error()
        place: Place = (message.topic(), message.partition())  # type: ignore[assignment]
        end = left.get(place)
        offset: int = message.offset()  # type: ignore[assignment]
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            _judge(error, place)
        elif end is not None:
            if error is None and offset < end:
                records.append(message)
            if offset >= (end if error else end - 1):
                del left[place]
                done.append(place)
    return records, done


def _judge(error: KafkaError, place: tuple[str | None, int]) -> None:
    if error.code() in _PASSING:
        return
    what = f"Kafka partition {place[0]}/{place[1]}" if place[0] else "Kafka"
    raise Retryable(what, error.str(), "the query starts anew, looks again and plans again")


def _stalled(left: dict[Place, int], seconds: float) -> Retryable:
    (topic, partition), end = next(iter(left.items()))
    why = f"nothing came for {seconds} s before offset {end} of {topic}/{partition}; {len(left)} partitions are not done"
    return Retryable("Kafka", why, "see whether its brokers run; the query starts anew at its offsets")
