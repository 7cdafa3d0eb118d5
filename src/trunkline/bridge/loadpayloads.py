"""The documents of a made-up site, one function per bundle type: in the form that the type's senders give them."""

from __future__ import annotations

import random
import sys
import uuid
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

HEALTH = ("ok", "degraded", "offline")
STATES = ("compliant", "non_compliant", "unknown", "pending")
LISTS = ("compliantClusters", "nonCompliantClusters", "unknownComplianceClusters", "pendingComplianceClusters")
SPOKEN = ("Compliant", "NonCompliant", "Unknown", "Pending")
_OFTEN = bytes([0] * 192 + [1] * 32 + [2] * 16 + [3] * 16)
"""By a random byte: three of four are as they should be."""
_MOST_TIMES = 1 << 16  # what the places of a time have room for; from then on the last one stands for all later ones


@dataclass(frozen=True)
class Content:
    """`is_all`: of a hybrid type, every object there is."""

    document: Any
    rows: int
    changed: int
    is_all: bool = False


class Status:
    """What one site has; `changed_*` is what the present turn has changed."""

    def __init__(self, site: str, clusters: int, policies: int, rng: random.Random, root: uuid.UUID) -> None:
        self.site, self.rng, self._root = site, rng, root
        self.turn, self.times = 0, list[str]()
        self.clusters, self.health, self.revisions, self.health_at = list[str](), bytearray(), array("I"), array("H")
        self.policies = [f"policy-{number + 1:03}" for number in range(policies)]
        self.policy_ids = [str(uuid.uuid5(root, name)) for name in self.policies]
        self.states = [bytearray() for _ in self.policies]
        self.states_at = [array("H") for _ in self.policies]
        self.changed_clusters, self.changed_states = set[int](), set[tuple[int, int]]()
        self._grow(clusters)

    @property
    def now(self) -> str:
        return self.times[-1]

    @property
    def is_first(self) -> bool:
        return self.turn == 1

    def cluster_id(self, index: int) -> str:
        return str(uuid.uuid5(self._root, self.clusters[index]))

    def advance(self, time: str, changed: float, growth: int) -> None:
        self.turn += 1
        del self.times[_MOST_TIMES - 1 :]
        self.times.append(time)
        self.changed_clusters, self.changed_states = set(), set()
        if not self.is_first:
            self._change(changed)
            self._grow(growth)

    def flip(self, changed: float) -> list[tuple[int, int]]:
        """Some states change; which."""
        some = self._some(len(self.policies) * len(self.clusters), changed)
        pairs = [divmod(at, len(self.clusters)) for at in some]
        now = len(self.times) - 1
        for (policy, cluster), step in zip(pairs, self.rng.randbytes(len(pairs)), strict=True):
            states = self.states[policy]
            states[cluster] = (states[cluster] + 1 + step % 3) % len(STATES)
            self.states_at[policy][cluster] = now
        self.changed_states.update(pairs)
        return pairs

    def _change(self, changed: float) -> None:
        for index in self._some(len(self.clusters), changed):
            self.health[index] = (self.health[index] + self.rng.randint(1, 2)) % len(HEALTH)
            self.revisions[index] += 1
            self.health_at[index] = len(self.times) - 1
            self.changed_clusters.add(index)
        self.flip(changed)

    def _grow(self, clusters: int) -> None:
        first = len(self.clusters)
        added = range(first, first + clusters)
        at = [max(0, len(self.times) - 1)] * clusters
        self.clusters += [sys.intern(f"cluster-{number + 1:05}") for number in added]
        self.health += bytes(clusters)
        self.revisions.extend([1] * clusters)
        self.health_at.extend(at)
        for states, since in zip(self.states, self.states_at, strict=True):
            states += self.rng.randbytes(clusters).translate(_OFTEN)
            since.extend(at)
        if self.turn:
            self.changed_clusters |= set(added)
            self.changed_states |= {(policy, cluster) for policy in range(len(self.policies)) for cluster in added}

    def _some(self, of: int, share: float) -> list[int]:
        if not of or not share:
            return []
        return self.rng.sample(range(of), min(of, max(1, round(of * share))))


# -- the demonstration's types


