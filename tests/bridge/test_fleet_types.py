"""The table of the fleet's types: its names, its order, and that its tables and views are what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from fleet_words import Fleet, cluster, lists, named, part, policy_event, work

from trunkline.bridge.declared import check_tables
from trunkline.bridge.fleettypes import DESIGN, FLEET_TYPES, GLOBAL_HUB
from trunkline.bridge.shipped import SHIPPED
from trunkline.core.bundle import Mode


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    return make_databases("queues", "bridge")


@pytest.fixture
def fleet(database: str) -> Iterator[Fleet]:
    with psycopg.connect(database) as conn:
        yield Fleet(conn)


def test_priorities_follow_the_order_of_the_types_and_bases_come_first() -> None:
    assert [one.priority for one in FLEET_TYPES] == list(range(11))
    for one in FLEET_TYPES:
        assert one.depends_on is None or SHIPPED[one.depends_on].priority < one.priority
        assert one.needs_dependency == (one.name in ("complete-compliance", "compliance-delta"))


def test_every_name_elsewhere_means_a_type_here() -> None:
    assert set(GLOBAL_HUB.values()) == {one.name for one in FLEET_TYPES}
    assert set(DESIGN.values()) <= set(GLOBAL_HUB.values())


def test_modes_are_those_of_the_senders() -> None:
    modes = {mode: {one.name for one in FLEET_TYPES if one.mode is mode} for mode in Mode}
    assert modes[Mode.HYBRID] == {"managed-clusters", "policies"}
    assert modes[Mode.DELTA] == {"compliance-delta"}
    assert modes[Mode.APPEND] == {"cluster-events", "root-policy-events", "policy-events"}


def test_the_tables_of_all_shipped_types_are_there_with_their_columns(fleet: Fleet) -> None:
    check_tables(fleet.conn, SHIPPED.values())
    for one in SHIPPED.values():
        fleet.rows(f"SELECT site, {', '.join(one.names)}, updated_at FROM {one.table}")


def test_visible_rows_are_those_of_sites_that_are_not_silent_and_not_gone(fleet: Fleet) -> None:
    for site in ("loud", "mute"):
        fleet.send(site, "heartbeat", [])
        fleet.send(site, "managed-clusters", {"create": [cluster("1"), cluster("2")], "delete": [named("2")]})
        fleet.send(site, "clusters-per-policy", [lists("P1", compliant=["c1"])])
        fleet.send(site, "policy-events", [policy_event("e", "Compliant", "2026-01-05T10:00:00Z")])
        state = {"loud": "active", "mute": "silent"}[site]
        fleet.conn.execute("INSERT INTO bridge.site VALUES (%s, 'queues', now(), now(), %s)", (site, state))
        fleet.conn.commit()
    tables = ("heartbeat", "managed_cluster", "compliance", "policy_event", "compliance_history")
    assert {table: fleet.rows(f"SELECT site FROM fleet.visible_{table}") for table in tables} == {
        table: [("loud",)] for table in tables
    }
    assert {table: len(fleet.rows(f"SELECT site FROM fleet.{table}")) for table in tables} == {
        "heartbeat": 2, "managed_cluster": 4, "compliance": 2, "policy_event": 2, "compliance_history": 2,
    }  # fmt: skip
    fleet.conn.execute("UPDATE bridge.site SET state = 'active'")
    fleet.conn.commit()
    assert len(fleet.rows("SELECT site FROM fleet.visible_compliance")) == 2


def test_every_table_of_a_shipped_type_has_its_view(fleet: Fleet) -> None:
    for table in {table for one in SHIPPED.values() for table in one.tables}:
        schema, _, name = table.partition(".")
        fleet.rows(f"SELECT site FROM {schema}.visible_{name}")


def test_a_heartbeat_keeps_the_time_it_was_sent(fleet: Fleet) -> None:
    times = {"h1": "2026-01-02T03:04:05Z", "h2": "2026-01-02T03:04:05.5+01:00"}
    written = fleet.write("heartbeat", *(work(site, part([], time=time)) for site, time in times.items()))
    assert [one.written for one in written.values()] == [1, 1]
    query = "SELECT site, sent_at = %s::timestamptz FROM fleet.heartbeat WHERE site = %s"
    assert [fleet.rows(query, time, site) for site, time in times.items()] == [[("h1", True)], [("h2", True)]]
    fleet.write("heartbeat", work("h3", part([], time="")))
    assert fleet.rows("SELECT now() - sent_at < interval '1 hour' FROM fleet.heartbeat WHERE site = 'h3'") == [(True,)]


def test_hub_info_without_a_cluster_id_is_not_written(fleet: Fleet) -> None:
    info = {"consoleURL": "c", "grafanaURL": "g", "mchVersion": "1", "clusterId": ""}
    assert fleet.send("h1", "hub-info", info).written == 0
    assert fleet.send("h1", "hub-info", info | {"clusterId": "x"}).written == 1
    assert fleet.send("h1", "hub-info", info | {"clusterId": "x"}).written == 0
    assert fleet.send("h1", "hub-info", info | {"clusterId": "x", "mchVersion": "2"}).written == 1
    assert fleet.send("h1", "hub-info", info).written == 0
    assert fleet.rows("SELECT cluster_id, mch_version FROM fleet.hub_info") == [("x", "2")]


def test_alert_counts_are_kept_by_source(fleet: Fleet) -> None:
    counts = {"low": 1, "medium": 0, "high": 0, "critical": 0, "detail_url": "u", "source": "s1"}
    assert fleet.send("h1", "alert-counts", counts).written == 1
    assert fleet.send("h1", "alert-counts", counts | {"source": "s2", "critical": 9}).written == 1
    assert fleet.send("h1", "alert-counts", counts).written == 0
    assert fleet.rows("SELECT source, low, critical FROM fleet.alert_count ORDER BY 1") == [("s1", 1, 0), ("s2", 1, 9)]
