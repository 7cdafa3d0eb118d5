"""The history of compliance: a row per site, policy, cluster and day (of UTC), told anew from the day's events when one comes.

So it does not matter in which bundles events come, how often, or in which order. The rules, the same everywhere:

T1  The state of a day is the worst any of its events has: non_compliant, then unknown, then pending, then compliant.
T2  `changes` counts how often an event has another state than the one before it on the same day, in order of their times (then
    of their counts and names): compliant, non_compliant, compliant, compliant are 2.
T3  An event without a state, a policy or a cluster's name tells nothing. The cluster's id is the last event's.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg

from trunkline.bridge.staging import counted

_RETELL = """
INSERT INTO fleet.compliance_history AS h (site, policy_id, cluster_name, day, cluster_id, state, changes, updated_at)
SELECT d.site, d.policy_id, d.cluster_name, d.day, e.cluster_id, e.state, e.changes, clock_timestamp()
  FROM (SELECT DISTINCT site, policy_id, cluster_name, (created_at AT TIME ZONE 'UTC')::date AS day
          FROM pg_temp.{stage} WHERE state IS NOT NULL AND policy_id <> '' AND cluster_name <> '') AS d
 CROSS JOIN LATERAL (
       SELECT max(o.state) AS state, count(*) FILTER (WHERE o.state <> o.before) AS changes,
              (array_agg(o.cluster_id ORDER BY o.place DESC))[1] AS cluster_id
         FROM (SELECT state, cluster_id, row_number() OVER story AS place, lag(state) OVER story AS before
                 FROM fleet.policy_event AS o
                WHERE o.site = d.site AND o.policy_id = d.policy_id AND o.cluster_name = d.cluster_name AND o.state IS NOT NULL
                  AND o.created_at >= (d.day::timestamp AT TIME ZONE 'UTC')
                  AND o.created_at < ((d.day + 1)::timestamp AT TIME ZONE 'UTC')
               WINDOW story AS (ORDER BY created_at, count, event_name)) AS o) AS e
 ORDER BY d.site, d.policy_id, d.cluster_name, d.day
ON CONFLICT (site, policy_id, cluster_name, day) DO UPDATE
   SET cluster_id = excluded.cluster_id, state = excluded.state, changes = excluded.changes, updated_at = excluded.updated_at
 WHERE (h.cluster_id, h.state, h.changes) IS DISTINCT FROM (excluded.cluster_id, excluded.state, excluded.changes)
RETURNING h.site
"""


def retell(conn: psycopg.Connection[Any]) -> Counter[str]:
    """After events were written, while they are staged: how many rows of the history were written."""
    return counted(conn, _RETELL.replace("{stage}", '"staged_policy-events"'), {})
