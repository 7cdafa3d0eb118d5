"""Scenarios of what takes too long: statements that hang, hubs that are silent, chunks whose rest does not come. On real Kafka,
Spark and Postgres."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from hub_agent import Message, clusters_changed, compliance, cut, heartbeat, per_policy, sent
from kafka_bridge import KafkaBridge
from kafka_topics import Topics
from trunkline.api.bridgemetrics import bridge_metrics
from trunkline.bridge.inspect import numbers
from trunkline.core.config import BridgeConfig

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

MIB = 2**20
NOTHING_ELSE = {"conflated": 0, "rejected": 0, "stale": 0, "quarantined": 0}
MakeBridge = Callable[..., KafkaBridge]


HANGING = """
CREATE TABLE hanging ();
INSERT INTO hanging DEFAULT VALUES;
CREATE SEQUENCE tries;
CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('tries');
    IF EXISTS (SELECT FROM hanging) THEN
        PERFORM pg_sleep(60);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER hang BEFORE INSERT OR UPDATE ON fleet.compliance FOR EACH ROW WHEN (NEW.site = 'h1') EXECUTE FUNCTION hang()
"""


def test_s23_a_statement_that_hangs_is_cancelled_and_tried_again_while_other_hubs_go_on(
    make_bridge: MakeBridge, topics: Topics
) -> None:
    bridge = make_bridge(statement_seconds=1)
    others = ["h2", "h3", "h4", "h5"]
    topics.create("h1", *others)
    bridge.conn.execute(HANGING)
    bridge.conn.commit()

    def tries() -> int:
        [(count,)] = bridge.rows("SELECT last_value FROM tries WHERE is_called UNION ALL SELECT 0 LIMIT 1")
        return int(count)

    def send(round_: int, hubs: list[str]) -> None:
        for hub in hubs:
            bridge.put(hub, compliance(hub, f"{round_}.{round_ + 1}", compliant=[f"c{round_}"]))

    def applied() -> dict[str, tuple[int, int]]:
        return {hub: at for hub in ("h1", *others) if (at := bridge.ledger(hub).get("clusters-per-policy"))}

    send(0, ["h1", *others])  # all may be in one wave
    bridge.start()
    bridge.until(lambda: applied() == dict.fromkeys(others, (0, 1)))
    for round_ in range(1, 4):
        before = tries()
        send(round_, others)
        bridge.until(lambda r=round_: applied() == dict.fromkeys(others, (r, r + 1)))
        bridge.until(lambda b=before: tries() > b)  # it was cancelled and hangs again
    assert bridge.rows("SELECT 1 FROM fleet.compliance WHERE site = 'h1'") == []
    assert bridge.counters("h1") == {"received": 1, "applied": 0, **NOTHING_ELSE}
    bridge.conn.execute("DELETE FROM hanging")
    bridge.conn.commit()
    bridge.until_applied(h1=1, **dict.fromkeys(others, 4))
    assert bridge.compliance("h1") == {("p1", "c0"): "compliant"}
    assert bridge.counters("h1") == {"received": 1, "applied": 1, **NOTHING_ELSE}
    for hub in others:
        assert bridge.compliance(hub) == {("p1", "c3"): "compliant"}
        assert bridge.counters(hub) == {"received": 4, "applied": 4, **NOTHING_ELSE}
    assert bridge.rows("SELECT 1 FROM bridge.quarantine") == []


TURNS = """
CREATE TABLE turned (site text, state text, read bigint);
CREATE FUNCTION note_turn() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO turned SELECT NEW.site, NEW.state, (SELECT sum(next_offset) FROM pipeline.kafka_offset);
    RETURN NULL;
END $$;
CREATE TRIGGER note_turn AFTER UPDATE ON bridge.site FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION note_turn();

CREATE FUNCTION await_test() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(31);
    RETURN NEW;
END $$;
CREATE TRIGGER await_test BEFORE INSERT ON bridge.inbox FOR EACH ROW
    WHEN (NEW.site = 'h2' AND NEW.type = 'heartbeat' AND NEW.generation >= 12) EXECUTE FUNCTION await_test()
