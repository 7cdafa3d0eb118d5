"""Which clusters obey which policy: three kinds of bundles write the one table.

C1  clusters-per-policy says which pairs of policy and cluster there are: it replaces the site's rows.
C2  complete-compliance and compliance-delta change the state of pairs that are there, and never make one. complete-compliance
    names pairs that are not compliant: every other pair of the site is.
C3  Of a cluster named twice for one policy the worse state counts; between deltas the later one.
C4  A pair gets the id of the cluster of that name, if the site has told of it already; if not, with that cluster
    (`trunkline.bridge.clusterids`).

Lists of clusters travel to Postgres as they came, a line per policy and state, and become rows there. All rows of a site are
written by one apply at a time, so what is counted first still holds when it is written. Every statement says of which sites:
else the planner would read the rows of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

from trunkline.bridge.handler import Work, Written
from trunkline.bridge.payload import objects
from trunkline.bridge.staging import Stage, counted, plain
from trunkline.bridge.types import BundleType
from trunkline.core.errors import Invalid

Pairs = dict[str, dict[str, str]]  # policy -> cluster -> state
Lists = list[tuple[str, str, list[str]]]  # (policy, state, clusters): each pair once

_BETWEEN = "\x1f"
# From worst to best.
_LISTS = {
    "nonCompliantClusters": "non_compliant",
    "unknownComplianceClusters": "unknown",
    "pendingComplianceClusters": "pending",
    "compliantClusters": "compliant",
}
_KEY = (("site", "text"), ("policy_id", 'text COLLATE "C"'))
_STATE = ("state", "fleet.compliance_state")
_STAGED_LISTS = Stage("compliance_lists", (*_KEY, _STATE, ("clusters", "text")))
_STAGED_ROWS = Stage(
    "compliance_rows", (*_KEY, ("cluster_name", 'text COLLATE "C"'), ("cluster_id", 'text COLLATE "C"'), _STATE)
)

# A join that does not fit in memory visits the table's pages in no order.
_MEMORY = "SET LOCAL work_mem = '64MB'"
_SPREAD = """
INSERT INTO pg_temp.compliance_rows
SELECT l.site, l.policy_id, c.name, m.cluster_id, l.state
  FROM pg_temp.compliance_lists AS l
 CROSS JOIN LATERAL string_to_table(l.clusters, E'\\x1f') AS c (name)
  LEFT JOIN (SELECT DISTINCT ON (site, name) site, name, cluster_id FROM fleet.managed_cluster
              WHERE site = ANY(%(sites)s) AND deleted_at IS NULL
              ORDER BY site, name, incarnation DESC, generation DESC) AS m ON m.site = l.site AND m.name = c.name
"""
_SPREAD_STATES = """
INSERT INTO pg_temp.compliance_rows
SELECT l.site, l.policy_id, c.name, NULL, l.state
  FROM pg_temp.compliance_lists AS l CROSS JOIN LATERAL string_to_table(l.clusters, E'\\x1f') AS c (name)
"""
_SAME_PAIR = "t.site = r.site AND t.policy_id = r.policy_id AND t.cluster_name = r.cluster_name"
_DIFFERS = "(t.state <> r.state OR (r.cluster_id IS NOT NULL AND r.cluster_id IS DISTINCT FROM t.cluster_id))"
_HELD = "SELECT site, count(*) FROM fleet.compliance WHERE site = ANY(%(sites)s) GROUP BY site"
_MATCHED = f"""
SELECT t.site, count(*), count(*) FILTER (WHERE {_DIFFERS})
  FROM fleet.compliance AS t JOIN pg_temp.compliance_rows AS r ON {_SAME_PAIR}
 WHERE t.site = ANY(%(sites)s) GROUP BY t.site
"""
_DELETE = f"""
DELETE FROM fleet.compliance AS t
 WHERE t.site = ANY(%(sites)s) AND NOT EXISTS (SELECT 1 FROM pg_temp.compliance_rows AS r WHERE {_SAME_PAIR})
"""
_UPDATE = f"""
UPDATE fleet.compliance AS t
   SET state = r.state, cluster_id = coalesce(r.cluster_id, t.cluster_id), updated_at = clock_timestamp()
  FROM pg_temp.compliance_rows AS r
 WHERE t.site = ANY(%(sites)s) AND {_SAME_PAIR} AND {_DIFFERS}
"""
_INSERT_ALL = """
INSERT INTO fleet.compliance (site, policy_id, cluster_name, cluster_id, state, updated_at)
SELECT site, policy_id, cluster_name, cluster_id, state, clock_timestamp() FROM pg_temp.compliance_rows AS r
 WHERE r.site = ANY(%(sites)s)
"""
_INSERT = f"""
{_INSERT_ALL}
   AND NOT EXISTS (SELECT 1 FROM fleet.compliance AS t WHERE t.site = ANY(%(sites)s) AND {_SAME_PAIR})
"""
_CHANGE_STATE = f"""
UPDATE fleet.compliance AS t SET state = r.state, updated_at = clock_timestamp()
  FROM pg_temp.compliance_rows AS r
 WHERE t.site = ANY(%(sites)s) AND {_SAME_PAIR} AND t.state <> r.state
RETURNING t.site
"""
_REST_COMPLIES = f"""
UPDATE fleet.compliance AS t SET state = 'compliant', updated_at = clock_timestamp()
 WHERE t.site = ANY(%(sites)s) AND t.state <> 'compliant'
   AND NOT EXISTS (SELECT 1 FROM pg_temp.compliance_rows AS r WHERE {_SAME_PAIR})
