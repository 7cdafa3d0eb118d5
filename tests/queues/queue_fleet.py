"""Sites of real node processes over TLS, each with a database of its own, and the applications that use their queues."""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psycopg
import yaml
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from trunkline.core.config import QueuesConfig
from trunkline.core.ids import NodeId
from trunkline.db.embedded import free_port
from trunkline.db.lease import Terms
from trunkline.net.authority import issue, make_ca
from trunkline.queues.client import QueueClient
from trunkline.queues.kinds import Kind
from trunkline.queues.operating import Operating
from trunkline.queues.provider import SnapshotContext, SnapshotProvider, unregister
from trunkline.queues.verify import verify
from waiting import eventually

S, A, B = "sofia", "athens", "berlin"
QUICK = Terms(seconds=4.0, renew_every=0.5, margin=1.0)
# The command itself has no option for the lease's terms: nobody but a test should turn them.
_NODE = """
import pathlib, sys
from trunkline.cli.node import run_node
from trunkline.core.config import load_config
from trunkline.db.lease import Terms
run_node(load_config(pathlib.Path(sys.argv[1])), Terms(*map(float, sys.argv[2:])))
"""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
_ROWS = """
SELECT type, seq, request::text, payload FROM queues.receive JOIN queues.queue ON queue.id = receive.queue
 WHERE client = %s AND remote = %s ORDER BY position
"""


class Row(NamedTuple):
    kind: Kind
    seq: int
    request: str | None
    payload: bytes


@dataclass
class Node:
    id: NodeId
    folder: Path
    config: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        file = self.folder / "trunkline.yaml"
        file.write_text(yaml.safe_dump(self.config))
        terms = [str(QUICK.seconds), str(QUICK.renew_every), str(QUICK.margin)]
        with (self.folder / "node.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _NODE, str(file), *terms], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            )  # fmt: skip

    def kill(self) -> None:
        """-9"""
        assert self.process is not None
        self.process.kill()
        self.process.wait(20)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It lives, and does nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def memory(self) -> int:
        """Bytes of it that are resident."""
        assert self.process is not None
        words = Path(f"/proc/{self.process.pid}/status").read_text().split("VmRSS:")[1].split()
        return int(words[0]) << 10

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def view(self, name: str) -> dict[str, Any]:
        """Nothing, when it does not answer."""
        try:
            api = json.loads((self.folder / "node.json").read_text())["api"]
            answer: dict[str, Any] = httpx.get(f"http://{api}/v1/{name}", timeout=2).raise_for_status().json()
        except (OSError, httpx.HTTPError, ValueError):
            return {}
        return answer

    def leads(self) -> bool:
        return self.process is not None and self.process.poll() is None and bool(self.view("status").get("leads"))

    def log(self) -> str:
        return (self.folder / "node.log").read_text(errors="replace")


class QueueFleet:
    """Sites in a chain: each has a link with the one before it."""

    def __init__(
        self, folder: Path, make_database: Callable[..., str], sites: Sequence[str], queues: Mapping[str, dict[str, Any]]
    ) -> None:
        self.folder, self.seed, self.queues = folder, f"127.0.0.1:{free_port()}", queues
        self.sites, self.nodes = list(sites), list[Node]()
        self.dsn = {site: make_database("queues") for site in sites}
        make_ca(folder / "ca", "test fleet")
        for site in sites:
            self.add(site, "n1")

    def add(self, site: str, name: str) -> Node:
        place, before = self.folder / site / name, self.sites.index(site) - 1
        issue(self.folder / "ca", place / "tls", NodeId(site, name))
        tls = {what: str(place / "tls" / f"{what}.pem") for what in ("certificate", "key")}
        listen = "127.0.0.1:0" if self.nodes else self.seed
        config = {
            "site": site, "node": name, "database": self.dsn[site], "runtime": str(place),
            "tls": {"ca": str(self.folder / "ca" / "ca.pem"), **tls}, "queues": self.queues.get(site, {}),
            "link": {"listen": listen, "seeds": [self.seed], "links": [self.sites[before]] if before >= 0 else []},
        }  # fmt: skip
        self.nodes.append(Node(NodeId(site, name), place, config))
        return self.nodes[-1]

    def node(self, site: str, name: str = "n1") -> Node:
        return next(node for node in self.nodes if node.id == NodeId(site, name))

    @contextmanager
    def running(self) -> Iterator[QueueFleet]:
        try:
            for node in self.nodes:
                node.start()
            self.until_whole()
            yield self
        finally:
            for node in self.nodes:
                node.stop()

    def until_whole(self) -> None:
        """Each site is led, and takes every other site's records."""
        for site in self.sites:
            others = set(self.sites) - {site}
            eventually(lambda site=site, others=others: self._sources(site) == others, why=self.logs)

    def _sources(self, site: str) -> set[str]:
        leader = next((node for node in self.nodes if node.id.site == site and node.leads()), None)
        return {row["source"] for row in leader.view("topology").get("rows", ())} if leader else set()

    @contextmanager
    def down(self, site: str) -> Iterator[None]:
        self.node(site).stop()
        try:
            yield
        finally:
            self.node(site).start()

    def strike(self, site: str) -> None:
        """kill -9, and a new process; the dead one's lease is not waited for."""
        self.node(site).kill()
        self.do(site, "UPDATE site.lease SET expires_at = '-infinity'")
        self.node(site).start()

    def logs(self) -> str:
        return "\n".join(f"--- {node.id}\n{node.log()[-2500:]}" for node in self.nodes)

    # -- databases

    def ask(self, site: str, query: str, args: Sequence[Any] = ()) -> list[Any]:
        """The rows, or for one column its values."""
        with psycopg.connect(self.dsn[site], autocommit=True) as conn:
            rows = conn.execute(query.encode(), args).fetchall()
        return [row[0] if len(row) == 1 else row for row in rows]

    def do(self, site: str, statement: str) -> None:
        with psycopg.connect(self.dsn[site], autocommit=True) as conn:
            conn.execute(statement.encode())

    def copy(self, site: str) -> str:
        """Of the database of a site that is down, as it is now."""
        name, copied = self._database(site), f"{self._database(site)}_kept"
        with psycopg.connect(make_conninfo(self.dsn[site], dbname="postgres"), autocommit=True) as conn:
            busy = "SELECT 1 FROM pg_stat_activity WHERE datname = %s"
            eventually(lambda: not conn.execute(busy, (name,)).fetchall(), why=lambda: f"somebody still uses {name}")
            conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(copied), sql.Identifier(name)))
        return copied

    def put_back(self, site: str, copied: str) -> None:
        """A restore: what was committed since is gone."""
        name = sql.Identifier(self._database(site))
        with psycopg.connect(make_conninfo(self.dsn[site], dbname="postgres"), autocommit=True) as conn:
            conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
            conn.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(copied), name))

    def _database(self, site: str) -> str:
        return str(conninfo_to_dict(self.dsn[site])["dbname"])

    def transmit(self, site: str, client: str, payloads: Sequence[bytes], *destinations: str) -> None:
        """Each in a transaction of its own."""
        with psycopg.connect(self.dsn[site]) as conn:
            for payload in payloads:
                QueueClient(client).transmit(conn, payload, destinations)
                conn.commit()

    def rows(self, site: str, origin: str, client: str) -> list[Row]:
        """A whole receive queue, in order."""
        return [Row(Kind(kind), *rest) for kind, *rest in self.ask(site, _ROWS, (client, origin))]

    def received(self, site: str, origin: str, client: str) -> list[bytes]:
        return [row.payload for row in self.rows(site, origin, client)]

    def kinds(self, site: str, origin: str, client: str) -> list[Kind]:
        return [row.kind for row in self.rows(site, origin, client)]

    def until_received(self, site: str, origin: str, client: str, expected: Sequence[bytes], seconds: float = 60.0) -> None:
        def why() -> object:
            return self.received(site, origin, client)[-20:], self.stalls(), self.logs()

        eventually(lambda: len(self.received(site, origin, client)) >= len(expected), seconds, why)
        assert self.received(site, origin, client) == list(expected)

    def status(self, site: str, role: str, remote: str, client: str) -> dict[str, Any]:
        query = "SELECT status FROM queues.status WHERE (role, remote, client) = (%s, %s, %s)"
        found: list[dict[str, Any]] = self.ask(site, query, (role, remote, client))
        return found[0] if found else {}

    def stalls(self) -> dict[str, list[Any]]:
        return {site: self.ask(site, "SELECT role, remote, client, status->>'stall' FROM queues.status") for site in self.sites}

    def wrong(self) -> list[str]:
        """What `queues verify` finds, at any site."""
        found = []
        for site, dsn in self.dsn.items():
            with psycopg.connect(dsn) as conn:
                found += [f"{site}: {finding}" for finding in verify(conn)]
        return found


