"""Counters per site, kept in the transactions that they count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

import psycopg

_ADD = """
INSERT INTO bridge.counter AS c
       (site, received, conflated, rejected, stale, applied, quarantined, rows_received, rows_written)
SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
                     %s::bigint[], %s::bigint[]) AS n (site)
ORDER BY n.site
ON CONFLICT (site) DO UPDATE
   SET received = c.received + excluded.received, conflated = c.conflated + excluded.conflated,
       rejected = c.rejected + excluded.rejected, stale = c.stale + excluded.stale,
       applied = c.applied + excluded.applied, quarantined = c.quarantined + excluded.quarantined,
       rows_received = c.rows_received + excluded.rows_received, rows_written = c.rows_written + excluded.rows_written
"""


@dataclass(frozen=True)
class Tally:
    received: int = 0
    conflated: int = 0
    rejected: int = 0
    stale: int = 0
    applied: int = 0
    quarantined: int = 0
    rows_received: int = 0
    rows_written: int = 0


def count(conn: psycopg.Connection[Any], tallies: Mapping[str, Tally]) -> None:
    """Adds to the sites' counters. Always after the inbox rows of the transaction: one order of locks for everybody."""
    if tallies:
        columns = zip(*(astuple(tally) for tally in tallies.values()), strict=True)
        conn.execute(_ADD, (list(tallies), *map(list, columns)))
