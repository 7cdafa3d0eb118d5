"""A fleet of real `trunkline node` processes, one per site, joined by links as asked: for benchmarks that count."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import yaml
from psycopg import sql

from trunkline.cli.demo.processes import Child, stop_all
from trunkline.core.ids import ALL_SITES, NodeId
from trunkline.db.embedded import EmbeddedPostgres, free_port
from trunkline.db.migrate import migrate
from trunkline.net.authority import issue, make_ca
from trunkline.queues.client import QueueClient

NODE, CLIENT = "node-1", "load"
MEET = b"how do you do"
PATIENCE_SECONDS = 120.0
Links = Sequence[tuple[str, str]]

_RECEIVED = """
SELECT payload FROM queues.receive JOIN queues.queue ON queue.id = receive.queue
 WHERE client = %s AND remote = %s AND payload <> 'how do you do' ORDER BY position
"""


def until(holds: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> float:
    """Seconds it took."""
    begun = time.perf_counter()
    while not holds():
        if time.perf_counter() - begun > seconds:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.1)
    return time.perf_counter() - begun


def _database(server: EmbeddedPostgres, name: str) -> str:
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return server.dsn.replace("dbname=postgres", f"dbname={name}")


class Nodes:
    """One server for all sites, with a database for each, or a server for each; `more` is further configuration of all."""

    def __init__(
        self,
        folder: Path,
        server: EmbeddedPostgres | Mapping[str, EmbeddedPostgres],
        links: Links,
        prefix: str,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self.sites = tuple(sorted({site for pair in links for site in pair}))
        self.folder, self._links, self._more = folder, links, dict(more or {})
        servers = dict.fromkeys(self.sites, server) if isinstance(server, EmbeddedPostgres) else server
        self.dsn = {site: _database(servers[site], f"{prefix}_{site}") for site in self.sites}
        self.children = {site: self._child(site) for site in self.sites}
        self._seed = f"127.0.0.1:{free_port()}"

    def _child(self, site: str) -> Child:
        place = self.folder / site
        words = ("node", "run", "--config", str(place / "trunkline.yaml"))
        return Child(site, words, place / "node.log", str(self.folder))

    @contextmanager
    def running(self) -> Iterator[Nodes]:
        make_ca(self.folder / "ca", "benchmark")
        for site in self.sites:
            self._prepare(site)
        try:
            for child in self.children.values():
                child.start()
            until(self.is_whole, "every site takes every other site's records")
            self._meet()
            yield self
        finally:
            stop_all(list(self.children.values()))

    def _meet(self) -> None:
        """Every site hears of every other one's client, each in its own time: that is not what benchmarks measure."""
        for site in self.sites:
            self.write(site, [MEET])
        pairs = [(site, origin) for site in self.sites for origin in self.sites if site != origin]
        until(lambda: all(self._has_met(*pair) for pair in pairs), "every site meets every other one's client")

    def _has_met(self, site: str, origin: str) -> bool:
        with psycopg.connect(self.dsn[site]) as conn:
            row = conn.execute("SELECT head FROM queues.queue WHERE client = %s AND remote = %s", (CLIENT, origin)).fetchone()
        return row is not None and row[0] > 0

    def _prepare(self, site: str) -> None:
        place, ca = self.folder / site, self.folder / "ca"
        place.mkdir(parents=True)
        migrate(self.dsn[site], "queues")
        issue(ca, place / "tls", NodeId(site, NODE))
        config = {
            "site": site, "node": NODE, "database": self.dsn[site], "runtime": str(place),
            "tls": {
                "ca": str(ca / "ca.pem"), "certificate": str(place / "tls" / "certificate.pem"),
                "key": str(place / "tls" / "key.pem"),
            },
            "link": {
                "listen": self._seed if site == self.sites[0] else "127.0.0.1:0", "seeds": [self._seed],
                "links": [b for a, b in self._links if a == site],
            },
            **self._more,
        }  # fmt: skip
        (place / "trunkline.yaml").write_text(yaml.safe_dump(config))

    # -- looking

    def ask(self, site: str, view: str) -> dict[str, Any]:
        """Empty when it does not answer."""
        try:
            api = json.loads((self.folder / site / "node.json").read_text())["api"]
            answer: dict[str, Any] = httpx.get(f"http://{api}/v1/{view}", timeout=5).raise_for_status().json()
        except (OSError, httpx.HTTPError, ValueError):
            return {}
        return answer

    def is_whole(self) -> bool:
        return all({r["source"] for r in self.ask(s, "topology").get("rows", ())} == set(self.sites) - {s} for s in self.sites)

    def counted(self, site: str, what: str) -> int:
        return sum(link.get(what, 0) for link in self.ask(site, "trunk").get("links", {}).values())

    # -- records

    def write(self, site: str, payloads: Sequence[bytes], *destinations: str) -> None:
        with psycopg.connect(self.dsn[site]) as conn:
            for payload in payloads:
                QueueClient(CLIENT).transmit(conn, payload, destinations or (ALL_SITES,))
                conn.commit()

    def received(self, site: str, origin: str) -> list[bytes]:
        with psycopg.connect(self.dsn[site]) as conn:
            return [payload for (payload,) in conn.execute(_RECEIVED, (CLIENT, origin))]

    def arrived(self, site: str, origin: str) -> int:
        with psycopg.connect(self.dsn[site]) as conn:
            row = conn.execute(f"SELECT count(*) FROM ({_RECEIVED}) AS received", (CLIENT, origin)).fetchone()
        return int(row[0]) if row else 0