def _clusters(s: Status) -> Content:
    rows = [
        {"name": name, "health": HEALTH[s.health[n]], "revision": s.revisions[n], "changed_at": s.times[s.health_at[n]]}
        for n, name in enumerate(s.clusters)
    ]
    return Content(rows, len(rows), len(rows) if s.is_first else len(s.changed_clusters))


def _compliance(s: Status) -> Content:
    rows = [
        {"cluster": name, "policy": policy, "state": STATES[state], "changed_at": s.times[at]}
        for policy, states, since in zip(s.policies, s.states, s.states_at, strict=True)
        for name, state, at in zip(s.clusters, states, since, strict=True)
    ]
    return Content(rows, len(rows), len(rows) if s.is_first else len(s.changed_states))


def _events(s: Status) -> Content:
    rows = [
        {"id": f"{s.turn}-{n}", "kind": "health", "subject": s.clusters[n], "severity": "low", "at": s.now}
        for n in _happened(s, s.changed_clusters)
    ]
    return Content(rows, len(rows), len(rows))


# -- the fleet's types


def _heartbeat(s: Status) -> Content:
    return Content([], 1, 1)


def _hub_info(s: Status) -> Content:
    host = f"{s.site}.example.com"
    document = {"consoleURL": f"https://console.{host}", "grafanaURL": f"https://grafana.{host}", "mchVersion": "2.13.0",
                "clusterId": str(uuid.uuid5(s._root, "hub"))}  # fmt: skip
    return Content(document, 1, int(s.is_first))


def _cluster_object(s: Status, n: int) -> dict[str, Any]:
    name, available = s.clusters[n], "True" if s.health[n] == 0 else "False"
    return {
        "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster",
        "metadata": {
            "name": name, "uid": str(uuid.uuid5(s._root, f"uid {name}")), "resourceVersion": str(s.revisions[n]),
            "labels": {"name": name, "cloud": "Amazon", "vendor": "OpenShift", "clusterset": "default"},
        },
        "spec": {"hubAcceptsClient": True, "leaseDurationSeconds": 60},
        "status": {
            "clusterClaims": [{"name": "id.k8s.io", "value": s.cluster_id(n)}, {"name": "platform", "value": "AWS"}],
            "conditions": [{"type": "ManagedClusterConditionAvailable", "status": available,
                            "lastTransitionTime": s.times[s.health_at[n]]}],
        },
    }  # fmt: skip


def _managed_clusters(s: Status) -> Content:
    if s.is_first:
        objects = [_cluster_object(s, n) for n in range(len(s.clusters))]
        return Content(objects, len(objects), len(objects), is_all=True)
    changed = [_cluster_object(s, n) for n in sorted(s.changed_clusters)]
    return Content({"update": changed}, len(changed), len(changed))


def _policy_object(s: Status, n: int, revision: int) -> dict[str, Any]:
    name = s.policies[n]
    return {
        "apiVersion": "policy.open-cluster-management.io/v1",
        "kind": "Policy",
        "metadata": {
            "name": name, "namespace": "policies", "uid": s.policy_ids[n], "resourceVersion": str(revision),
            "annotations": {"policy.open-cluster-management.io/standards": "NIST SP 800-53",
                            "policy.open-cluster-management.io/categories": "CM Configuration Management",
                            "policy.open-cluster-management.io/controls": "CM-2 Baseline Configuration"},
        },
        "spec": {"disabled": False, "remediationAction": "inform"},
    }  # fmt: skip


def _policies(s: Status) -> Content:
    if s.is_first:
        objects = [_policy_object(s, n, 1) for n in range(len(s.policies))]
        return Content(objects, len(objects), len(objects), is_all=True)
    changed = [_policy_object(s, s.turn % len(s.policies), s.turn)] if s.policies else []
    return Content({"update": changed}, len(changed), len(changed))


