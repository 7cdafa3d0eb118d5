"""`trunkline fleet-load` to real queues and to a real Kafka, and what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
import typer.main
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from trunkline.bridge.shipped import SHIPPED
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.cli.main import app
from trunkline.core.bundle import parse_bundle
from trunkline.core.errors import Invalid, Retryable
from trunkline.queues.reader import heads, read
from waiting import eventually

COMMAND = typer.main.get_command(app)
SMALL = ("--sites", "3", "--clusters", "4", "--policies", "2", "--turns", "2", "--rate", "max")


def load(*words: str) -> Result:
    return CliRunner().invoke(COMMAND, ["fleet-load", *words])


@pytest.fixture(scope="module")
def dsn(make_databases: Callable[..., str]) -> str:
    return make_databases("queues", "bridge")


def received(dsn: str, client: str) -> Counter[tuple[str, str]]:
    with psycopg.connect(dsn) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        messages = [message for name, head in heads(conn, client).items() for message in read(conn, name, 0, head)]
        rows = conn.execute("SELECT id, head, received_bytes FROM queues.queue WHERE client = %s", (client,)).fetchall()
        for queue, head, size in rows:
            last = conn.execute(
                "SELECT position, total FROM queues.receive WHERE queue = %s ORDER BY position", (queue,)
            ).fetchall()
            assert [position for position, _ in last] == list(range(1, head + 1))
            assert last[-1][1] == size
    bundles = [SHIPPED.accept(parse_bundle(one.headers, one.payload, one.remote)) for one in messages]
    return Counter((bundle.source, bundle.type) for bundle in bundles)


def test_bundles_lie_in_the_receive_queues_as_the_trunk_would_leave_them(dsn: str) -> None:
    done = load(*SMALL, "--types", "demo", "--to-queues", dsn, "--client", "plain")
    assert done.exit_code == 0, done.output
    sites = ("load-1", "load-2", "load-3")
    assert received(dsn, "plain") == {(site, type_): 2 for site in sites for type_ in ("clusters", "compliance", "events")}
    assert "18 bundles of 3 sites" in done.output
    assert "every site had 2 whole turns" in done.output
    again = load(*SMALL, "--types", "demo", "--to-queues", dsn, "--client", "plain")
    assert again.exit_code == 0
    assert received(dsn, "plain").total() == 36


def test_the_sum_as_json_is_what_was_written(dsn: str) -> None:
    done = load(*SMALL, "--to-queues", dsn, "--client", "fleet", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["messages"] == received(dsn, "fleet").total()
    assert (said["sites"], said["turns"], said["interrupted"]) == (3, 2, False)
    assert said["rows"] > said["changed"] > 0


def test_the_rate_and_the_time_are_kept(dsn: str) -> None:
    done = load("--sites", "2", "--clusters", "2", "--policies", "1", "--types", "heartbeat", "--rate", "20/s", "--for", "1s",
                "--to-queues", dsn, "--client", "paced", "--json")  # fmt: skip
    said = json.loads(done.stdout)
    assert 15 <= said["bundles"] <= 23
    assert 0.9 <= said["seconds"] < 5


@pytest.mark.parametrize("shared", [False, True], ids=["per-site", "shared"])
def test_to_kafka_each_site_has_its_topic_or_all_share_one(kafka: KafkaBroker, shared: bool) -> None:
    topic = f"fleetload-{shared}".lower()
    done = load(*SMALL, "--types", "demo", "--to", f"kafka://{kafka.bootstrap}", "--topic", topic,
                "--topics", "shared" if shared else "per-site")  # fmt: skip
    assert done.exit_code == 0, done.output
    found = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0}).list_topics(timeout=10).topics
    mine = {name: one for name, one in found.items() if name.startswith(topic)}
    assert set(mine) == ({topic} if shared else {f"{topic}.load-{n}" for n in (1, 2, 3)})
    places = [TopicPartition(name, number, 0) for name, one in mine.items() for number in one.partitions]
    with closing(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic, "log_level": 0})) as consumer:
        consumer.assign(places)
        records = consumer.consume(18, timeout=30)
    assert len(records) == 18
    for record in records:
        site = (record.key() or b"").decode()
        headers = {name: bytes(value).decode() for name, value in record.headers() or []}
        bundle = SHIPPED.accept(parse_bundle(headers, record.value() or b"", site))
        assert record.topic() == (topic if shared else f"{topic}.{bundle.source}")


def test_ctrl_c_writes_what_was_begun_and_sums_up(dsn: str) -> None:
    words = ["fleet-load", "--sites", "5", "--clusters", "3", "--policies", "1", "--rate", "200/s", "--for", "10m",
             "--to-queues", dsn, "--client", "stopped", "--json"]  # fmt: skip
    program = [sys.executable, "-m", "trunkline.cli.main", *words]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: received(dsn, "stopped").total() > 20)
            os.kill(process.pid, signal.SIGINT)
            out, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    said = json.loads(out)
    assert said["interrupted"] is True
    assert said["messages"] == received(dsn, "stopped").total()


def test_counting_writes_nothing_and_says_what_to_expect() -> None:
    words = ("--sites", "1000", "--clusters", "300", "--policies", "50", "--rate", "100/s", "--count-only")
    said = load(*words)
    assert said.exit_code == 0
    assert "1,000 sites, each of 300 clusters and 50 policies" in said.output
    assert "rows written" in said.output
    document = json.loads(load(*words, "--json").stdout)
    later, second = document["later_turn"], document["per_second"]
    assert document["rows_held"] == document["first_turn"]["changed"] * 1000 >= 15_000_000
    assert second["later_rows"] == pytest.approx(later["rows"] * 100 / later["bundles"])
    assert document["turn_seconds"] == pytest.approx(1000 * later["bundles"] / 100)
    assert json.loads(load(*words, "--rate", "max", "--json").stdout)["per_second"] is None


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "it is not said where to"),
        (("--to", "kafka://a:1", "--to-queues", "dbname=x"), "it is said twice where to"),
        (("--to", "http://a:1"), r"it is not kafka://HOST:PORT"),
        (("--rate", "fast", "--count-only"), "it is not a positive number per time"),
        (("--rate", "0/s", "--count-only"), "it is not a positive number per time"),
        (("--for", "soon", "--count-only"), "duration 'soon'"),
        (("--types", "unheard-of", "--count-only"), "there is no load of it"),
        (("--types", "compliance", "--count-only"), "add clusters to the types"),
        (("--types", ",", "--count-only"), "it names no type"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        CliRunner().invoke(COMMAND, ["fleet-load", *words], catch_exceptions=False)


def test_a_database_that_is_away_or_has_no_queues_is_named(postgres: Any) -> None:
    with pytest.raises(Retryable, match="the hub's database"):
        CliRunner().invoke(COMMAND, ["fleet-load", *SMALL, "--to-queues", "host=127.0.0.1 port=1"], catch_exceptions=False)
    with pytest.raises(Invalid, match="it has no queues"):
        CliRunner().invoke(COMMAND, ["fleet-load", *SMALL, "--to-queues", postgres.dsn], catch_exceptions=False)


def test_its_help_has_an_example() -> None:
    said = load("--help").output
    assert "trunkline fleet-load --sites 1000" in " ".join(said.split())
