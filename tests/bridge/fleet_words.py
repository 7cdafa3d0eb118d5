"""Short words to say what sites of a fleet send, and a database to hand it to the handlers of its types."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import psycopg

from trunkline.bridge.fleettypes import FLEET_TYPES
from trunkline.bridge.handler import Part, Work, Written
from trunkline.bridge.shipped import SHIPPED
from trunkline.core.bundle import Version
from trunkline.core.jsoncodec import dumps

TIME = "2026-01-01T00:00:00Z"
_ids = itertools.count(1)
Json = Any


def part(data: Json, generation: int = 1, incarnation: int = 1, time: str = TIME) -> Part:
    raw = data if isinstance(data, bytes) else dumps(data)
    return Part(f"b{next(_ids)}", Version(incarnation, generation), time, raw)


def work(site: str, *parts: Part) -> Work:
    return Work(site, parts)


def cluster(id_: str, name: str = "", **more: Json) -> Json:
    """As an agent sends it: the id is a claim."""
    claims = [{"name": "platform", "value": "test"}, {"name": "id.k8s.io", "value": id_}]
    return {"metadata": {"name": name or f"c{id_}", "uid": f"uid-{id_}"}, "status": {"clusterClaims": claims}, **more}


def policy(id_: str, name: str = "", namespace: str = "default", **more: Json) -> Json:
    return {"metadata": {"name": name or id_.lower(), "namespace": namespace, "uid": id_}, **more}


def named(id_: str = "", name: str = "", ns: str = "") -> Json:
    return {"id": id_, "ns": ns, "name": name}


def lists(policy_id: str, **states: list[str]) -> Json:
    """`lists("P1", compliant=["c1"], unknown=[])`, with the names of the lists that agents use."""
    keys = {
        "compliant": "compliantClusters", "non_compliant": "nonCompliantClusters",
        "unknown": "unknownComplianceClusters", "pending": "pendingComplianceClusters",
    }  # fmt: skip
    return {"policyId": policy_id} | {keys[state]: clusters for state, clusters in states.items()}


def policy_event(name: str, compliance: str, at: str, **more: Json) -> Json:
    return {
        "eventName": name, "eventNamespace": "ns", "message": "m", "reason": "PolicyStatusSync", "count": 1,
        "source": {"component": "policy-status-history-sync"}, "createdAt": at, "policyId": "P1", "compliance": compliance,
        "clusterId": "id-1", "clusterName": "c1",
    } | more  # fmt: skip


class Fleet:
    """Each call of `write` is one transaction, as an apply is. It begins with empty tables."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn
        tables = {table for one in FLEET_TYPES for table in one.tables}
        conn.execute(f"TRUNCATE bridge.site, {', '.join(sorted(tables))}")
        conn.commit()

    def write(self, type_: str, *works: Work) -> Mapping[str, Written]:
        declared = SHIPPED[type_]
        assert declared.handler is not None
        written = declared.handler.write(self.conn, declared, works)
        self.conn.commit()
        return written

    def send(self, site: str, type_: str, data: Json, generation: int = 1) -> Written:
        return self.write(type_, work(site, part(data, generation)))[site]

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        found = self.conn.execute(query, values).fetchall()
        self.conn.rollback()
        return found

    def compliance(self, site: str = "h1") -> dict[tuple[str, str], str]:
        found = self.rows("SELECT policy_id, cluster_name, state FROM fleet.compliance WHERE site = %s", site)
        return {(policy_id, name): state for policy_id, name, state in found}

    def cluster_ids(self, site: str = "h1") -> dict[tuple[str, str], str | None]:
        found = self.rows("SELECT policy_id, cluster_name, cluster_id FROM fleet.compliance WHERE site = %s", site)
        return {(policy_id, name): id_ for policy_id, name, id_ in found}

    def clusters(self, site: str = "h1") -> dict[str, bool]:
        """Whether each is there still."""
        return dict(self.rows("SELECT cluster_id, deleted_at IS NULL FROM fleet.managed_cluster WHERE site = %s", site))

    def policies(self, site: str = "h1") -> dict[str, bool]:
        return dict(self.rows("SELECT policy_id, deleted_at IS NULL FROM fleet.policy WHERE site = %s", site))

    def marks(self, table: str) -> list[tuple[Any, ...]]:
        """What shows that a row was written, or even locked."""
        return self.rows(f"SELECT t.*::text, xmin::text, xmax::text, ctid::text FROM {table} AS t ORDER BY 1")
