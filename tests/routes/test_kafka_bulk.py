"""Records of a topic in bulk: senders of one process that share producers, and hear only of what was not delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kafka_topics import Topics
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.routes.ends import Sendable, Undelivered
from trunkline.routes.senders import kafka_bulk
from trunkline.routes.senders.kafka import KafkaSenderConfig, Record
from trunkline.routes.senders.kafka_bulk import MOST_KEPT, KafkaBulk

_numbers = count(1)
SMALL = {"max.message.bytes": "1000"}
TOO_LARGE = Record('"' + "x" * 5_000 + '"', partition=1)
"""The broker refuses all that it is sent of a partition at a time."""


@pytest.fixture
def topics(kafka: KafkaBroker) -> Iterator[Topics]:
    with closing(Topics(kafka.bootstrap, f"bulk{next(_numbers)}")) as topics:
        yield topics


def to(topics: Topics, topic: str, **more: Any) -> KafkaSenderConfig:
    return KafkaSenderConfig(brokers=topics.bootstrap, topic=topics.name(topic), **more)


def good(n: int) -> Sendable:
    return Sendable(f"id-{n}", Record(str(n), partition=0))


class Interrupted(KafkaBulk):
    """Another sender asks while this one hears what became of its own."""

    between: Callable[[], None]

    def _answer(self, error: KafkaError) -> Undelivered:
        self.between()
        return super()._answer(error)


def test_one_sender_that_asks_takes_no_failure_of_another(topics: Topics) -> None:
    topics.create("a", "b", partitions=2, config=SMALL)
    first, second = Interrupted(to(topics, "a")), KafkaBulk(to(topics, "b"))
    heard: list[dict[str, Undelivered]] = []
    first.between = lambda: heard.append(second.finish())
    first.put([Sendable("bad-1", TOO_LARGE)])
    third = KafkaBulk(to(topics, "a"))
    third.put([good(0)])
    assert third.finish() == {}, "that of the first is known by now, and not the third's"
    second.put([good(1), Sendable("bad-2", TOO_LARGE)])
    assert first.finish().keys() == {"bad-1"}
    assert [found.keys() for found in heard] == [{"bad-2"}]
    assert not heard[0]["bad-2"].again
    assert topics.values("b") == [b"1"]


def test_two_senders_of_one_topic_hear_each_of_its_own(topics: Topics) -> None:
    topics.create("a", partitions=2, config=SMALL)
    first, second = KafkaBulk(to(topics, "a")), KafkaBulk(to(topics, "a"))
    first.put([Sendable("same", TOO_LARGE)])
    second.put([Sendable("same", Record("1", partition=0))])
    assert (first.finish().keys(), second.finish().keys()) == ({"same"}, set())


def test_a_producer_in_use_is_kept_however_many_others_there_are(topics: Topics) -> None:
    topics.create("t")
    levels = [{"compression_method": "gzip", "compression_level": n} for n in range(1, 10)]
    senders = [KafkaBulk(to(topics, "t", **more)) for more in ({}, {"compression_method": "lz4"}, *levels)]
    assert len(senders) > MOST_KEPT
    for nth in range(2):
        for n, sender in enumerate(senders):
            sender.put([good(100 * nth + n)])
        assert [sender.finish() for sender in senders] == [{}] * len(senders)
    assert sorted(map(int, topics.values("t"))) == [100 * nth + n for nth in range(2) for n in range(len(senders))]
    assert len(kafka_bulk.producers()) <= MOST_KEPT


def test_a_sender_that_is_let_go_of_in_the_middle_holds_no_producer(topics: Topics) -> None:
    topics.create("t")
    for n in range(1, 10):
        KafkaBulk(to(topics, "t", compression_method="zstd", compression_level=n)).put([good(n)])
    last = KafkaBulk(to(topics, "t"))
    last.put([good(0)])
    assert last.finish() == {}
    assert len(kafka_bulk.producers()) <= MOST_KEPT


def test_what_fails_after_it_was_asked_for_is_told_to_nobody_else(topics: Topics) -> None:
    """A broker that is away: the client gives up before the records do, and those are reported once."""
    away = KafkaBulk(KafkaSenderConfig(brokers="127.0.0.1:1", topic="t"), seconds=0.2)
    for n in range(2):
        away.put([good(n)])
        found = away.finish()
        assert found.keys() == {f"id-{n}"}
        assert found[f"id-{n}"].again
