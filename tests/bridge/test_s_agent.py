"""What a Global Hub agent puts on its topic, type by type and with all its headers, from Kafka to the tables."""

from __future__ import annotations

from typing import Any

import pytest

from hub_agent import AT, PREFIX, Message, cluster, event, policy_event
from kafka_bridge import KafkaBridge
from kafka_topics import Topics
from trunkline.bridge.fleettypes import GLOBAL_HUB, GLOBAL_HUB_UNKEPT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

UID = "5b7f8c1e-2c7d-4a55-9a45-0a6b1f0c9a01"
POLICY = {"metadata": {"name": "limits", "namespace": "policies", "uid": UID}}
OF_POLICY = {"policyId": UID, "clusterName": "c1", "clusterId": "id-c1"}
OF_CLUSTER = {
    "eventNamespace": "c1", "eventName": "c1.179", "clusterName": "c1", "clusterId": "id-c1", "message": "it is available",
    "reason": "AvailableConditionChanged", "type": "Normal", "createdAt": AT,
}  # fmt: skip
# suffix -> version, data, further headers, and the table with the rows it leaves there.
SENT: dict[str, tuple[str, Any, dict[str, str], tuple[str, int]]] = {
    "managedhub.heartbeat": ("0.0", [], {}, ("fleet.heartbeat", 1)),
    "managedhub.info": ("0.1", {"clusterId": "hub-1", "mchVersion": "2.9.0"}, {}, ("fleet.hub_info", 1)),
    "managedcluster": ("0.1", {"create": [cluster("c1", 1), cluster("c2", 1)]}, {}, ("fleet.managed_cluster", 2)),
    "event.managedcluster": ("0.1", OF_CLUSTER, {"sendmode": "single"}, ("fleet.cluster_event", 1)),
    "policy.localspec": ("0.1", {"resync": [POLICY]}, {}, ("fleet.policy", 1)),
    "policy.localcompliance": (
        "0.1", [{"policyId": UID, "compliantClusters": ["c1", "c2"]}], {}, ("fleet.compliance", 2),
    ),
    "policy.localcompletecompliance": (
        "0.1", [{"policyId": UID, "nonCompliantClusters": ["c1", "c2"]}], {"extdependencyversion": "1.1"},
        ("fleet.compliance WHERE state IN ('non_compliant', 'pending')", 2),
    ),
    "policy.deltacompliance": (
        "0.1", [{"policyId": UID, "pendingComplianceClusters": ["c2"]}], {"extdependencyversion": "1.1"},
        ("fleet.compliance WHERE state = 'pending'", 1),
    ),
    "event.localrootpolicy": (
        "0.1", [policy_event("limits.1", "NonCompliant", AT, policyId=UID)], {"sendmode": "batch"},
        ("fleet.root_policy_event", 1),
    ),
    "event.localreplicatedpolicy": (
        "0.1", policy_event("limits.2", "Compliant", AT, **OF_POLICY), {"sendmode": "single"}, ("fleet.policy_event", 1),
    ),
    "security.alertcounts": (
        "0.1", {"low": 1, "medium": 2, "high": 3, "critical": 4, "detail_url": "/", "source": "rhacs/central"}, {},
        ("fleet.alert_count", 1),
    ),
}  # fmt: skip


def message(suffix: str) -> Message:
    version, data, more, _ = SENT[suffix]
    return event("h1", suffix, version, data, **more)


def test_each_type_of_an_agent_lands_in_its_table_and_what_no_table_is_for_is_counted(
    bridge: KafkaBridge, topics: Topics
) -> None:
    assert SENT.keys() == GLOBAL_HUB.keys()
    topics.create("h1")
    for suffix in SENT:
        bridge.put("h1", message(suffix), key=PREFIX + suffix)
    for suffix in sorted(GLOBAL_HUB_UNKEPT):
        bridge.put("h1", event("h1", suffix, "0.1", {"stage": "Deploying"}), key=PREFIX + suffix)
    bridge.start()
    bridge.until_applied(h1=len(SENT) + len(GLOBAL_HUB_UNKEPT))
    there = {suffix: bridge.rows(f"SELECT count(*) FROM {table}") for suffix, (*_, (table, _)) in SENT.items()}
    assert there == {suffix: [(rows,)] for suffix, (*_, (_, rows)) in SENT.items()}
    assert set(bridge.ledger("h1")) == set(GLOBAL_HUB.values())
    assert bridge.rows("SELECT count(*) FROM bridge.quarantine") == [(0,)]
    assert bridge.tally("h1") == {"received": 13, "applied": 11, "discarded": 2}