"""


def test_s31_after_the_bridge_was_down_only_who_is_silent_is_hidden_and_only_when_all_is_read(
    make_bridge: MakeBridge, topics: Topics
) -> None:
    """The bridge is down for ten minutes of event time. h1, h2 and h3 go on; h2 says the most, so it is read last; h4 stops six
    minutes before the others' newest."""
    hubs = ["h1", "h2", "h3", "h4"]
    topics.create(*hubs)
    start = int(datetime.now(UTC).timestamp()) - 1800

    def at(seconds: float) -> str:
        return datetime.fromtimestamp(start + seconds, UTC).isoformat()

    def activity() -> dict[str, str]:
        return dict(bridge.rows("SELECT site, state FROM bridge.site"))

    def seen(hub: str) -> float:
        [(last,)] = bridge.rows("SELECT extract(epoch FROM last_seen)::float8 FROM bridge.site WHERE site = %s", hub)
        return float(last) - start

    def judged() -> float:
        return bridge.keeper._liveness.watermark - start

    bridge = make_bridge()
    bridge.conn.execute(TURNS)
    bridge.conn.commit()
    for hub in hubs:
        rows = clusters_changed(hub, 0, create=[("c1", 0)]), compliance(hub, "0.1", compliant=["c1"])
        bridge.put(hub, *[sent(message, time=at(0)) for message in rows], heartbeat(hub, 0, at(0)))
    bridge.start()
    bridge.keep()
    bridge.until_applied(**dict.fromkeys(hubs, 3))
    bridge.until(lambda: judged() >= 0)
    bridge.stop()

    every = {"h1": 60, "h2": 20, "h3": 60, "h4": 60}
    for hub, seconds in every.items():
        last = 240 if hub == "h4" else 600
        bridge.put(hub, *[heartbeat(hub, n, at(n * seconds)) for n in range(1, last // seconds + 1)])
    ends = {"h1": 13, "h2": 33, "h3": 13, "h4": 7}
    bridge = make_bridge(max_records=16)
    with psycopg.connect(bridge.dsn) as paused:
        paused.execute("SELECT pg_advisory_xact_lock(31)")
        bridge.start()
        bridge.keep()
        bridge.until(lambda: bridge.rows("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") != [])
        bridge.until(lambda: judged() >= seen("h1"))
        assert seen("h1") - seen("h2") > 300  # but there is more of it
        assert set(activity().values()) == {"active"}
    bridge.until_applied(**ends)
    bridge.until(lambda: activity() == {"h1": "active", "h2": "active", "h3": "active", "h4": "silent"})
    assert bridge.rows("SELECT * FROM turned") == [("h4", "silent", sum(ends.values()))]
    tables = ("managed_cluster", "compliance", "heartbeat")
    for table in tables:
        assert sorted(bridge.rows(f"SELECT site FROM fleet.{table}")) == [(hub,) for hub in hubs]
        assert sorted(bridge.rows(f"SELECT site FROM fleet.visible_{table}")) == [("h1",), ("h2",), ("h3",)]
    assert bridge.rows("SELECT 1 FROM fleet.managed_cluster WHERE deleted_at IS NOT NULL") == []

    bridge.put("h4", heartbeat("h4", 5, at(610)))
    bridge.until(lambda: set(activity().values()) == {"active"})
    for table in tables:
        assert sorted(bridge.rows(f"SELECT site FROM fleet.visible_{table}")) == [(hub,) for hub in hubs]
    assert bridge.rows("SELECT site, state FROM turned") == [("h4", "silent"), ("h4", "active")]
    wanted = bridge.rows("SELECT site, type FROM bridge.resync WHERE type <> 'heartbeat' ORDER BY type")
    assert wanted == [("h4", "clusters-per-policy"), ("h4", "managed-clusters")]  # what it did not say meanwhile


def large(hub: str) -> tuple[Message, int]:
    """A bundle of 12 MiB and how many rows it has."""
    names = [f"{hub}-{n:04}-{'x' * 1_000}" for n in range(250)]
    policies = {f"P{n}": {"compliantClusters": names[n:], "nonCompliantClusters": names[:n]} for n in range(50)}
    return per_policy(hub, "0.1", policies), len(policies) * len(names)


def tallies(bridge: KafkaBridge, hub: str) -> dict[str, int]:
    names = ("received", "joined", "conflated", "applied", "expired", "rejected", "stale", "quarantined", "discarded")
    [found] = bridge.rows(f"SELECT {', '.join(names)} FROM bridge.counter WHERE site = %s", hub)
    return {name: count for name, count in zip(names, found, strict=True) if count}


def test_s34_chunks_among_anothers_and_one_doubled_are_assembled_once_over_a_restart(
    make_bridge: MakeBridge, topics: Topics
) -> None:
    most = str(16 * MIB)
    topics.create("h1", "h2", config={"max.message.bytes": most})
    producer = topics.producer(message_max_bytes=most)

    def put(hub: str, message: Message) -> None:
        producer.produce(topics.name(hub), message[1], partition=0, headers=message[0])
        assert producer.flush(30) == 0

    messages = {hub: large(hub) for hub in ("h1", "h2")}
    sizes = {hub: len(message[1]) for hub, (message, _) in messages.items()}
    (first, second), (other, other_second) = [cut(message, 10 * MIB) for message, _ in messages.values()]
    assert min(sizes.values()) >= 12 * MIB
    assert first[0]["ce_id"] != second[0]["ce_id"]
    bridge = make_bridge()
    bridge.start()
    bridge.keep()
    put("h1", first)
    put("h2", other)
    put("h1", first)
    bridge.until_taken_in(h1=2, h2=1)
    parts = "SELECT site, size, end_byte, length(body) FROM bridge.chunk ORDER BY site"
    assert bridge.rows(parts) == [(hub, sizes[hub], 10 * MIB, 10 * MIB) for hub in ("h1", "h2")]
    assert bridge.waiting() == 0
    bridge.stop()

    bridge = make_bridge()
    bridge.start()
    bridge.keep()
    assert len(bridge.rows(parts)) == 2  # offsets are past them, so they must be kept
    put("h2", other_second)
    put("h1", second)
    bridge.until_applied(h1=3, h2=2)
    stored = "SELECT count(*), count(*) FILTER (WHERE state = 'non_compliant') FROM fleet.compliance WHERE site = %s"
    for hub, (_, rows) in messages.items():
        assert bridge.rows(stored, hub) == [(rows, sum(range(50)))]
        assert bridge.ledger(hub) == {"clusters-per-policy": (0, 1)}
    assert bridge.rows("SELECT count(*) FROM fleet.compliance WHERE NOT starts_with(cluster_name, site)") == [(0,)]
    assert tallies(bridge, "h1") == {"received": 3, "joined": 1, "conflated": 1, "applied": 1}
    assert tallies(bridge, "h2") == {"received": 2, "joined": 1, "applied": 1}
    assert bridge.rows(parts) == []


class _Metrics:
    def __init__(self, view: dict[str, Any]) -> None:
        self._view = view

    def collect(self) -> Any:
        return bridge_metrics(self._view)


def shown_metrics(bridge: KafkaBridge) -> list[str]:
    registry = CollectorRegistry()
    registry.register(_Metrics(numbers(bridge.conn)))
    bridge.conn.rollback()
    return generate_latest(registry).decode().splitlines()


def test_s34_a_lone_first_chunk_expires_with_a_metric_and_its_bundle_is_asked_for(
    make_bridge: MakeBridge, topics: Topics
) -> None:
    assert BridgeConfig().chunk_seconds == 600
    topics.create("h1", "h2")
    bridge = make_bridge(chunk_seconds=1)
    first, _ = cut(compliance("h1", "0.1", compliant=["c1"]), 10)
    bridge.put("h1", first)
    bridge.put("h2", compliance("h2", "0.1", compliant=["c1"]))
    bridge.start()
    bridge.until_applied(h1=1, h2=1)
    assert bridge.rows("SELECT site FROM bridge.chunk") == [("h1",)]
    assert 'trunkline_bridge_expired_total{site="h1"} 0.0' in shown_metrics(bridge)
    bridge.keep()
    bridge.until(lambda: bridge.rows("SELECT 1 FROM bridge.chunk") == [])
    shown = shown_metrics(bridge)
    assert 'trunkline_bridge_expired_total{site="h1"} 1.0' in shown
    assert 'trunkline_bridge_expired_total{site="h2"} 0.0' in shown
    assert tallies(bridge, "h1") == {"received": 1, "expired": 1}
    assert tallies(bridge, "h2") == {"received": 1, "applied": 1}
    assert bridge.rows("SELECT site, type, holds FROM bridge.resync") == [("h1", "clusters-per-policy", None)]
    assert bridge.compliance("h1") == {}
    bridge.put("h1", compliance("h1", "1.2", compliant=["c1"]))
    bridge.until_applied(h1=2, h2=1)
    assert bridge.compliance("h1") == {("p1", "c1"): "compliant"}
    assert bridge.rows("SELECT 1 FROM bridge.resync") == []
