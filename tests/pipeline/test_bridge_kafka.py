"""The bridge's intake over Kafka: identity, what was lost, holding back, and how far it is."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agent_story import Fleet
from fleet_feed import CLIENT, Feed, changes, clusters, events, status_of
from hub_agent import compliance, event
from kafka_bridge import KafkaBridge
from kafka_topics import Topics
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.wishes import Wish, wish
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.core.clock import SystemClock
from trunkline.core.config import BridgeConfig, BridgeKafkaConfig
from trunkline.core.errors import Invalid
from trunkline.db.lease import acquire, connect_fenced
from trunkline.pipeline.conflate import HAND_ROWS
from trunkline.pipeline.halves import Halves, require_input
from trunkline.pipeline.session import Spark
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]
_numbers = itertools.count(1)


@pytest.fixture
def topics(kafka: KafkaBroker) -> Iterator[Topics]:
    topics = Topics(kafka.bootstrap, f"bridge{next(_numbers)}")
    yield topics
    topics.close()


@pytest.fixture
def dsn(make_database: Callable[..., str]) -> str:
    return make_database("queues", "bridge", "pipeline")


@pytest.fixture
def run(spark: Spark, dsn: str, topics: Topics, tmp_path: Path) -> Iterator[Callable[..., KafkaBridge]]:
    with ExitStack() as stack:
        yield lambda **config: KafkaBridge(spark, dsn, topics, tmp_path, stack, **config)


def test_on_a_shared_topic_sites_are_told_apart_by_key_and_a_lie_is_rejected(
    run: Callable[..., KafkaBridge], topics: Topics
) -> None:
    topics.create("all")
    bridge = run(shared=(topics.name("all"),))
    bridge.put("all", clusters("h1", 1, "one"), key="h1")
    bridge.put("all", clusters("h2", 1, "two"), key="h2")
    bridge.put("all", clusters("h2", 9, "forged"), key="h1")
    bridge.put("all", clusters("h2", 9, "nobody's"))
    bridge.start()
    bridge.until_applied(all=4)
    assert status_of(bridge.dsn)["cluster"] == {("h1", "one", 1), ("h2", "two", 1)}
    assert (bridge.counters("h1")["rejected"], bridge.counters("h2")["rejected"], bridge.counters("")["rejected"]) == (1, 0, 1)


@pytest.mark.parametrize("direct_rows", [0, HAND_ROWS], ids=["by tasks", "by the driver"])
def test_a_story_ends_the_same_whoever_reads_it(
    run: Callable[..., KafkaBridge], spark: Spark, dsn: str, topics: Topics, direct_rows: int
) -> None:
    fleet = Fleet(dsn, topics, 2, random.Random())
    fleet.send(60)
    bridge = run(direct_rows=direct_rows)
    bridge.start()
    [query] = spark.session.streams.active
    bridge.until(lambda: fleet.taken_in() == fleet.sent)
    fleet.send(60)
    fleet.send_all()
    bridge.until(fleet.is_done)
    fleet.require_end()
    assert any(progress.numInputRows for progress in query.recentProgress) == (direct_rows == 0)


def test_messages_that_postgres_could_not_keep_are_set_aside_and_stop_nothing(
    run: Callable[..., KafkaBridge], topics: Topics
) -> None:
    topics.create("h1")
    bridge = run()
    headers, payload = clusters("h1", 9, "c")
    topics.put("h1", payload, headers={**headers, "ce_id": b"a\x00b", "other": b"\x00"})
    bridge.put("h1", clusters("h1", 1, "fine"))
    bridge.start()
    bridge.until_applied(h1=2)
    assert status_of(bridge.dsn)["cluster"] == {("h1", "fine", 1)}
    [(kept,)] = bridge.rows("SELECT headers FROM bridge.quarantine")
    assert (kept["ce_id"], kept["other"]) == ("a\\x00b", "\\x00")


def test_what_a_global_hub_agent_sends_arrives_and_its_restart_is_followed(
    run: Callable[..., KafkaBridge], topics: Topics
) -> None:
    topics.create("h1")
    bridge = run()
    bridge.put("h1", *[compliance("h1", f"{n}.{n + 1}", compliant=["c1"], nonCompliant=["c2"]) for n in range(5)])
    bridge.put("h1", compliance("h1", "0.1", nonCompliant=["c1", "c2"]))  # the agent began anew, within the batch
    flipped = [{"policyId": "p1", "nonCompliantClusters": ["c2"]}]
    bridge.put("h1", event("h1", "policy.localcompletecompliance", "0.1", flipped, extdependencyversion="1.1"))
    bridge.start()
    bridge.until_applied(h1=7)
    rows = bridge.rows("SELECT cluster_name, state::text FROM fleet.compliance")
    assert sorted(rows) == [("c1", "compliant"), ("c2", "non_compliant")]
    counted = bridge.counters("h1")
    assert counted["received"] == counted["applied"] + counted["conflated"] == 7


@pytest.mark.parametrize("shared", [False, True], ids=["its own topic", "a shared topic"])
def test_a_topic_made_anew_makes_its_sites_be_asked_for_all_they_have(
    run: Callable[..., KafkaBridge], topics: Topics, shared: bool
) -> None:
    topics.create("h1", "h2")
    bridge = run(shared=(topics.name("h1"),) if shared else ())
    for site in ("h1", "h2"):
        bridge.put(site, changes(site, 1, create=[]), key=site)
    bridge.start()
    bridge.until_applied(h1=1, h2=1)
    bridge.intake.stop()
    topics.recreate("h1")
    bridge.put("h1", events("h1", 1, "e"), key="h1")
    bridge.intake.start()
    bridge.until(lambda: status_of(bridge.dsn)["event"] == {("h1", "e")})
    wishes = dict(bridge.rows("SELECT site, reason FROM bridge.resync WHERE type = 'managed-clusters'"))
    assert sorted(wishes) == (["h1", "h2"] if shared else ["h1"])
    assert "was made anew" in wishes["h1"]
    assert bridge.rows("SELECT count(*) FROM pipeline.kafka_change") == [(1,)]


def test_a_topic_that_lost_its_newest_records_is_read_again_and_stops_no_other(
    run: Callable[..., KafkaBridge], topics: Topics
) -> None:
    topics.create("h1", "h2")
    bridge = run()
    bridge.start()
    bridge.put("h1", *[clusters("h1", n, "c") for n in range(1, 4)])
    bridge.until_applied(h1=3, h2=0)
    bridge.intake.stop()
    bridge.conn.execute("UPDATE pipeline.kafka_offset SET next_offset = 9 WHERE next_offset = 3")
    bridge.conn.commit()
    bridge.intake.start()
    bridge.put("h2", clusters("h2", 1, "other"))
    bridge.until_applied(h1=3, h2=1)
    assert status_of(bridge.dsn)["cluster"] == {("h1", "c", 3), ("h2", "other", 1)}
    [(site, reason)] = bridge.rows("SELECT DISTINCT site, reason FROM bridge.resync")
    assert (site, "lost its newest records" in reason) == ("h1", True)
    bridge.put("h1", clusters("h1", 4, "c"))
    bridge.until_applied(h1=4, h2=1)


def test_while_too_many_events_wait_for_the_workers_nothing_more_is_taken_in(
    run: Callable[..., KafkaBridge], topics: Topics
) -> None:
    topics.create("h1")
    bridge = run(waiting_rows=10)
    bridge.put("h1", *[events("h1", n, f"e{n}") for n in range(20)])
    with psycopg.connect(bridge.dsn) as paused:
        paused.execute("LOCK TABLE status.event IN EXCLUSIVE MODE")
        bridge.start()
        bridge.until_taken_in(h1=20)
        bridge.put("h1", *[events("h1", n, f"e{n}") for n in range(20, 30)])
        bridge.until(lambda: bridge.rows("SELECT 1 FROM pipeline.kafka_plan") == [(1,)])
        bridge.until(lambda: not bridge.intake.caught_up())  # the batch is held up, and nobody knows what came meanwhile
        assert (bridge.offsets(), bridge.waiting()) == ({"h1": 20}, 20)
    bridge.until_applied(h1=30)
    assert len(status_of(bridge.dsn)["event"]) == 30
    bridge.until(bridge.intake.caught_up)


def test_h37_the_answer_to_a_resync_is_read_behind_more_held_bundles_than_may_wait(
    run: Callable[..., KafkaBridge], topics: Topics
) -> None:
    topics.create("h1")
    bridge = run(waiting_rows=10)
    wish(bridge.conn, [Wish("h1", "managed-clusters", "managed-clusters", "what came before was lost")])
    bridge.conn.commit()
    bridge.put("h1", *[changes("h1", n, create=[]) for n in range(1, 21)])
    bridge.start()
    bridge.until_taken_in(h1=20)
    bridge.put("h1", changes("h1", 21, resync=[]))
    bridge.until_applied(h1=21)
    assert bridge.rows("SELECT count(*) FROM bridge.resync") == [(0,)]


def test_an_intake_stops_although_its_database_says_nothing_any_more_and_goes_on_later(
    run: Callable[..., KafkaBridge], topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("h1")
    bridge = run()
    bridge.start()
    bridge.until(bridge.intake.caught_up)
    monkeypatch.setattr(bridge.intake, "_drain_seconds", 0.1)
    with psycopg.connect(bridge.dsn) as lock:
        lock.execute("LOCK TABLE bridge.inbox")
        bridge.put("h1", clusters("h1", 1, "c"))
        [[pid]] = eventually_rows(bridge, "SELECT pid FROM pg_locks WHERE NOT granted AND relation = 'bridge.inbox'::regclass")
        os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            bridge.intake.stop()
            assert time.monotonic() - began < 15
        finally:
            os.kill(pid, signal.SIGCONT)
    bridge.intake.start()
    bridge.until_applied(h1=1)


def eventually_rows(bridge: KafkaBridge, query: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    bridge.until(lambda: bool(found.extend(bridge.rows(query)) or found))
    return found


def test_an_intake_has_caught_up_when_it_runs_and_saw_all_there_was(run: Callable[..., KafkaBridge], topics: Topics) -> None:
    topics.create("h1")
    bridge = run()
    assert not bridge.intake.caught_up()
    bridge.start()
    bridge.until(bridge.intake.caught_up)
    bridge.put("h1", clusters("h1", 1, "c"))
    bridge.until_applied(h1=1)
    bridge.until(bridge.intake.caught_up)
    bridge.intake.stop()
    assert not bridge.intake.caught_up()


def test_a_start_with_nothing_new_waits_for_what_comes(run: Callable[..., KafkaBridge], topics: Topics) -> None:
    topics.create("h1")
    bridge = run()
    bridge.put("h1", clusters("h1", 1, "c"))
    bridge.start()
    bridge.until_applied(h1=1)
    bridge.intake.stop()
    bridge.intake.start()
    bridge.until(bridge.intake.caught_up)
    bridge.put("h1", clusters("h1", 2, "c"))
    bridge.until_applied(h1=2)


def test_the_bridges_jobs_have_a_pool_of_their_own(
    run: Callable[..., KafkaBridge], topics: Topics, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("h1")
    bridge = run()
    context = spark.session.sparkContext
    before = context.getLocalProperty("spark.scheduler.pool")
    pools: list[str | None] = []
    taken = bridge.workers.notice

    def notice(waiting: Any) -> None:
        pools.append(context.getLocalProperty("spark.scheduler.pool"))
        taken(waiting)

    monkeypatch.setattr(bridge.workers, "notice", notice)
    bridge.put("h1", clusters("h1", 1, "c"))
    bridge.start()
    bridge.until_applied(h1=1)
    assert pools == ["bridge"]
    assert context.getLocalProperty("spark.scheduler.pool") == before
    assert context.getConf().get("spark.scheduler.mode") == "FAIR"


def test_queues_and_kafka_are_read_at_once(spark: Spark, dsn: str, topics: Topics, tmp_path: Path) -> None:
    topics.create("h1")
    for headers, payload in (clusters("h1", 1, "from kafka"), events("h1", 1, "e")):
        topics.put("h1", payload, headers=headers)
    Feed(dsn).put("a", clusters("a", 1, "from a queue"), events("a", 1, "e"))
    kafka = BridgeKafkaConfig(bootstrap=topics.bootstrap, topics=rf"{topics.prefix}-(?P<site>.+)")
    config = BridgeConfig(client=CLIENT, kafka=kafka, workers=2, trigger_seconds=0.1)
    with connect_fenced(dsn) as conn:
        grant = acquire(conn, "bridge", 600.0)
        assert grant is not None
        halves = Halves(spark, dsn, config, SHIPPED, grant, tmp_path, SystemClock())
        halves.start()
        try:

            def all_there() -> bool:
                halves.supervise()
                return status_of(dsn)["cluster"] == {("h1", "from kafka", 1), ("a", "from a queue", 1)}

            eventually(all_there)
            eventually(lambda: status_of(dsn)["event"] == {("h1", "e"), ("a", "e")})
            eventually(halves.caught_up)
        finally:
            halves.stop()
        found = conn.execute("SELECT site, transport FROM bridge.site ORDER BY site").fetchall()
    assert found == [("a", "queues"), ("h1", "kafka")]


def test_a_bridge_without_any_input_is_told_so() -> None:
    with pytest.raises(Invalid, match="neither queues nor Kafka"):
        require_input(BridgeConfig(client=None))
