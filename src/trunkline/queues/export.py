"""A round's snapshot, held open for whoever reads the state that belongs to the log's head (H19).

A snapshot can be taken up only while its owner's transaction lives, and the round's ends at once. So a second connection
takes it up within the round, gives it a name of its own, and keeps it until it is closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from trunkline.core.ids import Position

# Only a request that is still wanted: one that changed since the round began makes the round begin anew.
READY = """
UPDATE queues.request
   SET state = 'ready', base = %(base)s, base_mark = %(mark)s, snapshot = %(snapshot)s, incarnation = %(incarnation)s,
       updated_at = clock_timestamp()
 WHERE id = ANY(%(requests)s) AND state = 'wanted'
RETURNING id
"""


@dataclass(frozen=True)
class Exported:
    """Everything up to `base` is in the snapshot and nothing after it. It lasts until `close`."""

    snapshot: str
    base: Position
    requests: tuple[UUID, ...]
    holder: psycopg.Connection[Any]

    def close(self) -> None:
        self.holder.close()


def hold_snapshot(conn: psycopg.Connection[Any]) -> tuple[str, psycopg.Connection[Any]]:
    """Of the open transaction of `conn`: the name under which others take it up, and the connection that keeps it."""
    holder = psycopg.connect(
        conn.info.dsn, password=conn.info.password or None, autocommit=True, application_name="trunkline-snapshot"
    )
    try:
        holder.execute("SET idle_in_transaction_session_timeout = 0")
        holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        holder.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(_name(conn))))
        return _name(holder), holder
    except BaseException:
        holder.close()
        raise


def _name(conn: psycopg.Connection[Any]) -> str:
    row = conn.execute("SELECT pg_export_snapshot()").fetchone()
    assert row is not None
    return str(row[0])
