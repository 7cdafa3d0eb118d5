"""Scenarios of what messages of Global Hub agents leave in the fleet's tables, on real Kafka, Spark and Postgres."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from hub_agent import (
    Message,
    clusters_changed,
    clusters_listed,
    compliance,
    cut,
    event,
    happened,
    heartbeat,
    policy_event,
    sent,
)
from kafka_bridge import KafkaBridge
from kafka_topics import Topics
from trunkline.api.bridgemetrics import bridge_metrics
from trunkline.bridge.inspect import numbers
from trunkline.bridge.months import month_of, shifted
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

MIB = 2**20
NOTHING_ELSE = {"conflated": 0, "rejected": 0, "stale": 0, "quarantined": 0}
MakeBridge = Callable[..., KafkaBridge]


def per_policy(hub: str, version: str, policies: dict[str, dict[str, list[str]]]) -> Message:
    """`policies`: of each the lists of clusters, under the names the agent has for them."""
    return event(hub, "policy.localcompliance", version, [{"policyId": name, **lists} for name, lists in policies.items()])


def states(bridge: KafkaBridge, hub: str) -> dict[tuple[str, str], str]:
    query = "SELECT policy_id, cluster_name, state::text FROM fleet.compliance WHERE site = %s"
    return {(policy, name): state for policy, name, state in bridge.rows(query, hub)}


def clusters(bridge: KafkaBridge, hub: str) -> dict[str, bool]:
    """Whether each is there still."""
    return dict(bridge.rows("SELECT name, deleted_at IS NULL FROM fleet.managed_cluster WHERE site = %s", hub))


def ledger(bridge: KafkaBridge, hub: str) -> dict[str, tuple[int, int]]:
    found = bridge.rows("SELECT type, generation, value FROM bridge.ledger WHERE site = %s", hub)
    return {type_: (generation, value) for type_, generation, value in found}


# -- 12, 13: compliance and its clusters


def work_on_compliance(bridge: KafkaBridge) -> dict[str, int]:
    """What Postgres did with the table so far. Connections tell when they end, so all must have."""
    eventually(lambda: bridge.connections() == 0)
    bridge.rows("SELECT pg_stat_force_next_flush()")
    [(scans, updated, deleted, inserted)] = bridge.rows(
        "SELECT seq_scan, n_tup_upd, n_tup_del, n_tup_ins FROM pg_stat_user_tables WHERE relid = 'fleet.compliance'::regclass"
    )
    [(looked_up,)] = bridge.rows(
        "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelid = 'fleet.compliance_no_cluster'::regclass"
    )
    return {"scans": scans, "updated": updated, "deleted": deleted, "inserted": inserted, "looked up": looked_up}


def test_s12_compliance_before_its_cluster_gets_its_id_with_the_cluster_by_an_index_and_no_other_row_is_touched(
    make_bridge: MakeBridge, topics: Topics
) -> None:
    topics.create("h1", "h2")
    known = [f"c{n}" for n in range(100, 300)]
    bridge = make_bridge()
    bridge.put(
        "h1",
        clusters_changed("h1", 0, create=[(name, 0) for name in known]),
        per_policy("h1", "0.1", {f"P{n}": {"compliantClusters": [*known, "c8", "c9"]} for n in range(20)}),
    )
    bridge.put("h2", per_policy("h2", "0.1", {f"P{n}": {"compliantClusters": ["c8", "c9"]} for n in range(20)}))
    bridge.start()
    bridge.until_applied(h1=2, h2=1)
    bridge.stop()
    lacking = "SELECT site, cluster_name, count(*) FROM fleet.compliance WHERE cluster_id IS NULL GROUP BY 1, 2 ORDER BY 1, 2"
    assert bridge.rows(lacking) == [("h1", "c8", 20), ("h1", "c9", 20), ("h2", "c8", 20), ("h2", "c9", 20)]
    others = """SELECT site, policy_id, cluster_name, cluster_id, xmin::text, xmax::text, ctid::text FROM fleet.compliance
                 WHERE NOT (site = 'h1' AND cluster_name = 'c9') ORDER BY 1, 2, 3"""
    untouched = bridge.rows(others)
    [(written,)] = bridge.rows("SELECT rows_written FROM bridge.counter WHERE site = 'h1'")
    bridge.conn.execute("ANALYZE fleet.compliance, fleet.managed_cluster")
    bridge.conn.commit()
    before = work_on_compliance(bridge)
    bridge.conn.close()

    bridge = make_bridge()
    bridge.put("h1", clusters_changed("h1", 1, create=[("c9", 0)]))
    bridge.start()
    bridge.until_applied(h1=3, h2=1)
    bridge.stop()
    after = work_on_compliance(bridge)
    work = {what: after[what] - before[what] for what in after}
    assert 20 <= work.pop("looked up") < 40  # of 80; the planner itself may look one up
    assert work == {"scans": 0, "updated": 20, "deleted": 0, "inserted": 0}
    filled = "SELECT site, cluster_id, count(*) FROM fleet.compliance WHERE cluster_name = 'c9' GROUP BY 1, 2 ORDER BY 1"
    assert bridge.rows(filled) == [("h1", "id-c9", 20), ("h2", None, 20)]
    assert bridge.rows(others) == untouched
    assert bridge.rows("SELECT rows_written FROM bridge.counter WHERE site = 'h1'") == [(written + 1 + 20,)]
    assert bridge.counters("h1") == {"received": 3, "applied": 3, **NOTHING_ELSE}


def test_s13_complete_compliance_changes_pairs_that_are_there_and_makes_none(bridge: KafkaBridge, topics: Topics) -> None:
    topics.create("h1", "h2")
    pairs = {
        "P1": {"compliantClusters": ["c1"], "nonCompliantClusters": ["c2"], "pendingComplianceClusters": ["c5"]},
        "P2": {"compliantClusters": ["c1"], "nonCompliantClusters": ["c2"]},
    }
    for hub in ("h1", "h2"):
        bridge.put(hub, per_policy(hub, "0.1", pairs))
    bridge.start()
    bridge.until_applied(h1=1, h2=1)
    before = states(bridge, "h2")
    assert before == {
        ("P1", "c1"): "compliant", ("P1", "c2"): "non_compliant", ("P1", "c5"): "pending",
        ("P2", "c1"): "compliant", ("P2", "c2"): "non_compliant",
    }  # fmt: skip
    said = {"nonCompliantClusters": ["c1"], "unknownComplianceClusters": ["c3"], "pendingComplianceClusters": ["c5"]}
    complete = [{"policyId": "P1", **said}]  # P2 is left out: all of it complies
    bridge.put("h1", event("h1", "policy.localcompletecompliance", "0.1", complete, extdependencyversion="1.1"))
    bridge.until_applied(h1=2, h2=1)
    assert states(bridge, "h1") == {
        ("P1", "c1"): "non_compliant", ("P1", "c2"): "compliant", ("P1", "c5"): "pending",
        ("P2", "c1"): "compliant", ("P2", "c2"): "compliant",
    }  # fmt: skip
    assert states(bridge, "h2") == before
    assert ledger(bridge, "h1") == {"clusters-per-policy": (0, 1), "complete-compliance": (0, 1)}
    assert bridge.counters("h1") == {"received": 2, "applied": 2, **NOTHING_ELSE}


# -- 15, 16: resyncs


def test_s15_a_resync_deletes_only_with_its_list_and_a_crash_between_its_chunks_deletes_nothing(
    make_bridge: MakeBridge, topics: Topics
) -> None:
    topics.create("h1", "h2")
    bridge = make_bridge()
    for hub in ("h1", "h2"):
        bridge.put(hub, clusters_changed(hub, 0, create=[("1", 0), ("2", 0), ("3", 0)]))
    bridge.put("h1", clusters_changed("h1", 1, resync=[("2", 1)]))
    bridge.start()
    bridge.until_applied(h1=2, h2=1)
    with psycopg.connect(bridge.dsn) as paused:
        paused.execute("LOCK TABLE fleet.managed_cluster IN EXCLUSIVE MODE")
        bridge.put("h1", clusters_changed("h1", 2, resync=[("3", 1)]))
        bridge.until_taken_in(h1=3, h2=1)
        blocked = "SELECT 1 FROM pg_locks WHERE relation = 'fleet.managed_cluster'::regclass AND NOT granted"
        bridge.until(lambda: bridge.rows(blocked) != [])
        bridge.crash()  # while it writes the second chunk
    bridge.stop()
    all_there = {"1": True, "2": True, "3": True}
    revisions = "SELECT name, payload #>> '{metadata,labels,revision}' FROM fleet.managed_cluster WHERE site = 'h1'"
    assert clusters(bridge, "h1") == all_there
    assert dict(bridge.rows(revisions)) == {"1": "0", "2": "1", "3": "0"}
    assert (ledger(bridge, "h1"), bridge.waiting()) == ({"managed-clusters": (1, 2)}, 1)

    bridge = make_bridge()
    bridge.start()
    bridge.until_applied(h1=3, h2=1)
    assert clusters(bridge, "h1") == all_there
    assert dict(bridge.rows(revisions)) == {"1": "0", "2": "1", "3": "1"}
    bridge.put("h1", clusters_listed("h1", 3, "2", "3"))
    bridge.until_applied(h1=4, h2=1)
    assert clusters(bridge, "h1") == {"1": False, "2": True, "3": True}
    assert clusters(bridge, "h2") == all_there
    assert ledger(bridge, "h1") == {"managed-clusters": (3, 4)}
    assert bridge.counters("h1") == {"received": 4, "applied": 4, **NOTHING_ELSE}
    assert bridge.rows("SELECT 1 FROM bridge.resync") == []


def test_s16_an_empty_list_deletes_all_of_its_hub_and_what_comes_back_is_there_again(
    bridge: KafkaBridge, topics: Topics
) -> None:
    topics.create("h1", "h2")
    for hub in ("h1", "h2"):
        bridge.put(hub, clusters_changed(hub, 0, create=[("1", 0), ("2", 0)]))
    bridge.start()
    bridge.until_applied(h1=1, h2=1)
    bridge.put("h1", event("h1", "managedcluster", "1.2", {"create": [], "update": [], "delete": []}))  # no list at all
    bridge.until_applied(h1=2, h2=1)
    assert clusters(bridge, "h1") == {"1": True, "2": True}
    bridge.put("h1", clusters_listed("h1", 2))
    bridge.until_applied(h1=3, h2=1)
    visible = "SELECT site, name FROM fleet.visible_managed_cluster ORDER BY 1, 2"
    assert clusters(bridge, "h1") == {"1": False, "2": False}
    assert clusters(bridge, "h2") == {"1": True, "2": True}
    assert bridge.rows(visible) == [("h2", "1"), ("h2", "2")]
    bridge.put("h1", clusters_changed("h1", 3, create=[("2", 0)]))
    bridge.until_applied(h1=4, h2=1)
    assert clusters(bridge, "h1") == {"1": False, "2": True}
    assert bridge.rows(visible) == [("h1", "2"), ("h2", "1"), ("h2", "2")]
    assert bridge.counters("h1") == {"received": 4, "applied": 4, **NOTHING_ELSE}


# -- 19, 36: events


def test_s19_duplicates_in_one_batch_are_one_row_and_changes_are_counted_between_consecutive_states(
    bridge: KafkaBridge, topics: Topics
) -> None:
    topics.create("h1", "h2")
    first, *others = [
        policy_event(f"e{hour}", state, f"2026-01-05T{hour}:00:00Z")
        for hour, state in zip(range(10, 14), ("Compliant", "NonCompliant", "Compliant", "Compliant"), strict=True)
    ]
    bridge.put("h1", *[happened("h1", n, first, first) for n in range(10)])
    bridge.put("h2", happened("h2", 0, first))
    bridge.start()
    bridge.until_applied(h1=10, h2=1)
    assert bridge.rows("SELECT DISTINCT created_at = updated_at FROM pipeline.kafka_offset") == [(True,)]  # one batch
    stored = "SELECT site, event_name, count, created_at, state::text FROM fleet.policy_event ORDER BY site, created_at"
    at = datetime(2026, 1, 5, 10, tzinfo=UTC)
    assert bridge.rows(stored) == [(hub, "e10", 1, at, "compliant") for hub in ("h1", "h2")]
    bridge.put("h1", happened("h1", 10, others[2], *others, first), happened("h1", 11, first, *others))
    bridge.until_applied(h1=12, h2=1)
    assert [(hub, name) for hub, name, *_ in bridge.rows(stored)] == [
        ("h1", "e10"), ("h1", "e11"), ("h1", "e12"), ("h1", "e13"), ("h2", "e10"),
    ]  # fmt: skip
    history = "SELECT site, policy_id, cluster_name, day, state::text, changes FROM fleet.compliance_history ORDER BY site"
    assert bridge.rows(history) == [
        ("h1", "p1", "c1", date(2026, 1, 5), "non_compliant", 2),
        ("h2", "p1", "c1", date(2026, 1, 5), "compliant", 0),
    ]
    assert bridge.counters("h1") == {"received": 12, "applied": 12, **NOTHING_ELSE}
    assert bridge.rows("SELECT 1 FROM bridge.quarantine") == []


EVENT_TABLES = {
    "event.managedcluster": "fleet.cluster_event",
    "event.localrootpolicy": "fleet.root_policy_event",
    "event.localreplicatedpolicy": "fleet.policy_event",
}


def test_s36_events_of_any_month_are_stored(bridge: KafkaBridge, topics: Topics) -> None:
    topics.create("h1")
    now = month_of(datetime.now(UTC).date())
    months, far = [shifted(now, by) for by in (-2, 0, 1)], [date(1999, 5, 1), date(2199, 5, 1)]
    days = [*months, *far]
    events = [policy_event(f"e{day}", "Compliant", f"{day}T00:00:00Z", type="Normal") for day in days]
    partitions = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass"
    for table in EVENT_TABLES.values():
        assert bridge.rows(partitions, table) == [(f"{table}_other",)]
    bridge.start()
    for place, suffix in enumerate(EVENT_TABLES, 1):
        bridge.put("h1", happened("h1", 0, *events, to=suffix))
        bridge.until_applied(h1=place)
    assert bridge.counters("h1") == {"received": 3, "applied": 3, **NOTHING_ELSE}
    for table in EVENT_TABLES.values():
        stored = bridge.rows(f"SELECT event_name, (created_at AT TIME ZONE 'UTC')::date, tableoid::regclass::text FROM {table}")
        places = [f"{table}_{month:%Y_%m}" for month in months] + [f"{table}_other"] * 2
        assert sorted(stored) == sorted((f"e{day}", day, place) for day, place in zip(days, places, strict=True))
    assert sorted(bridge.rows("SELECT day FROM fleet.compliance_history")) == sorted((day,) for day in days)


# -- 23: a statement that hangs

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
        return {hub: at for hub in ("h1", *others) if (at := ledger(bridge, hub).get("clusters-per-policy"))}

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
    assert states(bridge, "h1") == {("p1", "c0"): "compliant"}
    assert bridge.counters("h1") == {"received": 1, "applied": 1, **NOTHING_ELSE}
    for hub in others:
        assert states(bridge, hub) == {("p1", "c3"): "compliant"}
        assert bridge.counters(hub) == {"received": 4, "applied": 4, **NOTHING_ELSE}
    assert bridge.rows("SELECT 1 FROM bridge.quarantine") == []


# -- 31: silent hubs

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


# -- 34: chunks


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
        assert ledger(bridge, hub) == {"clusters-per-policy": (0, 1)}
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
    assert states(bridge, "h1") == {}
    bridge.put("h1", compliance("h1", "1.2", compliant=["c1"]))
    bridge.until_applied(h1=2, h2=1)
    assert states(bridge, "h1") == {("p1", "c1"): "compliant"}
    assert bridge.rows("SELECT 1 FROM bridge.resync") == []
