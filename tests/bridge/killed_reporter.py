"""Changes a cluster and reports it, as fast as it can, until it is killed."""

from __future__ import annotations

import itertools
import os
import sys
from typing import Any

import psycopg

from trunkline.bridge.reporter_queue import StatusReporter
from trunkline.bridge.shipped import SHIPPED

PUT = "INSERT INTO cluster VALUES ('killed', %s) ON CONFLICT (name) DO UPDATE SET health = excluded.health"


def clusters(conn: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    rows = conn.execute("SELECT name, health FROM cluster").fetchall()
    return [{"name": name, "health": health, "revision": 1, "changed_at": "2026-01-01T00:00:00Z"} for name, health in rows]


if __name__ == "__main__":
    reporter = StatusReporter("berlin", "hub", SHIPPED, {"clusters": clusters})
    with psycopg.connect(sys.argv[1], autocommit=True) as conn:
        reporter.start(conn)
        for number in itertools.count():
            with conn.transaction():
                conn.execute(PUT, (f"{os.getpid()}-{number}",))
                reporter.report(conn, "clusters")
            os.write(1, b"sent\n")
