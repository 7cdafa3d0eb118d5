"""The one way to a pool of connections."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg_pool import ConnectionPool

from trunkline.db.away import attentive


def open_pool(dsn: str, size: int, name: str, checked: bool = False) -> ConnectionPool[psycopg.Connection[Any]]:
    """`checked` asks each connection whether it lives before it is given out: for callers who do not try again."""
    pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
        attentive(dsn),
        min_size=1,
        max_size=size,
        name=name,
        open=False,
        check=ConnectionPool.check_connection if checked else None,
        kwargs={
            "options": "-c idle_in_transaction_session_timeout=3000 -c jit=off",
            "application_name": f"trunkline-{name}",
        },
    )
    pool.open()
    return pool