RETURNING t.site
"""

Held = Counter[str]  # rows by site


def read_lists(data: bytes, what: str) -> Lists:
    """What one bundle says."""
    told = [_told(item, f"policy {number} of {what}") for number, item in enumerate(objects(data, what))]
    if _is_plain(told):
        return [(policy, state, clusters) for policy, lists in told for state, clusters in lists if clusters]
    return _grouped(_folded(told))


def fold_lists(parts: Iterable[bytes], what: str) -> Lists:
    """What bundles say one after the other."""
    told = [_told(item, f"policy {number} of {what}") for data in parts for number, item in enumerate(objects(data, what))]
    return _grouped(_folded(told))


_Told = tuple[str, list[tuple[str, list[str]]]]  # a policy, and clusters by state, from worst to best


def _told(item: Mapping[str, Any], where: str) -> _Told:
    policy = item.get("policyId")
    if not isinstance(policy, str) or not policy:
        raise Invalid(where, "it has no policyId", "send the policy's id with it")
    return policy, [(state, _clusters(item.get(name) or [], name, where)) for name, state in _LISTS.items()]


def _clusters(names: Any, name: str, where: str) -> list[str]:
    if not isinstance(names, list) or not set(map(type, names)) <= {str}:
        raise Invalid(where, f"{name} is not a list of names", "send names of clusters")
    return names


def _is_plain(told: list[_Told]) -> bool:
    """No pair is named twice."""
    if len({policy for policy, _ in told}) != len(told):
        return False
    return all(len(set().union(*(c for _, c in lists))) == sum(len(c) for _, c in lists) for _, lists in told)


def _folded(told: list[_Told]) -> Pairs:
    pairs: Pairs = {}
    for policy, lists in told:
        now = {cluster: state for state, clusters in reversed(lists) for cluster in clusters}
        pairs.setdefault(policy, {}).update(now)
    return pairs


def _grouped(pairs: Pairs) -> Lists:
    lists: dict[tuple[str, str], list[str]] = {}
    for policy, clusters in pairs.items():
        for cluster, state in clusters.items():
            lists.setdefault((policy, state), []).append(cluster)
    return [(policy, state, clusters) for (policy, state), clusters in lists.items()]


def _blocks(lists: Mapping[str, Lists]) -> Iterator[str]:
    """Lines of COPY, a block per site."""
    for site, told in lists.items():
        begin = plain(site)
        yield "".join(f"{begin}\t{plain(policy)}\t{state}\t{_joined(clusters)}\n" for policy, state, clusters in told)


def _joined(clusters: list[str]) -> str:
    text = _BETWEEN.join(clusters)
    if text.count(_BETWEEN) != len(clusters) - 1:
        raise Invalid("name of a cluster", "it holds a control character", "send names of clusters")
    return plain(text)


def _stage(conn: psycopg.Connection[Any], lists: Mapping[str, Lists], spread: LiteralString) -> Held:
    """Rows told, by site."""
    conn.execute(_MEMORY)
    _STAGED_LISTS.fill(conn, _blocks(lists))
    _STAGED_ROWS.empty(conn)
    conn.execute(spread, {"sites": list(lists)})
    return Counter({site: sum(len(clusters) for _, _, clusters in told) for site, told in lists.items()})


@dataclass(frozen=True)
class ClustersPerPolicy:
    def write(self, conn: psycopg.Connection[Any], declared: BundleType, work: Sequence[Work]) -> Mapping[str, Written]:
        told = _stage(conn, {one.site: read_lists(one.parts[-1].data, declared.name) for one in work}, _SPREAD)
        held, matched, differing = self._compare(conn, [one.site for one in work])
        gone, new = held - matched, told - matched
        for statement, sites in (
            (_DELETE, gone.keys()),
            (_UPDATE, differing.keys()),
            (_INSERT, new.keys() & held.keys()),
            (_INSERT_ALL, new.keys() - held.keys()),
        ):
            if sites:
                conn.execute(statement, {"sites": list(sites)})
        written = gone + differing + new
        return {one.site: Written(told[one.site], written[one.site]) for one in work}

    def _compare(self, conn: psycopg.Connection[Any], sites: list[str]) -> tuple[Held, Held, Held]:
        """Rows the table has, those of them that are told, and those of these that differ."""
        held = Counter(dict(conn.execute(_HELD, {"sites": sites}).fetchall()))
        if not held:
            return held, Counter(), Counter()
        found = conn.execute(_MATCHED, {"sites": list(held)}).fetchall()
        return held, Counter({site: n for site, n, _ in found}), Counter({site: n for site, _, n in found if n})


@dataclass(frozen=True)
class CompleteCompliance:
    def write(self, conn: psycopg.Connection[Any], declared: BundleType, work: Sequence[Work]) -> Mapping[str, Written]:
        lists = {one.site: read_lists(one.parts[-1].data, declared.name) for one in work}
        told = _stage(conn, lists, _SPREAD_STATES)
        values = {"sites": list(lists)}
        written = counted(conn, _REST_COMPLIES, values)
        if told.total():
            written += counted(conn, _CHANGE_STATE, values)
        return {site: Written(told[site], written[site]) for site in lists}


@dataclass(frozen=True)
class ComplianceDelta:
    def write(self, conn: psycopg.Connection[Any], declared: BundleType, work: Sequence[Work]) -> Mapping[str, Written]:
        lists = {one.site: fold_lists((part.data for part in one.parts), declared.name) for one in work}
        told = _stage(conn, lists, _SPREAD_STATES)
        written = counted(conn, _CHANGE_STATE, {"sites": list(lists)})
        return {site: Written(told[site], written[site]) for site in lists}
