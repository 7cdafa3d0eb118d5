"""Which clusters obey which policy: three kinds of bundles write the one table.

C1  clusters-per-policy says which pairs of policy and cluster there are: it replaces the site's rows.
C2  complete-compliance and compliance-delta change the state of pairs that are there, and never make one. complete-compliance
    names pairs that are not compliant: every other pair of the site is.
C3  Of a cluster named twice for one policy the worse state counts; between deltas the later one
    (`trunkline.bridge.compliancelists`).
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

from trunkline.bridge.compliancelists import Told, fold, read
from trunkline.bridge.handler import Work, Written
from trunkline.bridge.staging import Stage, counted
from trunkline.bridge.types import BundleType

_KEY = (("site", "text"), ("policy_id", 'text COLLATE "C"'))
_STATE = ("state", "fleet.compliance_state")
_STAGED_LISTS = Stage("compliance_lists", (*_KEY, _STATE, ("clusters", "text")))
_STAGED_ROWS = Stage(
    "compliance_rows", (*_KEY, ("cluster_name", 'text COLLATE "C"'), ("cluster_id", 'text COLLATE "C"'), _STATE)
)

# A join that does not fit in memory visits the table's pages in no order.
_MEMORY = "SET LOCAL work_mem = '64MB'"
_TOLD = """
SELECT l.site, l.policy_id, c.name AS cluster_name, m.cluster_id, l.state
  FROM pg_temp.compliance_lists AS l
 CROSS JOIN LATERAL string_to_table(l.clusters, E'\\x1f') AS c (name)
  LEFT JOIN (SELECT DISTINCT ON (site, name) site, name, cluster_id FROM fleet.managed_cluster
              WHERE site = ANY(%(sites)s) AND deleted_at IS NULL
              ORDER BY site, name, incarnation DESC, generation DESC) AS m ON m.site = l.site AND m.name = c.name
 WHERE l.site = ANY(%(sites)s)
"""
_SPREAD = f"INSERT INTO pg_temp.compliance_rows {_TOLD}"
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
_ADD = """
INSERT INTO fleet.compliance (site, policy_id, cluster_name, cluster_id, state, updated_at)
SELECT site, policy_id, cluster_name, cluster_id, state, clock_timestamp() FROM
"""
_INSERT_ALL = f"{_ADD} ({_TOLD}) AS r"
_INSERT = f"""
{_ADD} pg_temp.compliance_rows AS r
 WHERE r.site = ANY(%(sites)s)
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


def _stage(conn: psycopg.Connection[Any], told: Iterable[tuple[str, Told]]) -> Held:
    """Rows told, by site. What a site told is read when its turn comes, and not kept."""
    rows: Held = Counter()

    def lines() -> Iterator[str]:
        for site, one in told:
            rows[site] = one.rows
            yield one.lines(site)

    conn.execute(_MEMORY)
    _STAGED_LISTS.fill(conn, lines())
    return rows


def _spread(conn: psycopg.Connection[Any], statement: LiteralString, sites: Iterable[str]) -> None:
    """The lists of these sites become rows."""
    _STAGED_ROWS.empty(conn)
    conn.execute(statement, {"sites": list(sites)})


def _stage_states(conn: psycopg.Connection[Any], told: Iterable[tuple[str, Told]]) -> Held:
    rows = _stage(conn, told)
    _spread(conn, _SPREAD_STATES, rows)
    return rows


def _newest(declared: BundleType, work: Sequence[Work]) -> Iterator[tuple[str, Told]]:
    return ((one.site, read(one.parts[-1].data, declared.name)) for one in work)


@dataclass(frozen=True)
class ClustersPerPolicy:
    def write(self, conn: psycopg.Connection[Any], declared: BundleType, work: Sequence[Work]) -> Mapping[str, Written]:
        told = _stage(conn, _newest(declared, work))
        held = Counter(dict(conn.execute(_HELD, {"sites": list(told)}).fetchall()))
        matched, differing = self._compare(conn, held)
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

    def _compare(self, conn: psycopg.Connection[Any], held: Held) -> tuple[Held, Held]:
        """Of rows the table has those that are told, and those of these that differ. A site that has none needs no comparing,
        and its rows no table on their way."""
        if not held:
            return Counter(), Counter()
        _spread(conn, _SPREAD, held)
        found = conn.execute(_MATCHED, {"sites": list(held)}).fetchall()
        return Counter({site: n for site, n, _ in found}), Counter({site: n for site, _, n in found if n})


@dataclass(frozen=True)
class CompleteCompliance:
    def write(self, conn: psycopg.Connection[Any], declared: BundleType, work: Sequence[Work]) -> Mapping[str, Written]:
        told = _stage_states(conn, _newest(declared, work))
        values = {"sites": list(told)}
        written = counted(conn, _REST_COMPLIES, values)
        if told.total():
            written += counted(conn, _CHANGE_STATE, values)
        return {site: Written(rows, written[site]) for site, rows in told.items()}


@dataclass(frozen=True)
class ComplianceDelta:
    def write(self, conn: psycopg.Connection[Any], declared: BundleType, work: Sequence[Work]) -> Mapping[str, Written]:
        told = _stage_states(conn, ((one.site, fold((part.data for part in one.parts), declared.name)) for one in work))
        written = counted(conn, _CHANGE_STATE, {"sites": list(told)})
        return {site: Written(rows, written[site]) for site, rows in told.items()}
