"""A ledger of all shops' orders, kept by what arrives from them: each message counts exactly once, whatever dies.

    python examples/listener.py --dsn "$DATABASE_URL" --messages 10

The listener gives its own connection: what is written there commits together with the listener's position.
"""

from __future__ import annotations

import argparse
import json
import threading
from typing import Any

import psycopg

from trunkline.core.config import LogConfig
from trunkline.core.logs import configure_logs
from trunkline.queues.kinds import Kind
from trunkline.queues.listener import Callbacks, QueueListener, QueueMessage

TABLE = """
CREATE TABLE IF NOT EXISTS ledger (
    shop text, id bigint, item text NOT NULL, state text NOT NULL, snapshot text, changes int NOT NULL DEFAULT 1,
    PRIMARY KEY (shop, id)
)
"""
PUT = """
INSERT INTO ledger AS l (shop, id, item, state, snapshot) VALUES (%(shop)s, %(id)s, %(item)s, %(state)s, %(snapshot)s)
ON CONFLICT (shop, id) DO UPDATE
   SET item = excluded.item, state = excluded.state, snapshot = excluded.snapshot, changes = l.changes + 1
"""
GONE = "DELETE FROM ledger WHERE shop = %s AND snapshot IS DISTINCT FROM %s"


class Ledger:
    """`enough` is set after so many orders, of snapshots too."""

    def __init__(self, messages: int) -> None:
        self.messages, self.taken, self.enough = messages, 0, threading.Event()

    def process_in(self, conn: psycopg.Connection[Any], batch: list[QueueMessage]) -> bool:
        """A batch is of one kind. True: done, go on. False, or an exception: it comes again, and nothing of it is written."""
        if batch[0].kind is Kind.LAST:
            return self._whole(conn, batch[0])
        for message in batch:
            order = json.loads(message.payload)
            conn.execute(PUT, {**order, "shop": message.source, "snapshot": message.request and str(message.request)})
        print(
            f"{len(batch)} orders from {batch[0].source} ({batch[0].kind.name}), the last is {batch[-1].message_id}", flush=True
        )
        self.taken += len(batch)
        if 0 < self.messages <= self.taken:
            self.enough.set()
        return True

    def _whole(self, conn: psycopg.Connection[Any], last: QueueMessage) -> bool:
        """What the shop no longer has was not in its snapshot."""
        gone = conn.execute(GONE, (last.source, str(last.request))).rowcount
        print(f"the snapshot from {last.source} is complete; {gone} orders are gone", flush=True)
        return True


def run(dsn: str, messages: int, seconds: float) -> int:
    with psycopg.connect(dsn) as conn:
        conn.execute(TABLE)
    ledger = Ledger(messages)
    told = Callbacks(
        on_new_site=lambda site: print(f"there are orders from {site}", flush=True),
        on_snapshot_start=lambda site, request, forced: print(f"a snapshot from {site} begins", flush=True),
    )
    with QueueListener(dsn, "orders", "ledger", process_in=ledger.process_in, callbacks=told, tries=5):
        done = ledger.enough.wait(seconds or None)
    with psycopg.connect(dsn) as conn:
        (orders,) = conn.execute("SELECT count(*) FROM ledger").fetchone() or (0,)
    print(f"the ledger has {orders} orders")
    return 0 if done else 1


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dsn", required=True, help="the database of the ledger, and of its site's queues")
    options.add_argument("--messages", type=int, default=0, help="end after so many; 0: never")
    options.add_argument("--seconds", type=float, default=0.0, help="end after so long; 0: never")
    given = options.parse_args()
    configure_logs(LogConfig())  # on standard error
    raise SystemExit(run(given.dsn, given.messages, given.seconds))
