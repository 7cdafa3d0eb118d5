"""One site's database as these tests use it; everything opened here is closed at the end of the test."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool

from trunkline.db.lease import Grant, acquire, connect_fenced
from trunkline.db.pool import open_pool
from trunkline.queues.client import QueueClient
from trunkline.queues.log import PostgresLog
from trunkline.queues.stamper import Stamper, random_mark
from trunkline.trunk.log import Entry

LEASE = "leader"
APP = QueueClient("app")


@dataclass
class Site:
    dsn: str
    stack: ExitStack

    def connect(self, autocommit: bool = False, role: str | None = None) -> psycopg.Connection[Any]:
        """As `role`, of those that `make_role` made; otherwise as the owner."""
        dsn = self.dsn if role is None else make_conninfo(self.dsn, user=role, password=role)
        return self.stack.enter_context(closing(psycopg.connect(dsn, autocommit=autocommit)))

    @cached_property
    def own(self) -> psycopg.Connection[Any]:
        """One connection for the whole test, autocommit."""
        return self.connect(autocommit=True)

    def make_role(self) -> str:
        """A role that may connect, and nothing more; roles are the server's, so it goes with the test."""
        name = f"r{secrets.token_hex(8)}"
        self.do(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
        self.stack.callback(self.do, f"DROP OWNED BY {name}; DROP ROLE {name}")
        return name

    def pool(self) -> ConnectionPool[psycopg.Connection[Any]]:
        return self.stack.enter_context(closing(open_pool(self.dsn, 2, "test")))

    def ask(self, query: str, args: Sequence[Any] = ()) -> list[Any]:
        """The rows, or for one column its values."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            rows = conn.execute(query.encode(), args).fetchall()
        return [row[0] if len(row) == 1 else row for row in rows]

    def do(self, statement: str, args: Sequence[Any] = ()) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute(statement.encode(), args)

    def acquire(self, seconds: float = 60) -> Grant:
        with psycopg.connect(self.dsn) as conn:
            grant = acquire(conn, LEASE, seconds)
        assert grant is not None
        return grant

    def take_over(self) -> Grant:
        """Another holder's grant, after the lease lapsed."""
        self.do("UPDATE site.lease SET expires_at = '-infinity'")
        return self.acquire()

    def stamper(self, grant: Grant | None = None, mark: Callable[[], int] = random_mark) -> Stamper:
        conn = self.stack.enter_context(closing(connect_fenced(self.dsn)))
        return Stamper(conn, grant or self.acquire(), mark)

    def send(self, *payloads: bytes, to: Sequence[str] = ("hub",)) -> None:
        """One committed transaction."""
        with psycopg.connect(self.dsn) as conn:
            for payload in payloads:
                APP.transmit(conn, payload, to)

    def open_transaction(self, *payloads: bytes) -> psycopg.Connection[Any]:
        conn = self.connect()
        for payload in payloads:
            APP.transmit(conn, payload, ["hub"])
        return conn

    def drawn(self, *payloads: bytes) -> psycopg.Connection[Any]:
        """A transaction that has its ticket and has not committed."""
        conn = self.open_transaction(*payloads)
        conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
        return conn

    def logged(self) -> list[bytes]:
        """Payloads of the whole log, in its order; proves on the way that seqs are dense."""
        log = PostgresLog(self.pool())
        entries: list[Entry] = []
        while True:
            after = entries[-1].seq if entries else 0
            chunk = log.read(after, 1000, {"hub"})
            if not chunk.entries:
                break
            entries += [message for e in chunk.entries for message in e.apart()]
        assert [e.seq for e in entries] == list(range(1, log.head().seq + 1))
        return [e.payload for e in entries]

    def holes(self) -> list[int]:
        """As the last round left them."""
        rows = self.ask("SELECT holes FROM queues.stamp ORDER BY last_seq DESC LIMIT 1")
        return list(rows[0]) if rows else []
