"""What the agent of a Global Hub puts on Kafka: CloudEvents in binary mode, with versions "generation.value"."""

from __future__ import annotations

import itertools
from typing import Any

from trunkline.core.jsoncodec import dumps

Message = tuple[dict[str, str], bytes]
"""headers, payload"""

PREFIX = "io.open-cluster-management.operator.multiclusterglobalhubs."
AT = "2026-01-15T00:00:00Z"
_ids = itertools.count(1)


def event(hub: str, suffix: str, version: str, data: Any, **more: str) -> Message:
    headers = {
        "ce_specversion": "1.0", "ce_id": f"{hub}-{next(_ids)}", "ce_source": hub, "ce_type": PREFIX + suffix, "ce_time": AT,
        "ce_extversion": version, "content-type": "application/json", **{f"ce_{name}": value for name, value in more.items()},
    }  # fmt: skip
    return headers, data if isinstance(data, bytes) else dumps(data)


def compliance(hub: str, version: str, **clusters: list[str]) -> Message:
    """`clusters`: by state, of one policy."""
    lists = {f"{state}Clusters": clusters.get(state, []) for state in ("compliant", "nonCompliant", "pendingCompliance")}
    return event(hub, "policy.localcompliance", version, [{"policyId": "p1", **lists}])


def clusters_changed(hub: str, generation: int, **changes: list[tuple[str, int]]) -> Message:
    """`changes`: by kind, of clusters as (name, revision)."""
    data = {kind: [cluster(*each) for each in each_kind] for kind, each_kind in changes.items() if kind != "delete"}
    if "delete" in changes:
        data["delete"] = [{"id": f"id-{name}", "ns": "", "name": name} for name, _ in changes["delete"]]
    return event(hub, "managedcluster", f"{generation}.{generation + 1}", data)


def cluster(name: str, revision: int) -> dict[str, Any]:
    claims = [{"name": "id.k8s.io", "value": f"id-{name}"}]
    metadata = {"name": name, "uid": f"uid-{name}", "labels": {"revision": str(revision)}}
    return {"metadata": metadata, "status": {"clusterClaims": claims}}


def policy_events(hub: str, generation: int, *names: str) -> Message:
    rows = [
        {"eventName": name, "eventNamespace": "ns", "message": "m", "reason": "r", "count": 1, "source": {"component": "c"},
         "createdAt": AT, "policyId": "p1", "compliance": "NonCompliant", "clusterId": "id-c", "clusterName": "c"}
        for name in names
    ]  # fmt: skip
    return event(hub, "event.localreplicatedpolicy", f"{generation}.{generation + 1}", rows)
