"""The one way to a pool of connections."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg_pool import ConnectionPool


def open_pool(dsn: str, size: int, name: str) -> ConnectionPool[psycopg.Connection[Any]]:
    pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
        dsn,
        min_size=1,
        max_size=size,
        name=name,
        open=False,
        kwargs={"options": "-c idle_in_transaction_session_timeout=3000 -c jit=off -c application_name=trunkline-" + name},
    )
    pool.open()
    return pool
