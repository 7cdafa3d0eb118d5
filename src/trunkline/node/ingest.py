"""How an event comes in: the site's routes say what it becomes, and the send queue makes that durable."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool

from trunkline.core.config import ProcessConfig
from trunkline.core.errors import Retryable
from trunkline.db.pool import open_pool
from trunkline.queues.client import QueueClient
from trunkline.queues.registry import remember_site
from trunkline.routes.event import Event
from trunkline.routes.index import RouteTable
from trunkline.routes.model import load_routes

CONNECTION_SECONDS = 5.0  # for a free connection; the API's own limit on a request is longer


class Ingest:
    """Its methods block, and may be called from any thread."""

    def __init__(self, config: ProcessConfig) -> None:
        self._dsn = config.database.reveal()
        self._table = RouteTable(load_routes(config.routes) if config.routes else (), {"site": config.site})
        self._pool: ConnectionPool[psycopg.Connection[Any]] | None = None
        self._open = False

    def open(self) -> None:
        self._pool = open_pool(self._dsn, 4, "ingest", checked=True)
        self._open = True

    def refuse(self) -> None:
        self._open = False

    def close(self) -> None:
        self._open = False
        if self._pool is not None:
            self._pool.close()

    def inject(self, payload: Any, metadata: dict[str, str]) -> list[str]:
        """Routes one event; what it sends is durable in the send queue when this returns."""
        outgoing = self._table.route([Event(payload=payload, metadata=metadata)])
        if not outgoing:
            return []
        try:
            with self._ready("event").connection(CONNECTION_SECONDS) as conn:
                for message in outgoing:
                    QueueClient(message.client).transmit(conn, message.payload, message.destinations, message.headers)
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise Retryable("event", f"the site's database does not answer: {error}", "send it again") from error
        return [message.route_id for message in outgoing]

    def connection(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """For a look at the queues."""
        return self._ready("queues").connection(CONNECTION_SECONDS)

    def remember(self, sites: list[str]) -> None:
        assert self._pool is not None
        with self._pool.connection(CONNECTION_SECONDS) as conn:
            for site in sites:
                remember_site(conn, site)

    def _ready(self, what: str) -> ConnectionPool[psycopg.Connection[Any]]:
        if self._pool is None or not self._open:
            raise Retryable(what, "this node starts or stops", "try again, or at another node")
        return self._pool
