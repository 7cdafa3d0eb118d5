"""Scenarios of what messages of Global Hub agents leave in the fleet's tables, on real Kafka, Spark and Postgres."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime

import psycopg
import pytest

from hub_agent import clusters_changed, clusters_listed, event, happened, per_policy, policy_event
from kafka_bridge import KafkaBridge
from kafka_topics import Topics
from trunkline.bridge.months import month_of, shifted
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

NOTHING_ELSE = {"conflated": 0, "rejected": 0, "stale": 0, "quarantined": 0}
MakeBridge = Callable[..., KafkaBridge]


def clusters(bridge: KafkaBridge, hub: str) -> dict[str, bool]:
    """Whether each is there still."""
    return dict(bridge.rows("SELECT name, deleted_at IS NULL FROM fleet.managed_cluster WHERE site = %s", hub))


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
    before = bridge.compliance("h2")
    assert before == {
        ("P1", "c1"): "compliant", ("P1", "c2"): "non_compliant", ("P1", "c5"): "pending",
        ("P2", "c1"): "compliant", ("P2", "c2"): "non_compliant",
    }  # fmt: skip
    said = {"nonCompliantClusters": ["c1"], "unknownComplianceClusters": ["c3"], "pendingComplianceClusters": ["c5"]}
    complete = [{"policyId": "P1", **said}]  # P2 is left out: all of it complies
    bridge.put("h1", event("h1", "policy.localcompletecompliance", "0.1", complete, extdependencyversion="1.1"))
    bridge.until_applied(h1=2, h2=1)
    assert bridge.compliance("h1") == {
        ("P1", "c1"): "non_compliant", ("P1", "c2"): "compliant", ("P1", "c5"): "pending",
        ("P2", "c1"): "compliant", ("P2", "c2"): "compliant",
    }  # fmt: skip
    assert bridge.compliance("h2") == before
    assert bridge.ledger("h1") == {"clusters-per-policy": (0, 1), "complete-compliance": (0, 1)}
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
    assert (bridge.ledger("h1"), bridge.waiting()) == ({"managed-clusters": (1, 2)}, 1)

    bridge = make_bridge()
    bridge.start()
    bridge.until_applied(h1=3, h2=1)
    assert clusters(bridge, "h1") == all_there
    assert dict(bridge.rows(revisions)) == {"1": "0", "2": "1", "3": "1"}
    bridge.put("h1", clusters_listed("h1", 3, "2", "3"))
    bridge.until_applied(h1=4, h2=1)
    assert clusters(bridge, "h1") == {"1": False, "2": True, "3": True}
    assert clusters(bridge, "h2") == all_there
    assert bridge.ledger("h1") == {"managed-clusters": (3, 4)}
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