@dataclass
class Provided:
    """A provider of five records, and what it was asked for."""

    work: Callable[[SnapshotContext], None] | None = None
    reads_elsewhere: bool = False
    calls: list[tuple[str, ...]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def provide(self, context: SnapshotContext) -> None:
        self.calls.append(context.destinations)
        self.requests.append(str(context.request_id))
        (self.work or five)(context)

    def times(self, site: str) -> int:
        return sum(site in destinations for destinations in self.calls)

    def last_for(self, site: str) -> str:
        return [r for r, sites in zip(self.requests, self.calls, strict=True) if site in sites][-1]


FIVE = [b"s0", b"s1", b"s2", b"s3", b"s4"]


def five(context: SnapshotContext) -> None:
    for payload in FIVE:
        context.transmit(payload)


@contextmanager
def providing(fleet: QueueFleet, site: str, client: str, provided: Provided) -> Iterator[Provided]:
    """Waits until it is registered: clients without a provider begin with the log."""
    with SnapshotProvider(fleet.dsn[site], client, provided.provide, reads_elsewhere=provided.reads_elsewhere):
        eventually(lambda: fleet.ask(site, "SELECT 1 FROM queues.provider WHERE client = %s", (client,)))
        yield provided
    with psycopg.connect(fleet.dsn[site]) as conn:
        unregister(conn, client)


def numbered(name: str, count: int) -> list[bytes]:
    return [f"{name} {n}".encode() for n in range(count)]


def sync(fleet: QueueFleet, site: str | None, client: str) -> str:
    """A forced snapshot, as an operator asks for it."""
    made = Operating(lambda: psycopg.connect(fleet.dsn[S]), QueuesConfig()).sync(site, client)
    return str(made["requests"][0]["id"])


def until_acknowledged(fleet: QueueFleet, site: str, client: str, source: str = S) -> None:
    """The source knows of all that is in the site's queue."""
    query = "SELECT 1 FROM queues.acknowledged WHERE (destination, client) = (%s, %s) AND seq >= %s"
    last = fleet.rows(site, source, client)[-1].seq
    eventually(lambda: fleet.ask(source, query, (site, client, last)), why=fleet.stalls)


def trim(fleet: QueueFleet) -> None:
    """Sofia, which keeps as little as may be, trims all that it has up to here."""
    (head,) = fleet.ask(S, "SELECT max(last_seq) FROM queues.stamp")
    pause = threading.Event()
    while fleet.ask(S, "SELECT lowest FROM queues.stamper")[0] < head:
        fleet.transmit(S, "ballast", [bytes(100_000)] * 4, A)
        pause.wait(0.2)