def _by_state(s: Status, policy: int, clusters: Iterable[int], lists: tuple[int, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {"policyId": s.policy_ids[policy]} | {LISTS[state]: [] for state in lists}
    states = s.states[policy]
    for cluster in clusters:
        if states[cluster] in lists:
            found[LISTS[states[cluster]]].append(s.clusters[cluster])
    return found


def _clusters_per_policy(s: Status) -> Content:
    everyone = range(len(s.clusters))
    rows = len(s.policies) * len(s.clusters)
    document = [_by_state(s, policy, everyone, (0, 1, 2, 3)) for policy in range(len(s.policies))]
    return Content(document, rows, rows if s.is_first else len(s.changed_states))


def _complete_compliance(s: Status) -> Content:
    """The same once more, without those that comply: nothing is left to change."""
    every = [_by_state(s, policy, range(len(s.clusters)), (1, 2, 3)) for policy in range(len(s.policies))]
    document = [one for one in every if any(one[LISTS[state]] for state in (1, 2, 3))]
    return Content(document, sum(len(one[LISTS[state]]) for one in document for state in (1, 2, 3)), 0)


def _compliance_delta(s: Status) -> Content:
    """What changed after the complete ones."""
    pairs = sorted(s.flip(0.001))
    document = [
        _by_state(s, policy, [cluster for of, cluster in pairs if of == policy], (0, 1, 2, 3))
        for policy in sorted({policy for policy, _ in pairs})
    ]
    return Content(document, len(pairs), len(pairs))


_MOST_EVENTS = 100


def _happened(s: Status, changed: set[int]) -> list[int]:
    return sorted(changed)[:_MOST_EVENTS] or ([0] if s.clusters else [])


def _cluster_events(s: Status) -> Content:
    rows = [
        {"eventNamespace": s.clusters[n], "eventName": f"{s.clusters[n]}.{s.turn}", "clusterName": s.clusters[n],
         "clusterId": s.cluster_id(n), "leafHubName": s.site, "message": f"the cluster is {HEALTH[s.health[n]]}",
         "reason": "AvailabilityChanged", "reportingController": "load", "reportingInstance": "load-0", "type": "Normal",
         "createdAt": s.now}
        for n in _happened(s, s.changed_clusters)
    ]  # fmt: skip
    return Content(rows, len(rows), len(rows))


def _policy_event(s: Status, policy: int, state: int, name: str) -> dict[str, Any]:
    return {"eventName": name, "eventNamespace": "policies", "message": f"the policy is {SPOKEN[state]}",
            "reason": "PolicyStatusSync", "count": 1, "source": {"component": "policy-status"}, "createdAt": s.now,
            "policyId": s.policy_ids[policy], "compliance": SPOKEN[state]}  # fmt: skip


def _root_policy_events(s: Status) -> Content:
    rows = [
        _policy_event(s, n, max(s.states[n], default=0), f"{s.policies[n]}.{s.turn}")
        for n in sorted({policy for policy, _ in s.changed_states})[:_MOST_EVENTS]
    ]
    return Content(rows, len(rows), len(rows))


def _policy_events(s: Status) -> Content:
    rows = [
        _policy_event(s, policy, s.states[policy][n], f"{s.policies[policy]}.{s.clusters[n]}.{s.turn}")
        | {"clusterId": s.cluster_id(n), "clusterName": s.clusters[n]}
        for policy, n in sorted(s.changed_states)[:_MOST_EVENTS]
    ]
    return Content(rows, len(rows), len(rows))


def _alert_counts(s: Status) -> Content:
    low, medium, high, critical = (s.rng.randrange(most) for most in (50, 20, 10, 3))
    url = f"https://alerts.{s.site}.example.com"
    document = {"low": low, "medium": medium, "high": high, "critical": critical, "detail_url": url, "source": "scanner"}
    return Content(document, 1, 1)


WITHOUT_POLICIES = frozenset(
    ("clusters", "events", "heartbeat", "hub-info", "managed-clusters", "cluster-events", "alert-counts")
)
"""Of a fleet that sends only these, no policies are kept."""
PAYLOADS: dict[str, Callable[[Status], Content]] = {
    "clusters": _clusters,
    "compliance": _compliance,
    "events": _events,
    "heartbeat": _heartbeat,
    "hub-info": _hub_info,
    "managed-clusters": _managed_clusters,
    "cluster-events": _cluster_events,
    "policies": _policies,
    "clusters-per-policy": _clusters_per_policy,
    "complete-compliance": _complete_compliance,
    "compliance-delta": _compliance_delta,
    "root-policy-events": _root_policy_events,
    "policy-events": _policy_events,
    "alert-counts": _alert_counts,
}
