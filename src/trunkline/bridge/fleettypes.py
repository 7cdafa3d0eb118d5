"""The types of a fleet of clusters, and the names they have elsewhere.

`GLOBAL_HUB` has the types of Global Hub agents, without what all of them begin with; `DESIGN` has the names of the design
document of the status transport bridge. Payloads are what those agents send. clusters-per-policy depends on managed-clusters
only implicitly: its rows may come first, with no cluster id, and get it when the cluster is known.
"""

from __future__ import annotations

from trunkline.bridge.compliance import ClustersPerPolicy, CompleteCompliance, ComplianceDelta
from trunkline.bridge.events import CLUSTER_EVENTS, POLICY_EVENTS, ROOT_POLICY_EVENTS
from trunkline.bridge.hubs import ALERT_COUNTS, HUB_INFO, Heartbeats
from trunkline.bridge.objects import MANAGED_CLUSTERS, POLICIES
from trunkline.bridge.types import BundleType, Match, Missing
from trunkline.core.bundle import Mode

GLOBAL_HUB_PREFIX = "io.open-cluster-management.operator.multiclusterglobalhubs."

GLOBAL_HUB: dict[str, str] = {
    "managedhub.heartbeat": "heartbeat",
    "managedhub.info": "hub-info",
    "managedcluster": "managed-clusters",
    "event.managedcluster": "cluster-events",
    "policy.localspec": "policies",
    "policy.localcompliance": "clusters-per-policy",
    "policy.localcompletecompliance": "complete-compliance",
    "policy.deltacompliance": "compliance-delta",
    "event.localrootpolicy": "root-policy-events",
    "event.localreplicatedpolicy": "policy-events",
    "security.alertcounts": "alert-counts",
}

# What those agents send besides, and a hub has no table for: steps of a migration between hubs, upgrades of groups of clusters.
GLOBAL_HUB_UNKEPT = frozenset({"managedclustermigration", "event.clustergroupupgrade"})

DESIGN: dict[str, str] = {
    "Control Info": "heartbeat",
    "Managed Clusters": "managed-clusters",
    "Local Policies": "policies",
    "Cluster-per-Policy": "clusters-per-policy",
    "Compliance": "complete-compliance",
    "Compliance Delta": "compliance-delta",
}

_OBJECT = (("namespace", "text"), ("name", "text"), ("payload", "jsonb"))
_STATE = (("policy_id", "text"), ("cluster_name", "text"), ("state", "fleet.compliance_state"))
_EVENT = (
    ("event_name", "text"), ("event_namespace", "text"), ("message", "text"), ("reason", "text"),
)  # fmt: skip
_POLICY_EVENT = (
    *_EVENT, ("count", "int"), ("source", "jsonb"), ("policy_id", "text"), ("state", "fleet.compliance_state"),
    ("created_at", "timestamptz"),
)  # fmt: skip

FLEET_TYPES: tuple[BundleType, ...] = (
    BundleType(
        name="heartbeat",
        priority=0,
        depends_on=None,
        mode=Mode.COMPLETE,
        table="fleet.heartbeat",
        key=(),
        columns=(("sent_at", "timestamptz"),),
        missing=Missing.KEPT,
        handler=Heartbeats(),
    ),
    BundleType(
        name="hub-info",
        priority=1,
        depends_on=None,
        mode=Mode.COMPLETE,
        table="fleet.hub_info",
        key=(),
        columns=(("cluster_id", "text"), ("console_url", "text"), ("grafana_url", "text"), ("mch_version", "text")),
        missing=Missing.KEPT,
        handler=HUB_INFO,
    ),
    BundleType(
        name="managed-clusters",
        priority=2,
        depends_on=None,
        mode=Mode.HYBRID,
        table="fleet.managed_cluster",
        key=("cluster_id",),
        columns=(("cluster_id", "text"), *_OBJECT[1:]),
        missing=Missing.KEPT,
        handler=MANAGED_CLUSTERS,
    ),
    BundleType(
        name="cluster-events",
        priority=3,
        depends_on=None,
        mode=Mode.APPEND,
        table="fleet.cluster_event",
        key=("event_name", "created_at"),
        columns=(
            *_EVENT,
            ("type", "text"),
            ("cluster_name", "text"),
            ("cluster_id", "text"),
            ("reporting_controller", "text"),
            ("reporting_instance", "text"),
            ("created_at", "timestamptz"),
        ),
        missing=Missing.KEPT,
        handler=CLUSTER_EVENTS,
    ),
    BundleType(
        name="policies",
        priority=4,
        depends_on=None,
        mode=Mode.HYBRID,
        table="fleet.policy",
        key=("policy_id",),
        columns=(("policy_id", "text"), *_OBJECT),
        missing=Missing.KEPT,
        handler=POLICIES,
    ),
    BundleType(
        name="clusters-per-policy",
        priority=5,
        depends_on=None,
        mode=Mode.COMPLETE,
        table="fleet.compliance",
        key=("policy_id", "cluster_name"),
        columns=_STATE,
        missing=Missing.GONE,
        handler=ClustersPerPolicy(),
    ),
    BundleType(
        name="complete-compliance",
        priority=6,
        depends_on="clusters-per-policy",
        mode=Mode.COMPLETE,
        table="fleet.compliance",
        key=("policy_id", "cluster_name"),
        columns=_STATE,
        missing=Missing.KEPT,
        match=Match.EXACT,
        handler=CompleteCompliance(),
    ),
    BundleType(
        name="compliance-delta",
        priority=7,
        depends_on="complete-compliance",
        mode=Mode.DELTA,
        table="fleet.compliance",
        key=("policy_id", "cluster_name"),
        columns=_STATE,
        missing=Missing.KEPT,
        match=Match.EXACT,
        handler=ComplianceDelta(),
    ),
    BundleType(
        name="root-policy-events",
        priority=8,
        depends_on=None,
        mode=Mode.APPEND,
        table="fleet.root_policy_event",
        key=("event_name", "count", "created_at"),
        columns=_POLICY_EVENT,
        missing=Missing.KEPT,
        handler=ROOT_POLICY_EVENTS,
    ),
    BundleType(
        name="policy-events",
        priority=9,
        depends_on=None,
        mode=Mode.APPEND,
        table="fleet.policy_event",
        key=("event_name", "count", "created_at"),
        columns=(*_POLICY_EVENT, ("cluster_name", "text"), ("cluster_id", "text")),
        missing=Missing.KEPT,
        more_tables=("fleet.compliance_history",),
        handler=POLICY_EVENTS,
    ),
    BundleType(
        name="alert-counts",
        priority=10,
        depends_on=None,
        mode=Mode.COMPLETE,
        table="fleet.alert_count",
        key=("source",),
        columns=(
            ("source", "text"),
            ("low", "int"),
            ("medium", "int"),
            ("high", "int"),
            ("critical", "int"),
            ("detail_url", "text"),
        ),
        missing=Missing.KEPT,
        handler=ALERT_COUNTS,
    ),
)
