"""A site's status over Kafka: versions that no crash repeats, and answers to the hub's requests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_topics import QUIET, Topics
from trunkline.bridge.shipped import SHIPPED
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.core.bundle import Bundle, Version, parse_bundle
from trunkline.core.clock import ManualClock
from trunkline.core.errors import Retryable
from trunkline.core.jsoncodec import loads
from trunkline.pipeline.kafka_asker import KafkaAsker
from trunkline.pipeline.reporter_kafka import KafkaStatusReporter, raise_incarnation
from waiting import eventually

ROWS = [{"name": "a", "health": "ok", "revision": 1, "changed_at": "2026-01-01T00:00:00Z"}]
OBJECTS = [{"metadata": {"name": "a", "uid": "u"}}]


class Broker:
    def __init__(self, topics: Topics, folder: Path) -> None:
        self.topics, self.state, self.clock = topics, folder / "incarnation.json", ManualClock()
        topics.create("berlin", "control")

    def reporter(self, bootstrap: str | None = None, **more: Any) -> KafkaStatusReporter:
        sources = {"clusters": lambda: ROWS, "managed-clusters": lambda: OBJECTS}
        return KafkaStatusReporter(bootstrap or self.topics.bootstrap, "berlin", self.state, SHIPPED, sources,
                                   topic=self.topics.name("berlin"), clock=self.clock, **more)  # fmt: skip

    def sent(self, type_: str = "") -> list[Bundle]:
        config = {"bootstrap.servers": self.topics.bootstrap, "group.id": "test", "enable.auto.commit": False, **QUIET}
        consumer = Consumer(config)
        with closing(consumer):
            place = TopicPartition(self.topics.name("berlin"), 0, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=10)
            consumer.assign([place])
            records = consumer.consume(end, timeout=10) if end else []
        assert {record.key() for record in records} <= {b"berlin"}
        bundles = []
        for record in records:
            headers = {name: bytes(value).decode() for name, value in record.headers() or []}
            bundles.append(SHIPPED.accept(parse_bundle(headers, record.value() or b"", "berlin")))
        return [bundle for bundle in bundles if type_ in ("", bundle.type)]


@pytest.fixture
def broker(kafka: KafkaBroker, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    with closing(Topics(kafka.bootstrap, f"reporter-{abs(hash(request.node.name)) % 10**8}")) as topics:
        yield Broker(topics, tmp_path)


def test_h02_the_incarnation_in_the_file_is_raised_at_each_start(tmp_path: Path) -> None:
    file = tmp_path / "state"
    assert [raise_incarnation(file, now) for now in (1000.0, 1000.0, 1000.0, 5000.0, 10.0)] == [1000, 1001, 1002, 5000, 5001]
    for damage in (b"", b"{", b"[]", b'{"incarnation": "x"}'):
        file.write_bytes(damage)
        assert raise_incarnation(file, 6000.0) == 6000


def test_only_what_has_changed_is_sent_and_dependents_name_their_base(broker: Broker) -> None:
    with closing(broker.reporter()) as reporter:
        run = reporter.incarnation
        assert reporter.report("clusters") == Version(run, 1)
        assert reporter.report("clusters") is None
        assert reporter.report("clusters", []) == Version(run, 2)
        assert reporter.report("compliance", []) == Version(run, 1)
        assert reporter.changed("managed-clusters", create=OBJECTS) == Version(run, 1)
        assert reporter.report("events", [{"id": "e"}]) == Version(run, 1)
    bundles = broker.sent()
    assert [(b.type, b.version) for b in bundles] == [
        ("clusters", Version(run, 1)), ("clusters", Version(run, 2)), ("compliance", Version(run, 1)),
        ("managed-clusters", Version(run, 1)), ("events", Version(run, 1)),
    ]  # fmt: skip
    assert str(bundles[2].dependency) == f"clusters@{run}.2"
    with closing(broker.reporter()) as again:
        assert again.report("clusters", []) == Version(again.incarnation, 1)
        assert again.incarnation > run


def test_a_request_on_the_control_topic_is_answered_and_another_sites_is_not(broker: Broker) -> None:
    control = broker.topics.name("control")
    asker = KafkaAsker(broker.topics.bootstrap, control, {})
    with closing(broker.reporter()) as reporter, closing(asker), reporter.serving(control) as serving:
        assert serving.wait_until_listening(30)
        eventually(lambda: len(broker.sent()) == 3)  # the first ones: rows, objects, and the list of objects
        asker.ask("munich", ["clusters"], "test", "1")
        asker.ask("berlin", ["managed-clusters", "unheard-of"], "test", "2")
        asker.flush()
        eventually(lambda: len(broker.sent("managed-clusters")) == 4)
        asker.ask("berlin", [], "test", "3")
        asker.flush()
        eventually(lambda: len(broker.sent("clusters")) == 2 and len(broker.sent("managed-clusters")) == 6)
    objects, listed = (loads(bundle.data) for bundle in broker.sent("managed-clusters")[-2:])
    assert objects == {"resync": OBJECTS}
    assert listed == {"resync_metadata": [{"id": "u", "ns": "", "name": "a"}]}


def test_a_source_that_fails_costs_its_own_type_and_no_thread(broker: Broker) -> None:
    """As one that reads a database which is being restarted."""
    broken = threading.Event()
    broken.set()
    tried: list[str] = []

    def unsure() -> list[dict[str, str | int]]:
        tried.append("clusters")
        if broken.is_set():
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return ROWS

    control = broker.topics.name("control")
    sources = {"clusters": unsure, "managed-clusters": lambda: OBJECTS}
    made = KafkaStatusReporter(broker.topics.bootstrap, "berlin", broker.state, SHIPPED, sources, broker.topics.name("berlin"))
    asker = KafkaAsker(broker.topics.bootstrap, control, {})
    with closing(asker), closing(made) as reporter, reporter.serving(control) as serving:
        assert serving.wait_until_listening(30)
        eventually(lambda: len(broker.sent("managed-clusters")) == 2 and len(tried) >= 2)
        asker.ask("berlin", ["clusters", "managed-clusters"], "test", "1")
        asker.flush()
        eventually(lambda: len(broker.sent("managed-clusters")) == 4)
        assert broker.sent("clusters") == []
        broken.clear()
        eventually(lambda: len(broker.sent("clusters")) == 1)


def test_what_the_brokers_did_not_take_is_made_up_for_under_a_new_version(broker: Broker) -> None:
    away = broker.reporter("127.0.0.1:1", delivery_seconds=0.3)
    with closing(away):
        with pytest.raises(Retryable, match="see that its brokers are there"):
            away.report("clusters")
        with pytest.raises(Retryable):
            away.changed("managed-clusters", create=OBJECTS)
        away._records.close()
        away._records = broker.reporter()._records
        assert away.report("clusters") == Version(away.incarnation, 2)  # not "unchanged"
        assert away.answer() == ["managed-clusters"]
    assert [bundle.version.generation for bundle in broker.sent("managed-clusters")] == [2, 2]


def test_kill_9_never_repeats_a_version_with_another_content(broker: Broker) -> None:
    program = Path(__file__).parent / "killed_kafka_reporter.py"
    words = [sys.executable, str(program), broker.topics.bootstrap, broker.topics.name("berlin"), str(broker.state)]
    for _ in range(2):
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                for _ in range(5):
                    assert process.stdout.readline() == b"sent\n"
            finally:
                os.kill(process.pid, signal.SIGKILL)
    bundles = broker.sent("clusters")
    assert len({bundle.version for bundle in bundles}) == len(bundles) >= 10
    assert [bundle.version for bundle in bundles] == sorted(bundle.version for bundle in bundles)
