"""Are the hub's rows equal to every site's own rows, and did every policy reach its sites once and in order?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from trunkline.cli.demo.fleet import HUB

# what → (the site's own rows, the hub's rows of that site)
COMPARED = {
    "clusters": (
        "SELECT name, health, revision, changed_at FROM app.cluster ORDER BY 1",
        "SELECT name, health, revision, changed_at FROM status.cluster WHERE site = %s ORDER BY 1",
    ),
    "compliance": (
        "SELECT cluster, policy, state, changed_at FROM app.compliance ORDER BY 1, 2",
        "SELECT cluster, policy, state, changed_at FROM status.compliance WHERE site = %s ORDER BY 1, 2",
    ),
    "events": (
        "SELECT id, kind, subject, severity, at FROM app.event ORDER BY 1",
        "SELECT id, kind, subject, severity, at FROM status.event WHERE site = %s ORDER BY 1",
    ),
}
_POLICIES_SENT = "SELECT number, body FROM app.policy ORDER BY number"
_POLICIES_RECEIVED = """
SELECT (convert_from(payload, 'UTF8')::jsonb ->> 'number')::bigint, convert_from(payload, 'UTF8')::jsonb ->> 'policy'
  FROM queues.receive JOIN queues.queue ON queue.id = receive.queue
 WHERE client = 'policy' AND remote = %s ORDER BY position
"""


@dataclass(frozen=True)
class Comparison:
    site: str
    what: str
    at_site: int
    at_hub: int
    equal: bool


def compare(dsns: Mapping[str, str], policy_sites: tuple[str, ...]) -> list[Comparison]:
    with psycopg.connect(dsns[HUB]) as hub:
        found = []
        policies = _rows(hub, _POLICIES_SENT)
        for site, dsn in dsns.items():
            if site == HUB:
                continue
            with psycopg.connect(dsn) as conn:
                for what, (own, theirs) in COMPARED.items():
                    mine, hubs = _rows(conn, own), _rows(hub, theirs, site)
                    found.append(Comparison(site, what, len(mine), len(hubs), mine == hubs))
                if site in policy_sites:
                    got = _rows(conn, _POLICIES_RECEIVED, HUB)
                    found.append(Comparison(site, "policies", len(got), len(policies), got == policies))
        return found


def _rows(conn: psycopg.Connection[Any], query: str, *parameters: str) -> list[tuple[Any, ...]]:
    return conn.execute(query.encode(), parameters).fetchall()
