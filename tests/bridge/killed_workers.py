"""A process of DB workers that is meant to be killed: it waits for the lease and applies until it has nothing left to do.

Its arguments: the dsn. It says "applying" once its workers run.
"""

from __future__ import annotations

import sys
import threading

import psycopg
from bridge_apply import TYPES

from trunkline.bridge.workers import Workers
from trunkline.core.clock import SystemClock
from trunkline.core.config import BridgeConfig
from trunkline.db.lease import acquire


def main(dsn: str) -> None:
    ended = threading.Event()
    with psycopg.connect(dsn) as conn:
        while (grant := acquire(conn, "bridge", 60.0)) is None:
            ended.wait(0.02)
        workers = Workers(dsn, grant, TYPES, BridgeConfig(workers=3), SystemClock(), ended.set)
        workers.start()
        sys.stdout.write("applying\n")
        sys.stdout.flush()
        ended.wait()


if __name__ == "__main__":
    main(sys.argv[1])
