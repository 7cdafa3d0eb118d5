"""Are the hub's rows equal to every site's own rows, did every policy reach its sites once and in order, and did every numbered
event come out of its route once and in order, by an edition that is not older than that of the event before?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from trunkline.cli.demo.fleet import HUB
from trunkline.cli.demo.live import READINGS
from trunkline.cli.demo.orders import ORDERS

_ROUTED = """
SELECT CASE WHEN edition >= lag(edition, 1, 0) OVER (ORDER BY nth) THEN number END
  FROM app.routed WHERE site = %s AND route = '{}' ORDER BY nth
"""
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
    READINGS: ("SELECT number FROM app.reading ORDER BY 1", _ROUTED.format(READINGS)),
}
_ORDERS = ("SELECT number FROM app.ordered ORDER BY 1", _ROUTED.format(ORDERS))
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


def compare(dsns: Mapping[str, str], policy_sites: tuple[str, ...], orders: bool = False) -> list[Comparison]:
    with psycopg.connect(dsns[HUB]) as hub:
        found = [_compared(HUB, ORDERS, hub, hub, _ORDERS)] if orders else []
        policies = _rows(hub, _POLICIES_SENT)
        for site, dsn in dsns.items():
            if site == HUB:
                continue
            with psycopg.connect(dsn) as conn:
                found += [_compared(site, what, conn, hub, queries) for what, queries in COMPARED.items()]
                if site in policy_sites:
                    got = _rows(conn, _POLICIES_RECEIVED, HUB)
                    found.append(Comparison(site, "policies", len(got), len(policies), got == policies))
        return found


def _compared(
    site: str, what: str, conn: psycopg.Connection[Any], hub: psycopg.Connection[Any], queries: tuple[str, str]
) -> Comparison:
    mine, hubs = _rows(conn, queries[0]), _rows(hub, queries[1], site)
    return Comparison(site, what, len(mine), len(hubs), mine == hubs)


def _rows(conn: psycopg.Connection[Any], query: str, *parameters: str) -> list[tuple[Any, ...]]:
    return conn.execute(query.encode(), parameters).fetchall()
