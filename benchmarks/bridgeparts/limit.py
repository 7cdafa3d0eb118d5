"""What Postgres itself takes: the same rows into the same table by plain psycopg, COPY into a temporary table and MERGE."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from bridgeparts.payloads import Fleet, Row

LEAST_ROWS_PER_S = 20_000
"""A limit below this says that the machine was busy with something else; shares of it mean nothing."""
_STAGE = """
CREATE TEMPORARY TABLE stage (site text, policy_id text COLLATE "C", cluster_name text COLLATE "C", cluster_id text COLLATE "C",
                              state fleet.compliance_state) ON COMMIT DROP
"""
_MERGE = """
MERGE INTO fleet.compliance AS t USING stage AS s
   ON t.site = s.site AND t.policy_id = s.policy_id AND t.cluster_name = s.cluster_name
 WHEN MATCHED AND (t.state, t.cluster_id) IS DISTINCT FROM (s.state, s.cluster_id)
      THEN UPDATE SET state = s.state, cluster_id = s.cluster_id, updated_at = clock_timestamp()
 WHEN NOT MATCHED
      THEN INSERT (site, policy_id, cluster_name, cluster_id, state, updated_at)
           VALUES (s.site, s.policy_id, s.cluster_name, s.cluster_id, s.state, clock_timestamp())
"""


@dataclass(frozen=True)
class Limit:
    """Rows per second."""

    insert: float
    flip: float

    @property
    def counts(self) -> bool:
        return min(self.insert, self.flip) >= LEAST_ROWS_PER_S


def write(dsn: str, rows: Sequence[Row]) -> float:
    """Seconds of one transaction; all of the rows must have been written."""
    with psycopg.connect(dsn) as conn:
        begun = time.perf_counter()
        conn.execute(_STAGE)
        with conn.cursor() as cursor:
            with cursor.copy("COPY stage FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            written = cursor.execute(_MERGE).rowcount
        conn.commit()
        took = time.perf_counter() - begun
    assert written == len(rows), f"{written} of {len(rows)} rows written"
    return took


def measure(dsn: str, fleet: Fleet) -> Limit:
    """From empty, then what the flip changes."""
    rows, changed = fleet.flipped(0).table(), fleet.failing_rows()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("TRUNCATE fleet.compliance")
        conn.execute("CHECKPOINT")
    insert = len(rows) / write(dsn, rows)
    return Limit(insert, len(changed) / write(dsn, changed))
