"""Sites as they are in production, on one machine: a `trunkline node` and a Postgres server each, links over TLS, fsync on."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from harness import Result
from nodes import Links, Nodes
from queueparts.pace import Pace
from trunkline.db.embedded import EmbeddedPostgres
from trunkline.queues.consumers import advance, attach
from trunkline.queues.registry import remember_site

CLIENT, CONSUMER = "load", "bench"
# What a site gives a server that takes this much; everything else is PostgreSQL's default.
SETTINGS = {"shared_buffers": "512MB", "wal_buffers": "64MB"}
_SHOWN = ("fsync", "synchronous_commit", "full_page_writes", "wal_level", "max_wal_size", *SETTINGS)
_POLL_SECONDS, _ADVANCE_SECONDS = 0.02, 0.25
_HEAD = "SELECT id, head FROM queues.queue WHERE client = %s AND remote = %s"
_STORED = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname IN ('queues', 'trunkline') AND c.relkind = 'r'
"""


@dataclass
class Sites:
    nodes: Nodes
    servers: Mapping[str, EmbeddedPostgres]

    def pids(self) -> dict[str, int]:
        found = {f"{site}_postgres": server.pid for site, server in self.servers.items()}
        found |= {f"{site}_node": child.process.pid for site, child in self.nodes.children.items() if child.process}
        return {name: pid for name, pid in found.items() if pid}

    def know(self, site: str, others: Sequence[str]) -> None:
        with psycopg.connect(self.nodes.dsn[site]) as conn:
            for other in others:
                remember_site(conn, other)

    def stored_bytes(self, site: str) -> int:
        """Of all tables of the queues, with their indexes; the WAL is apart."""
        with psycopg.connect(self.nodes.dsn[site]) as conn:
            return _one(conn, _STORED)

    def lowest(self, site: str) -> int:
        with psycopg.connect(self.nodes.dsn[site]) as conn:
            return _one(conn, "SELECT lowest FROM queues.stamper")

    def head(self, site: str) -> int:
        with psycopg.connect(self.nodes.dsn[site]) as conn:
            return _one(conn, "SELECT coalesce(max(last_seq), 0) FROM queues.stamp")

    def settings(self) -> list[Result]:
        """So that nobody has to trust that fsync is on; numbers only, on is 1."""
        with psycopg.connect(next(iter(self.servers.values())).dsn) as conn:
            shown = {name: str(conn.execute(f"SHOW {name}").fetchone()[0]) for name in _SHOWN}  # type: ignore[index]
        assert shown["fsync"] == shown["synchronous_commit"] == "on"
        return [_setting(name, word) for name, word in shown.items()]


def _one(conn: psycopg.Connection[Any], statement: str) -> int:
    row = conn.execute(statement).fetchone()
    assert row is not None
    return int(row[0])


def _setting(name: str, word: str) -> Result:
    digits = "".join(c for c in word if c.isdigit())
    if digits:
        return Result(f"postgres_{name}", int(digits), word.removeprefix(digits) or "setting")
    return Result(f"postgres_{name}", int(word != "off"), word)


@contextmanager
def running(links: Links, queues: Mapping[str, Any] | None = None) -> Iterator[Sites]:
    names = sorted({site for pair in links for site in pair})
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {site: stack.enter_context(EmbeddedPostgres(folder / f"postgres-{site}", SETTINGS)) for site in names}
        nodes = Nodes(folder / "nodes", servers, links, "queues", {"queues": dict(queues or {})})
        yield Sites(stack.enter_context(nodes.running()), servers)


class Watcher:
    """The receiving end: sees how far the queue came, and is the consumer that passes what arrived, so that it is let go."""

    def __init__(self, dsn: str, remote: str, pace: Pace) -> None:
        self._dsn, self._remote, self._pace = dsn, remote, pace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.failure: BaseException | None = None
        with psycopg.connect(dsn) as conn:
            attach(conn, CLIENT, CONSUMER)
            found = conn.execute(_HEAD, (CLIENT, remote)).fetchone()
        self._before = found[1] if found else 0

    def _watch(self) -> None:
        try:
            with psycopg.connect(self._dsn) as conn:
                self._follow(conn)
        except BaseException as error:
            self.failure = error

    def _follow(self, conn: psycopg.Connection[Any]) -> None:
        moved_at, passed = 0.0, -1
        while not self._stop.wait(_POLL_SECONDS):
            found = conn.execute(_HEAD, (CLIENT, self._remote)).fetchone()
            conn.commit()
            if found is None:
                continue
            queue, head = found
            self._pace.arrived.value = head - self._before
            if head > passed and time.monotonic() - moved_at > _ADVANCE_SECONDS:
                advance(conn, CLIENT, CONSUMER, queue, head)
                conn.commit()
                moved_at, passed = time.monotonic(), head

    @contextmanager
    def running(self) -> Iterator[Watcher]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()
        if self.failure is not None:
            raise self.failure
