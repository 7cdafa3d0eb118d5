"""The kafka sender: records of a topic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_topics import QUIET, Topics
from route_place import AROUND, event, place_at
from route_sender_suite import SenderEnd, SenderSuite
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.core.errors import Invalid, Terminal
from trunkline.core.jsoncodec import loads
from trunkline.routes.ends import Sendable, Sending
from trunkline.routes.senders.extras import needs
from trunkline.routes.senders.kafka import KAFKA, KafkaSenderConfig, Record, compile_record
from trunkline.routes.senders.kafka_sending import KafkaSending

_numbers = count(1)


@pytest.fixture(scope="module")
def broker(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One that tests stop and start."""
    with KafkaBroker(tmp_path_factory.mktemp("route-kafka")) as broker:
        yield broker


class ToKafka(SenderEnd):
    plugin = KAFKA
    broker: KafkaBroker
    topics: Topics

    async def open(self) -> Sending:
        return KafkaSending(self.model, 2.0)

    def bad(self) -> Sendable:
        return Sendable("bad", Record('"' + "x" * 2_000_000 + '"'))

    async def records(self) -> list[Any]:
        own = {"group.id": "look", "enable.partition.eof": True, "auto.offset.reset": "earliest", **QUIET}
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, **own})
        parts = consumer.list_topics(self.config["topic"], 10).topics[self.config["topic"]].partitions
        consumer.assign([TopicPartition(self.config["topic"], p, 0) for p in parts])
        found, ends = [], 0
        while ends < len(parts) and (message := consumer.poll(10)) is not None:
            if message.error() is None:
                found.append(message)
            else:
                ends += 1
        consumer.close()
        return found

    async def arrived(self) -> list[int]:
        return [loads(record.value())["n"] for record in await self.records()]

    async def ids(self) -> list[str]:
        return [dict(record.headers())["trunkline-id"].decode() for record in await self.records()]

    async def lose(self) -> None:
        self.broker.stop()

    async def mend(self) -> None:
        self.broker.start()


@pytest.fixture
async def end(broker: KafkaBroker) -> AsyncIterator[ToKafka]:
    topics = Topics(broker.bootstrap, f"route-sender-{next(_numbers)}")
    topics.create("t")
    async with place_at() as place:
        end = ToKafka(place, {"brokers": broker.bootstrap, "topic": topics.name("t")})
        end.broker, end.topics = broker, topics
        yield end
    topics.close()


class TestKafkaSender(SenderSuite):
    pass


async def test_records_go_where_their_key_or_number_says_with_any_number_of_producers(end: ToKafka) -> None:
    end.topics.grow("t", 3)
    end.config |= {"key": "{payload.k}", "partitionPath": "payload.p", "senderPoolSize": 3, "compressionMethod": "ZSTD"}
    message = compile_record(end.model, AROUND)
    payloads = [{"n": n, "k": f"k{n % 5}", "p": n % 7 if n % 2 else None} for n in range(200)]
    sending = await end.open()
    messages = [Sendable(f"id-{n}", message(event(payload))) for n, payload in enumerate(payloads)]
    assert await sending.send(messages) == [None] * 200
    await sending.close()
    of_key: dict[str, list[Any]] = {}
    for record in await end.records():
        payload = loads(record.value())
        assert record.key() == payload["k"].encode()
        if payload["p"] is not None:
            assert record.partition() == payload["p"] % 3
        else:
            of_key.setdefault(payload["k"], []).append((record.partition(), payload["n"]))
    for places in of_key.values():
        assert len({partition for partition, _ in places}) == 1
        assert places == sorted(places)


async def test_a_partition_that_there_is_not_is_refused(end: ToKafka) -> None:
    end.config["partition"] = 7
    message = compile_record(end.model, AROUND)
    sending = await end.open()
    [answer] = await sending.send([Sendable("1", message(event({})))])
    await sending.close()
    assert answer is not None
    assert not answer.again


@pytest.mark.parametrize("number", ["3", 1.5, True, [1]])
def test_a_partition_that_is_no_number_is_refused_before_it_is_sent(number: Any) -> None:
    message = compile_record(KafkaSenderConfig(topic="t", partition_path="payload.p"), AROUND)
    with pytest.raises(Invalid, match="not a whole number"):
        message(event({"p": number}))
    assert message(event({"p": 7.0})) == Record('{"p":7.0}', None, 7, True)
    assert message(event({})) == Record("{}")


def test_without_its_package_it_says_what_to_install() -> None:
    with pytest.raises(Terminal, match=r"no-such-package is not installed .*trunkline\[pipeline\]"):
        needs("no_such_package", "the sender kafka")
