"""Compliance that came before its cluster gets the cluster's id when that comes.

Rows without an id have an index of their own, and only clusters that were just brought are looked up in it: the work is that of
the rows that are filled. They travel as arrays, for of those the planner knows how many there are; of a table that was just
filled it does not, and would rather read the rows without an id of all sites. Where a name has gone over to another cluster,
rows that still have the id of the former follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import psycopg

from trunkline.bridge.staging import counted

# Of two clusters with one name the one that was changed last.
_BROUGHT = """
    SELECT DISTINCT ON (site, name) site, name, id AS cluster_id FROM pg_temp.object_puts
     WHERE NOT is_deleted ORDER BY site, name, incarnation DESC, generation DESC
"""
FILL = """
UPDATE fleet.compliance AS t SET cluster_id = b.cluster_id, updated_at = clock_timestamp()
  FROM unnest(%(site)s::text[], %(name)s::text[], %(cluster_id)s::text[]) AS b (site, name, cluster_id)
 WHERE t.site = ANY(%(sites)s) AND t.site = b.site AND t.cluster_name = b.name AND t.cluster_id IS NULL
RETURNING t.site
"""
_TAKEN_OVER = f"""
SELECT b.site, b.name, b.cluster_id FROM ({_BROUGHT}) AS b
 WHERE EXISTS (SELECT 1 FROM fleet.managed_cluster AS o
                WHERE o.site = b.site AND o.name = b.name AND o.cluster_id <> b.cluster_id)
"""
_FOLLOW = """
UPDATE fleet.compliance AS t SET cluster_id = b.cluster_id, updated_at = clock_timestamp()
  FROM unnest(%(site)s::text[], %(name)s::text[], %(cluster_id)s::text[]) AS b (site, name, cluster_id)
 WHERE t.site = ANY(%(sites)s) AND t.site = b.site AND t.cluster_name = b.name AND t.cluster_id IS DISTINCT FROM b.cluster_id
RETURNING t.site
"""

Named = tuple[str, str, str]
"""(site, name, cluster id)"""


def fill_cluster_ids(conn: psycopg.Connection[Any]) -> Counter[str]:
    """After clusters were written, while they are staged."""
    written = Counter[str]()
    for chosen, statement in ((_BROUGHT, FILL), (_TAKEN_OVER, _FOLLOW)):
        found = conn.execute(chosen).fetchall()
        if found:
            written += counted(conn, statement, columns(found))
    return written


def columns(clusters: Sequence[Named]) -> dict[str, list[str]]:
    """As the statements want them."""
    site, name, cluster_id = (list(column) for column in zip(*clusters, strict=True))
    return {"site": site, "name": name, "cluster_id": cluster_id, "sites": sorted(set(site))}
