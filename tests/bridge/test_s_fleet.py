"""The fleet's types at their handlers: what each kind of bundle leaves in the tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from typing import Any

import psycopg
import pytest
from fleet_words import Fleet, cluster, lists, named, part, policy, policy_event, work

from trunkline.bridge.clusterids import FILL, columns
from trunkline.bridge.fleettypes import GLOBAL_HUB
from trunkline.bridge.months import month_of, shifted


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    return make_databases("queues", "bridge")


@pytest.fixture
def fleet(database: str) -> Iterator[Fleet]:
    with psycopg.connect(database) as conn:
        yield Fleet(conn)


def test_compliance_before_its_cluster_is_filled_by_the_cluster_and_only_that_is_touched(fleet: Fleet) -> None:
    fleet.send("h1", "managed-clusters", {"create": [cluster("id-1", "c1")]})
    fleet.send("h1", "clusters-per-policy", [lists("P1", compliant=["c1", "c9"]), lists("P2", unknown=["c9"])])
    fleet.send("h2", "clusters-per-policy", [lists("P1", compliant=["c9"])])
    assert fleet.cluster_ids() == {("P1", "c1"): "id-1", ("P1", "c9"): None, ("P2", "c9"): None}
    untouched = fleet.rows("SELECT site, ctid::text FROM fleet.compliance WHERE cluster_name = 'c1' OR site = 'h2' ORDER BY 1")
    written = fleet.send("h1", "managed-clusters", {"create": [cluster("id-9", "c9")]}, 2)
    assert fleet.cluster_ids() == {("P1", "c1"): "id-1", ("P1", "c9"): "id-9", ("P2", "c9"): "id-9"}
    assert fleet.cluster_ids("h2") == {("P1", "c9"): None}
    assert written.written == 1 + 2  # the cluster, and the two rows that lacked it
    assert untouched == fleet.rows(
        "SELECT site, ctid::text FROM fleet.compliance WHERE cluster_name = 'c1' OR site = 'h2' ORDER BY 1"
    )


def test_s12_the_work_is_that_of_the_rows_filled_by_an_index_that_holds_only_them(fleet: Fleet) -> None:
    many = [f"c{n}" for n in range(400)]
    fleet.send("h1", "managed-clusters", {"create": [cluster(f"id-{name}", name) for name in many]})
    policies = [lists(f"P{n}", compliant=[*many, "late", "later"]) for n in range(20)]
    for site in ("h1", "h2"):
        fleet.send(site, "clusters-per-policy", policies)
    fleet.conn.execute("ANALYZE fleet.compliance, fleet.managed_cluster")
    fleet.conn.commit()
    explained = fleet.conn.execute(f"EXPLAIN (ANALYZE, TIMING OFF) {FILL}", columns([("h1", "late", "id-late")])).fetchall()
    plan = "\n".join(line for (line,) in explained)
    fleet.conn.rollback()
    assert "compliance_no_cluster" in plan, plan
    assert "Seq Scan on compliance" not in plan, plan
    assert "Scan on managed_cluster" not in plan, plan
    assert set(re.findall(r"actual rows=(\S+)", plan)) == {"1.00", "20.00"}, plan  # of the cluster, and of its policies


def test_complete_compliance_changes_pairs_that_are_there_and_makes_none(fleet: Fleet) -> None:
    fleet.send(
        "h1",
        "clusters-per-policy",
        [
            lists("P1", compliant=["c1"], non_compliant=["c2"], pending=["c5"]),
            lists("P2", non_compliant=["c1"], compliant=["c2"]),
        ],
    )
    fleet.send("h2", "clusters-per-policy", [lists("P1", non_compliant=["c2"])])
    fleet.send("h1", "complete-compliance", [lists("P1", non_compliant=["c1"], unknown=["c3"], pending=["c5"])])
    assert fleet.compliance() == {
        ("P1", "c1"): "non_compliant", ("P1", "c2"): "compliant", ("P1", "c5"): "pending",
        ("P2", "c1"): "compliant", ("P2", "c2"): "compliant",
    }  # fmt: skip
    assert fleet.compliance("h2") == {("P1", "c2"): "non_compliant"}


def test_a_resync_deletes_only_with_its_list(fleet: Fleet) -> None:
    fleet.send("h1", "managed-clusters", {"create": [cluster("1"), cluster("2"), cluster("3")]})
    fleet.send("h1", "managed-clusters", {"resync": [cluster("2")]}, 2)
    fleet.send("h1", "managed-clusters", {"resync": [cluster("3")]}, 3)
    assert fleet.clusters() == {"1": True, "2": True, "3": True}  # here a sender may stop for ever: nothing is gone
    fleet.send("h1", "managed-clusters", {"resync_metadata": [named("2"), named("3")]}, 4)
    assert fleet.clusters() == {"1": False, "2": True, "3": True}


def test_an_empty_list_deletes_all_of_its_site_and_what_comes_back_is_there_again(fleet: Fleet) -> None:
    for site in ("h1", "h2"):
        fleet.send(site, "managed-clusters", {"create": [cluster("1"), cluster("2")]})
    fleet.send("h1", "managed-clusters", {"resync_metadata": []}, 2)
    assert fleet.clusters("h1") == {"1": False, "2": False}
    assert fleet.clusters("h2") == {"1": True, "2": True}
    fleet.send("h1", "managed-clusters", {"create": [cluster("2")]}, 3)
    assert fleet.clusters("h1") == {"1": False, "2": True}
    assert fleet.rows("SELECT deleted_at FROM fleet.managed_cluster WHERE site = 'h1' AND cluster_id = '2'") == [(None,)]


def test_a_bundle_without_a_list_is_no_barrier(fleet: Fleet) -> None:
    fleet.send("h1", "managed-clusters", {"create": [cluster("1")]})
    nothing = {"create": None, "update": None, "delete": [], "resync": [], "resync_metadata": None}
    for data in ({}, {"delete": []}, nothing):
        fleet.send("h1", "managed-clusters", data, 2)
    assert fleet.clusters() == {"1": True}


@pytest.mark.parametrize("together", [True, False], ids=["in one call", "one by one"])
def test_h36_a_barrier_deletes_what_was_changed_at_or_before_it_and_what_comes_later_stays(
    fleet: Fleet, together: bool
) -> None:
    """The list was read at generation 5: what was changed at 6 and came before it stays, and what is created after it, too."""
    fleet.send("h1", "managed-clusters", {"create": [cluster("old"), cluster("listed")]}, 4)
    parts = [
        part({"create": [cluster("same", note=1)]}, 5),
        part({"create": [cluster("newer")]}, 6),
        part({"resync_metadata": [named("listed")]}, 5),
        part({"create": [cluster("later")], "update": [cluster("old", note=2)]}, 7),
    ]
    for chosen in [parts] if together else [[one] for one in parts]:
        fleet.write("managed-clusters", work("h1", *chosen))
    assert fleet.clusters() == {"old": True, "listed": True, "same": False, "newer": True, "later": True}
    versions = dict(fleet.rows("SELECT cluster_id, generation FROM fleet.managed_cluster"))
    assert versions == {"old": 7, "listed": 4, "same": 5, "newer": 6, "later": 7}


def test_duplicates_in_one_batch_are_one_row(fleet: Fleet) -> None:
    event = policy_event("e1", "NonCompliant", "2026-01-05T10:00:00Z")
    twenty = [event] * 20
    written = fleet.write("policy-events", work("h1", part(twenty[:10]), part(twenty[10:])), work("h2", part(event)))
    assert fleet.rows("SELECT site, event_name, state FROM fleet.policy_event ORDER BY 1") == [
        ("h1", "e1", "non_compliant"), ("h2", "e1", "non_compliant"),
    ]  # fmt: skip
    assert written["h1"].written == 2  # the event, and its day
    before = fleet.marks("fleet.policy_event"), fleet.marks("fleet.compliance_history")
    again = fleet.send("h1", "policy-events", twenty, 2)
    assert (again.written, fleet.marks("fleet.policy_event"), fleet.marks("fleet.compliance_history")) == (0, *before)


STORY = [
    policy_event("e1", "Compliant", "2026-01-05T10:00:00Z"),
    policy_event("e2", "NonCompliant", "2026-01-05T11:00:00Z"),
    policy_event("e3", "Compliant", "2026-01-05T12:00:00Z"),
    policy_event("e4", "Compliant", "2026-01-05T13:00:00Z"),
]


@pytest.mark.parametrize(
    "batches",
    [[STORY], [[one] for one in STORY], [STORY[2:], STORY[:2]], [[STORY[3]], [STORY[1]], [STORY[0]], [STORY[2]]]],
    ids=["one bundle", "one each", "later first", "out of order"],
)
def test_changes_are_counted_between_consecutive_states(fleet: Fleet, batches: list[list[Any]]) -> None:
    for batch in batches:
        fleet.send("h1", "policy-events", batch)
    history = "SELECT policy_id, cluster_name, cluster_id, day, state, changes FROM fleet.compliance_history"
    assert fleet.rows(history) == [("P1", "c1", "id-1", date(2026, 1, 5), "non_compliant", 2)]


def test_an_event_of_next_month_or_of_two_months_ago_is_stored(fleet: Fleet) -> None:
    now = month_of(datetime.now(UTC).date())
    months = [shifted(now, by) for by in (-2, 0, 1)]
    far = [date(1999, 5, 1), date(2199, 5, 1)]
    events = [policy_event(f"e{n}", "Compliant", f"{month}T12:00:00Z") for n, month in enumerate([*months, *far])]
    fleet.send("h1", "policy-events", events)
    places = dict(fleet.rows("SELECT event_name, tableoid::regclass::text FROM fleet.policy_event"))
    expected = [f"fleet.policy_event_{month:%Y_%m}" for month in months] + ["fleet.policy_event_other"] * 2
    assert places == {f"e{n}": place for n, place in enumerate(expected)}
    days = fleet.rows("SELECT day FROM fleet.compliance_history ORDER BY day")
    assert days == [(day,) for day in sorted([*months, *far])]


def test_bundles_as_a_global_hub_agent_sends_them_land_where_they_belong(fleet: Fleet) -> None:
    """One of each type, under the names and in the shapes of its agents; a single object where an agent sends events singly."""
    uid = "5b7f8c1e-2c7d-4a55-9a45-0a6b1f0c9a01"
    sent: dict[str, Any] = {
        "managedhub.heartbeat": [],
        "managedhub.info": {"consoleURL": "https://console", "grafanaURL": "", "mchVersion": "2.9.0", "clusterId": "hub-1"},
        "managedcluster": {"create": [cluster("id-1", "c1"), {"metadata": {"name": "no-claim"}}], "update": [], "delete": []},
        "event.managedcluster": {
            "eventNamespace": "c1", "eventName": "c1.179", "clusterName": "c1", "clusterId": "id-1", "leafHubName": "h1",
            "message": "the cluster is available", "reason": "AvailableConditionChanged", "reportingController": "registration",
            "reportingInstance": "registration-0", "type": "Normal", "createdAt": "2026-01-05T10:00:00Z",
        },
        "policy.localspec": {"resync": [
            policy(uid, "limits", "policies", spec={"disabled": False}) | {"metadata": {
                "name": "limits", "namespace": "policies", "uid": uid,
                "annotations": {"policy.open-cluster-management.io/standards": "NIST SP 800-53"},
            }},
        ]},
        "policy.localcompliance": [
            {"policyId": uid, "compliantClusters": ["c1"], "nonCompliantClusters": [], "unknownComplianceClusters": ["c2"]},
        ],
        "policy.localcompletecompliance": [
            {"policyId": uid, "nonCompliantClusters": ["c1"], "unknownComplianceClusters": ["c2"]},
        ],
        "policy.deltacompliance": [{"policyId": uid, "pendingComplianceClusters": ["c2"]}],
        "event.localrootpolicy": [
            {"eventName": "limits.1", "eventNamespace": "policies", "message": "propagated", "reason": "PolicyPropagation",
             "count": 1, "source": {"component": "policy-propagator"}, "createdAt": "2026-01-05T10:00:01Z", "policyId": uid,
             "compliance": "NonCompliant"},
        ],
        "event.localreplicatedpolicy": [
            policy_event("policies.limits.1", "NonCompliant", "2026-01-05T10:00:02.123456789Z", policyId=uid),
        ],
        "security.alertcounts": {
            "low": 1, "medium": 2, "high": 3, "critical": 4, "detail_url": "/central", "source": "rhacs/central",
        },
    }  # fmt: skip
    assert sent.keys() == GLOBAL_HUB.keys()
    for suffix, data in sent.items():
        fleet.send("h1", GLOBAL_HUB[suffix], data)

    def all_of(columns: str, table: str) -> list[tuple[Any, ...]]:
        return fleet.rows(f"SELECT {columns} FROM fleet.{table} WHERE site = 'h1'")

    assert all_of("sent_at", "heartbeat") == [(datetime(2026, 1, 1, tzinfo=UTC),)]
    assert all_of("cluster_id, console_url, grafana_url, mch_version", "hub_info") == [
        ("hub-1", "https://console", "", "2.9.0")
    ]
    assert all_of("cluster_id, name, payload->'status'->'clusterClaims'->0->>'value'", "managed_cluster") == [
        ("id-1", "c1", "test")
    ]
    assert all_of("event_name, cluster_name, cluster_id, type, reporting_instance, message", "cluster_event") == [
        ("c1.179", "c1", "id-1", "Normal", "registration-0", "the cluster is available")
    ]
    assert all_of("policy_id, namespace, name, standard, category", "policy") == [
        (uid, "policies", "limits", "NIST SP 800-53", None)
    ]
    assert sorted(all_of("policy_id, cluster_name, cluster_id, state", "compliance")) == [
        (uid, "c1", "id-1", "non_compliant"), (uid, "c2", None, "pending"),
    ]  # fmt: skip
    assert all_of("event_name, count, policy_id, state, source->>'component'", "root_policy_event") == [
        ("limits.1", 1, uid, "non_compliant", "policy-propagator")
    ]
    assert all_of("event_name, state, cluster_name, cluster_id, created_at", "policy_event") == [
        ("policies.limits.1", "non_compliant", "c1", "id-1", datetime(2026, 1, 5, 10, 0, 2, 123456, tzinfo=UTC))
    ]
    assert all_of("day, state, changes", "compliance_history") == [(date(2026, 1, 5), "non_compliant", 0)]
    assert all_of("source, low, medium, high, critical, detail_url", "alert_count") == [
        ("rhacs/central", 1, 2, 3, 4, "/central")
    ]
