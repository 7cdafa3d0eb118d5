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


def later(seconds: int) -> str:
    """A time for `sent`: that long after all that says none."""
    return f"2026-01-15T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def sent(message: Message, **more: str) -> Message:
    """The same bundle with other headers: `time`, `sessionid`."""
    return message[0] | {f"ce_{name}": value for name, value in more.items()}, message[1]


def complete_compliance(hub: str, version: str, needs: str | None, **clusters: list[str]) -> Message:
    """`needs`: the version of the compliance it was made for. `clusters`: by state, of one policy; all others comply."""
    return event(hub, "policy.localcompletecompliance", version, _states(clusters), **_depending(needs))


def compliance_delta(hub: str, version: str, needs: str | None, **clusters: list[str]) -> Message:
    """`needs`: the version of the complete compliance it changes."""
    return event(hub, "policy.deltacompliance", version, _states(clusters), **_depending(needs))


def _states(clusters: dict[str, list[str]]) -> list[dict[str, Any]]:
    return [{"policyId": "p1", **{f"{state}Clusters": names for state, names in clusters.items()}}] if clusters else []


def _depending(needs: str | None) -> dict[str, str]:
    return {} if needs is None else {"extdependencyversion": needs}


def cut(message: Message, *ends: int) -> list[Message]:
    """In chunks that end there, the last one at the end of all; each has an id of its own."""
    headers, data = message
    bounds = [0, *ends, len(data)]
    chunk = {"ce_extsize": str(len(data))}
    return [
        (headers | chunk | {"ce_id": f"{headers['ce_id']}-{end}", "ce_extoffset": str(end)}, data[start:end])
        for start, end in itertools.pairwise(bounds)
    ]


def clusters_listed(hub: str, generation: int, *names: str) -> Message:
    """The end of a resync: all the clusters there are."""
    listed = [{"id": f"id-{name}", "ns": "", "name": name} for name in names]
    return event(hub, "managedcluster", f"{generation}.{generation + 1}", {"resync_metadata": listed})


def heartbeat(hub: str, generation: int, at: str) -> Message:
    return event(hub, "managedhub.heartbeat", f"{generation}.0", [], time=at)


def policy_event(name: str, state: str, at: str, **more: Any) -> dict[str, Any]:
    """One of a replicated policy, for `happened`."""
    return {
        "eventName": name, "eventNamespace": "ns", "message": "m", "reason": "PolicyStatusSync", "count": 1,
        "source": {"component": "c"}, "createdAt": at, "policyId": "p1", "compliance": state, "clusterId": "id-c1",
        "clusterName": "c1", **more,
    }  # fmt: skip


def happened(hub: str, generation: int, *events: dict[str, Any], to: str = "event.localreplicatedpolicy") -> Message:
    return event(hub, to, f"{generation}.{generation + 1}", list(events))


def per_policy(hub: str, version: str, policies: dict[str, dict[str, list[str]]]) -> Message:
    """Compliance of several. `policies`: of each the lists of clusters, under the names the agent has for them."""
    return event(hub, "policy.localcompliance", version, [{"policyId": name, **lists} for name, lists in policies.items()])
