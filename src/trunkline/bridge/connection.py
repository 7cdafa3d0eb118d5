"""The connection that bundles are applied over, by a DB worker or by a task of Spark.

Every statement of an apply says of which sites it is, and finds their rows by an index. The planner would rather read a whole
table of which it knows nothing yet: of five thousand sites that were just brought, once for every wave.
"""

from __future__ import annotations

from typing import Any

import psycopg

from trunkline.db.lease import connect_fenced


def connect_worker(dsn: str, statement_seconds: float, name: str = "trunkline") -> psycopg.Connection[Any]:
    conn = connect_fenced(dsn, name)
    conn.execute(f"SET statement_timeout = {round(statement_seconds * 1000)}")
    conn.execute("SET enable_seqscan = off")
    conn.commit()
    return conn
