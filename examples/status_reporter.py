"""A site that keeps its clusters in a table of its own, and reports them to the hub's status bridge.

    python examples/status_reporter.py --dsn "$DATABASE_URL" --site berlin --hub hub --changes 5

Each change of the table and the report of it are one transaction: the hub never hears of a change that was not made, and of
each that was made. While it runs it also answers the hub when that asks for all there is.
"""

from __future__ import annotations

import argparse
import threading
from typing import Any

import psycopg

from trunkline.bridge.demotypes import DEMO_TYPES
from trunkline.bridge.reporter_queue import StatusReporter
from trunkline.bridge.types import Types
from trunkline.core.config import LogConfig
from trunkline.core.logs import configure_logs
from trunkline.db.migrate import migrate

TABLE = """
CREATE TABLE IF NOT EXISTS my_cluster (
    name text PRIMARY KEY, health text NOT NULL, revision bigint NOT NULL DEFAULT 1,
    changed_at timestamptz NOT NULL DEFAULT now()
)
"""
PUT = """
INSERT INTO my_cluster (name, health) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET health = excluded.health, revision = my_cluster.revision + 1, changed_at = now()
 WHERE my_cluster.health <> excluded.health
"""


def clusters(conn: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    """All rows of the type: what the hub will hold of this site."""
    rows = conn.execute("SELECT name, health, revision, changed_at FROM my_cluster ORDER BY name").fetchall()
    return [{"name": n, "health": h, "revision": r, "changed_at": at.isoformat()} for n, h, r, at in rows]


def change(conn: psycopg.Connection[Any], reporter: StatusReporter, number: int) -> None:
    name, health = f"cluster-{number % 3 + 1}", "ok" if number % 4 else "degraded"
    with conn.transaction():
        conn.execute(PUT, (name, health))
        version = reporter.report(conn, "clusters")
        print(f"{name} is {health}: " + (f"reported as {version}" if version else "nothing new to report"), flush=True)


def run(dsn: str, site: str, hub: str, changes: int, seconds: float) -> None:
    migrate(dsn, "queues", "bridge")
    reporter = StatusReporter(site, hub, Types(DEMO_TYPES), {"clusters": clusters})
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(TABLE)
        print(f"{site} reports to {hub}, incarnation {reporter.start(conn)}", flush=True)
        for number in range(changes):
            change(conn, reporter, number)
    with reporter.serving(dsn):
        threading.Event().wait(seconds)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dsn", required=True, help="the database of the site, and of its queues")
    options.add_argument("--site", required=True, help="the site's name")
    options.add_argument("--hub", required=True, help="the name of the hub's site")
    options.add_argument("--changes", type=int, default=5)
    options.add_argument("--seconds", type=float, default=0.0, help="how long to answer requests afterwards")
    given = options.parse_args()
    configure_logs(LogConfig())  # on standard error
    run(given.dsn, given.site, given.hub, given.changes, given.seconds)
