"""A process that the test kills: `killed_process.py <role> <dsn> <number>`. Each works until it dies."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import Any

import psycopg

from trunkline.core.ids import START
from trunkline.db.lease import Grant, acquire, connect_fenced
from trunkline.db.pool import open_pool
from trunkline.queues.callbacks import Batch
from trunkline.queues.client import QueueClient
from trunkline.queues.listener import Pace, QueueListener
from trunkline.queues.log import PostgresLog
from trunkline.queues.receive import PostgresSink
from trunkline.queues.stamper import Stamper, random_mark

BATCH = 7


def write(dsn: str, life: int) -> None:
    """Application rows and messages of the same content, in the same transactions."""
    app, pause = QueueClient("app"), threading.Event()
    with psycopg.connect(dsn) as conn:
        for transaction in count():
            values = [f"{life} {transaction} {n}" for n in range(BATCH)]
            conn.execute("INSERT INTO account (value) SELECT unnest(%s::text[])", (values,))
            app.transmit(conn, values[0].encode(), ["hub"])
            app.transmit_many(conn, [v.encode() for v in values[1:]], ["hub"])
            conn.commit()
            pause.wait(0.002)  # so that those behind it keep up


def _grant(dsn: str, name: str) -> Grant:
    with psycopg.connect(dsn) as conn:
        conn.execute("UPDATE site.lease SET expires_at = '-infinity' WHERE name = %s", (name,))
        grant = acquire(conn, name, 60)
    assert grant is not None
    return grant


def stamp(dsn: str, _: int) -> None:
    with closing(connect_fenced(dsn)) as conn:
        Stamper(conn, _grant(dsn, "stamper"), random_mark).run(threading.Event(), lambda head: None)


def carry(dsn: str, _: int) -> None:
    """The trunk without a network: reads the log after what the sink has, and appends it there."""
    with closing(open_pool(dsn, 2, "carry")) as pool:
        log, sink, pause = PostgresLog(pool), PostgresSink(pool, _grant(dsn, "sink")), threading.Event()
        sink.use_log("leaf", "app", log.log_id, START)
        while True:
            at = sink.applied("leaf").clients.get("app", START)
            chunk = log.read(at.seq, 100, {"hub"})
            if chunk.entries:
                sink.append("leaf", log.log_id, chunk.entries, chunk.upto, ["app"])
            else:
                pause.wait(0.005)


def _into(table: str, conn: psycopg.Connection[Any], batch: Batch) -> bool:
    rows = [(m.message_id, m.payload.decode()) for m in batch]
    conn.cursor().executemany(f"INSERT INTO {table} (message, value) VALUES (%s, %s)".encode(), rows)
    return True


def keep(dsn: str, _: int) -> None:
    """Writes what it hears into a table, in the transaction that moves its position: exactly once."""
    QueueListener(
        dsn, "app", "keeper", process_in=lambda conn, batch: _into("kept", conn, batch), pace=Pace(batch=100, idle=0.02)
    ).run()


def tell(dsn: str, _: int) -> None:
    """Writes what it hears into a table by itself, before its position moves: at least once."""
    with psycopg.connect(dsn, autocommit=True) as own:
        QueueListener(dsn, "app", "teller", lambda batch: _into("told", own, batch), pace=Pace(idle=0.02)).run()


ROLES: dict[str, Callable[[str, int], None]] = {"write": write, "stamp": stamp, "carry": carry, "keep": keep, "tell": tell}

if __name__ == "__main__":
    ROLES[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
