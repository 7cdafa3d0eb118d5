"""Connections to the site's database, for whoever looks into it: queues, bridge, the registry of sites."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool

from trunkline.core.errors import Retryable
from trunkline.db.pool import open_pool
from trunkline.queues.registry import remember_site

CONNECTION_SECONDS = 5.0  # for a free connection; the API's own limit on a request is longer
CONNECTIONS = 4


class Connections:
    """Its methods block, and may be called from any thread."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._pool: ConnectionPool[psycopg.Connection[Any]] | None = None
        self._open = False

    def open(self) -> None:
        self._pool = open_pool(self._dsn, CONNECTIONS, "views", checked=True)
        self._open = True

    def refuse(self) -> None:
        self._open = False

    def close(self) -> None:
        self._open = False
        if self._pool is not None:
            self._pool.close()

    def connection(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        if self._pool is None or not self._open:
            raise Retryable("the site's database", "this node starts or stops", "try again, or at another node")
        return self._pool.connection(CONNECTION_SECONDS)

    def remember(self, sites: list[str]) -> None:
        assert self._pool is not None
        with self._pool.connection(CONNECTION_SECONDS) as conn:
            for site in sites:
                remember_site(conn, site)
