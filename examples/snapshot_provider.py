"""The shop's orders as a snapshot, for a site that is new, was restored, or was away for too long.

    python examples/snapshot_provider.py --dsn "$DATABASE_URL" --snapshots 1

It is asked when one is needed. What it reads is the table at one instant of the log: everything that the log brings after the
snapshot is newer than the snapshot.
"""

from __future__ import annotations

import argparse
import json
import threading

from trunkline.core.config import LogConfig
from trunkline.core.logs import configure_logs
from trunkline.queues.provider import SnapshotContext, SnapshotProvider

ALL = "SELECT id, item, state FROM shop_order ORDER BY id"


class Orders:
    """Provides as often as it is asked; `enough` is set after so many times."""

    def __init__(self, snapshots: int) -> None:
        self.left, self.enough = snapshots, threading.Event()

    def provide(self, context: SnapshotContext) -> None:
        records = 0
        with context.connection.cursor("orders") as cursor:  # on the server: the table may be larger than our memory
            for id_, item, state in cursor.execute(ALL):
                order = {"id": id_, "item": item, "state": state}
                context.transmit(json.dumps(order).encode(), {"kind": "order"})
                records += 1
        print(f"provided {records} orders for {', '.join(context.destinations)} ({context.reason})", flush=True)
        self.left -= 1
        if self.left == 0:
            self.enough.set()


def run(dsn: str, snapshots: int, seconds: float) -> int:
    orders = Orders(snapshots)
    with SnapshotProvider(dsn, "orders", orders.provide, owner="shop"):
        done = orders.enough.wait(seconds or None)
    print("done" if done else "nobody asked for more")
    return 0 if done else 1


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dsn", required=True, help="the database of the shop, and of its site's queues")
    options.add_argument("--snapshots", type=int, default=0, help="end after so many; 0: never")
    options.add_argument("--seconds", type=float, default=0.0, help="end after so long; 0: never")
    given = options.parse_args()
    configure_logs(LogConfig())  # on standard error
    raise SystemExit(run(given.dsn, given.snapshots, given.seconds))
