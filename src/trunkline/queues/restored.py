"""A database that was restored into a younger server: its rows name transactions that have not been there yet.

Transactions to come would take the same numbers, and the stamper would take two for one. So the log begins anew, under
another name and empty; destinations see another log and get a snapshot (H11).
"""

from __future__ import annotations

from typing import Any

import psycopg
import structlog

from trunkline.db.lease import Grant, commit_fenced

log = structlog.get_logger()

# Whatever is visible here was written before the snapshot's xmax; also what was never stamped.
_FROM_THE_FUTURE = """
SELECT (SELECT max(xid) FROM queues.send_log) >= pg_snapshot_xmax(pg_current_snapshot())::text::xid8
"""
_BEGIN_ANEW = """
TRUNCATE queues.send_log, queues.ticket, queues.stamp, queues.client;
TRUNCATE queues.trimmed, queues.acknowledged, queues.needs_snapshot, queues.send_snapshot;
SELECT setval('queues.ticket_number', 1, false);
UPDATE queues.stamper SET log_id = gen_random_uuid(), lowest = 0, lowest_mark = 0, slot_since = now();
UPDATE queues.request SET state = 'failed', error = 'the log began anew', updated_at = now()
 WHERE state IN ('ready', 'providing', 'complete')
"""


def begin_anew_if_restored(conn: psycopg.Connection[Any], grant: Grant) -> bool:
    """To be called before anybody reads the log's id; true when it did."""
    row = conn.execute(_FROM_THE_FUTURE).fetchone()
    if not row or not row[0]:
        conn.rollback()
        return False
    conn.execute(_BEGIN_ANEW)
    commit_fenced(conn, grant)
    log.error(
        "the log begins anew: its rows are of a server that had seen more transactions than this one; "
        "every destination gets a snapshot, unsent entries are lost"
    )
    return True
