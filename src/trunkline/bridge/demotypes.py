"""The types of the demonstration: a site's clusters, their compliance, and what happened."""

from __future__ import annotations

from trunkline.bridge.types import BundleType, Missing
from trunkline.core.bundle import Mode

DEMO_TYPES = (
    BundleType(
        name="clusters",
        priority=0,
        depends_on=None,
        mode=Mode.COMPLETE,
        table="status.cluster",
        key=("name",),
        columns=(("name", "text"), ("health", "text"), ("revision", "bigint"), ("changed_at", "timestamptz")),
        missing=Missing.GONE,
    ),
    BundleType(
        name="compliance",
        priority=10,
        depends_on="clusters",
        mode=Mode.COMPLETE,
        table="status.compliance",
        key=("cluster", "policy"),
        columns=(("cluster", "text"), ("policy", "text"), ("state", "text"), ("changed_at", "timestamptz")),
        missing=Missing.GONE,
    ),
    BundleType(
        name="events",
        priority=20,
        depends_on=None,
        mode=Mode.APPEND,
        table="status.event",
        key=("id",),
        columns=(("id", "text"), ("kind", "text"), ("subject", "text"), ("severity", "text"), ("at", "timestamptz")),
        missing=Missing.KEPT,
    ),
)
