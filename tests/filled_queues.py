"""A site whose queues have something in them, put there by the real parts: hub sends policies, and takes orders from paris."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from typing import Any

import psycopg

from trunkline.core.ids import Position
from trunkline.db.lease import acquire, connect_fenced
from trunkline.db.pool import open_pool
from trunkline.queues.acks import acknowledge
from trunkline.queues.client import QueueClient
from trunkline.queues.consumers import advance, attach, move_tails, positions
from trunkline.queues.receive import PostgresSink
from trunkline.queues.registry import remember_site
from trunkline.queues.sessionstatus import SessionStatus, SyncStatus, SyncType
from trunkline.queues.stamper import Stamper, random_mark
from trunkline.queues.statuses import write_statuses
from trunkline.trunk.log import Entry

QUEUE = "LRQ_Recv_orders_paris"
_numbers = count(1)
LOG_ID = "6f9d3a52-5d0c-4b5b-9d0e-1f0c6d1d5a11"


def session(**changed: Any) -> SessionStatus:
    told: dict[str, Any] = {
        "role": "source", "remote": "paris", "client": "policy", "connection": "REPLICATING", "state": "IN_LOG_ENTRY_SYNC",
        "type": SyncType.LOG_ENTRY, "status": SyncStatus.ONGOING, "sent": 5, "acknowledged": 3, "applied": 3, "remaining": 2,
    }  # fmt: skip
    return SessionStatus(**told | changed)


def do(dsn: str, statement: str, *args: Any) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        done = conn.execute(statement.encode(), args)
        return done.fetchall() if done.description else []


@contextmanager
def copy_of(dsn: str) -> Iterator[str]:
    """A database like that one, which nobody may be using."""
    server = dsn.replace(f"dbname={_name(dsn)}", "dbname=postgres")
    name = f"{_name(dsn)}_copy_{next(_numbers)}"
    do(server, f"CREATE DATABASE {name} TEMPLATE {_name(dsn)}")
    try:
        yield dsn.replace(f"dbname={_name(dsn)}", f"dbname={name}")
    finally:
        do(server, f"DROP DATABASE {name} WITH (FORCE)")


def _name(dsn: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])


def fill(dsn: str) -> str:
    """Five entries to paris and one for all; four orders from paris, of which the consumer `ledger` has read two."""
    with psycopg.connect(dsn) as conn:
        for site in ("hub", "paris", "lyon"):
            remember_site(conn, site)
    with psycopg.connect(dsn, autocommit=True) as conn:
        for n in range(5):
            with conn.transaction():
                QueueClient("policy").transmit(conn, f"policy {n}".encode(), ["paris"], {"kind": "policy"})
        QueueClient("news").transmit(conn, "café".encode(), ["*"])
    with _leading(dsn) as (stamper, sink):
        stamper.round()
        _take_orders(sink)
    with psycopg.connect(dsn) as conn:
        acknowledge(conn, "paris", "policy", 1, Position(3, 1))
        attach(conn, "orders", "ledger")
        (place,) = positions(conn, "orders", "ledger")
        advance(conn, "orders", "ledger", place.queue, 2, 0)
        move_tails(conn)
        write_statuses(conn, [session(), session(role="sink", client="orders", state="log", remaining=0, consistent=True)])
    return dsn


@contextmanager
def _leading(dsn: str) -> Iterator[tuple[Stamper, PostgresSink]]:
    with psycopg.connect(dsn) as conn:
        grant = acquire(conn, "leader", 60)
    assert grant is not None
    with closing(connect_fenced(dsn)) as conn, closing(open_pool(dsn, 2, "test")) as pool:
        yield Stamper(conn, grant, random_mark), PostgresSink(pool, grant)


def _take_orders(sink: PostgresSink) -> None:
    orders = [Entry(seq, "orders", (), {"kind": "order"}, f'{{"order":{seq}}}'.encode()) for seq in (11, 12, 13)]
    orders.append(Entry(14, "orders", (), {}, b"\x00\xff" * 300))
    sink.append("paris", LOG_ID, [], Position(10, 1), ["orders"])
    sink.use_log("paris", "orders", LOG_ID, Position(10, 1))
    sink.applied("paris")
    sink.append("paris", LOG_ID, orders, Position(14, 2), ["orders"])
