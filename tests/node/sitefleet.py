"""Sites of several real node processes, with certificates of their own, for tests that kill, pause and starve them."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import yaml

from trunkline.core.ids import NodeId
from trunkline.db.embedded import EmbeddedPostgres, free_port
from trunkline.db.lease import LEADER_TERMS, Terms
from trunkline.net.authority import issue, make_ca
from trunkline.queues.client import QueueClient
from waiting import eventually

CLIENT = "policy"
QUICK = Terms(seconds=4.0, renew_every=0.5, margin=1.0)

EVENTS = "events"
_ROUTES = {
    "routes": [
        {
            "id": "all-to-b",
            "receiver": {"plugin": "http", "name": "api"},
            "filterChain": [],
            "sender": {"plugin": "queue", "config": {"client": EVENTS, "destinations": ["b"]}},
        }
    ]
}

# The command itself has no option for the lease's terms: nobody but a test should turn them.
_SHORT_LEASE = """
import pathlib, sys
from trunkline.cli.node import run_node
from trunkline.core.config import load_config
from trunkline.db.lease import Terms
run_node(load_config(pathlib.Path(sys.argv[1])), Terms(*map(float, sys.argv[2:])))
"""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass
class NodeProcess:
    id: NodeId
    folder: Path
    config: dict[str, Any]
    terms: Terms
    process: subprocess.Popen[bytes] | None = None
    wishes: dict[str, Any] = field(default_factory=dict)

    def start(self) -> None:
        file = self.folder / "trunkline.yaml"
        file.write_text(yaml.safe_dump({**self.config, **self.wishes}))
        terms = [str(self.terms.seconds), str(self.terms.renew_every), str(self.terms.margin)]
        default = self.terms == LEADER_TERMS
        words = (
            ["-m", "trunkline.cli.main", "node", "run", "--config", str(file)] if default else ["-c", _SHORT_LEASE, str(file)]
        )
        with (self.folder / "node.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *words, *(() if default else terms)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            )  # fmt: skip

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        return self.process

    def signal(self, word: signal.Signals) -> None:
        self.running.send_signal(word)

    def kill(self) -> None:
        self.running.kill()
        self.running.wait(20)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def log(self) -> str:
        return (self.folder / "node.log").read_text(errors="replace")

    def api(self) -> str:
        return str(json.loads((self.folder / "node.json").read_text())["api"])

    def get(self, path: str) -> tuple[int, Any]:
        """(0, {}) when it does not answer."""
        try:
            answer = httpx.get(f"http://{self.api()}{path}", timeout=2)
            return answer.status_code, answer.json()
        except (OSError, httpx.HTTPError, ValueError):
            return 0, {}

    def view(self, name: str) -> dict[str, Any]:
        code, body = self.get(f"/v1/{name}")
        return body if code == 200 else {}

    def keys(self, prefix: str = "") -> set[str]:
        """Of the fleet's area of the store."""
        return set(self.view(f"store/fleet?prefix={prefix}").get("values", ()))

    def check(self, name: str) -> tuple[bool, str]:
        _, body = self.get("/readyz")
        return next(((c["ok"], c["reason"]) for c in body.get("checks", ()) if c["name"] == name), (False, "no such check"))

    def ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def post(self, event: Any) -> httpx.Response:
        return httpx.post(f"http://{self.api()}/v1/event", json=event, timeout=10)

    def leads(self) -> bool:
        return self.running.poll() is None and bool(self.view("status").get("leads"))


class Fleet:
    def __init__(self, folder: Path, terms: Terms = LEADER_TERMS) -> None:
        self.folder, self.terms = folder, terms
        self.nodes: list[NodeProcess] = []
        self.dsn: dict[str, str] = {}
        self.seed = f"127.0.0.1:{free_port()}"
        make_ca(folder / "ca", "test fleet")

    def add(
        self, site: str, names: Sequence[str], dsn: str, links: Sequence[str] = (), follows: Sequence[str] = (),
        topology: Mapping[str, Any] | None = None, trunk: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.dsn[site] = dsn
        for name in names:
            place = self.folder / site / name
            place.mkdir(parents=True)
            issue(self.folder / "ca", place / "tls", NodeId(site, name))
            (place / "routes.yaml").write_text(yaml.safe_dump(_ROUTES))
            config = {
                "routes": str(place / "routes.yaml"), "site": site, "node": name, "database": dsn, "runtime": str(place),
                "tls": {
                    "ca": str(self.folder / "ca" / "ca.pem"),
                    "certificate": str(place / "tls" / "certificate.pem"),
                    "key": str(place / "tls" / "key.pem"),
                },
                "link": {
                    "listen": self.seed if not self.nodes else "127.0.0.1:0", "seeds": [self.seed],
                    "links": list(links), "follows": list(follows),
                },
                "topology": dict(topology or {}), "trunk": dict(trunk or {}),
            }  # fmt: skip
            self.nodes.append(NodeProcess(NodeId(site, name), place, config, self.terms))

    def of(self, site: str) -> list[NodeProcess]:
        return [node for node in self.nodes if node.id.site == site]

    def leaders(self, site: str) -> list[NodeProcess]:
        return [node for node in self.of(site) if node.leads()]

    def leader(self, site: str, seconds: float = 60.0) -> NodeProcess:
        found: list[NodeProcess] = []

        def one() -> bool:
            found[:] = self.leaders(site)
            return len(found) == 1

        eventually(one, seconds, self.logs)
        return found[0]

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def wait_whole(self) -> None:
        """Every node is ready and knows all others, and each site's leader takes every other site's records."""
        ids = {f"node:{node.id}" for node in self.nodes}
        for node in self.nodes:
            eventually(node.ready, why=lambda node=node: (node.get("/readyz"), node.log()))
            eventually(lambda node=node: node.keys("node:") == ids, why=self.logs)
        for site in self.dsn:
            others = set(self.dsn) - {site}
            eventually(lambda site=site, others=others: self.sources(self.leader(site)) == others, why=self.logs)

    @staticmethod
    def sources(node: NodeProcess) -> set[str]:
        return {row["source"] for row in node.view("topology").get("rows", ())}

    def logs(self) -> str:
        return "\n".join(f"--- {node.id}\n{node.log()[-3000:]}" for node in self.nodes)

    def stop(self) -> None:
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.signal(signal.SIGCONT)
                node.signal(signal.SIGTERM)
        for node in self.nodes:
            if node.process is not None:
                try:
                    node.process.wait(20)
                except subprocess.TimeoutExpired:
                    node.kill()

    # -- records

    def transmit(self, site: str, payloads: Sequence[bytes], *destinations: str) -> None:
        with psycopg.connect(self.dsn[site]) as conn:
            for payload in payloads:
                QueueClient(CLIENT).transmit(conn, payload, destinations)
                conn.commit()

    def received(self, site: str, origin: str, client: str = CLIENT) -> list[bytes]:
        query = """SELECT payload FROM queues.receive JOIN queues.queue ON queue.id = receive.queue
                    WHERE client = %s AND remote = %s ORDER BY position"""
        with psycopg.connect(self.dsn[site]) as conn:
            return [row[0] for row in conn.execute(query, (client, origin))]


def batch(name: str, count: int = 30) -> list[bytes]:
    return [f"{name} {n}".encode() for n in range(count)]


def lease(dsn: str) -> tuple[str, int, bool]:
    """Owner, epoch, and whether it is live."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT owner, epoch, expires_at > now() FROM site.lease WHERE name = 'leader'").fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def watch_writes(dsn: str) -> None:
    """From now on the database notes whose connection each committed write of a leader came over."""
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE written (n bigint GENERATED ALWAYS AS IDENTITY, who text, what text)")
        conn.execute("""CREATE FUNCTION note_write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO written (who, what) VALUES (current_setting('application_name'), TG_TABLE_NAME); RETURN NULL; END $$""")
        for table in ("stamp", "session", "acknowledged"):
            conn.execute(f"""CREATE TRIGGER note_write AFTER INSERT OR UPDATE ON queues.{table}
                             FOR EACH STATEMENT EXECUTE FUNCTION note_write()""")


def writers(dsn: str) -> list[str]:
    """The names of the nodes that wrote, in order."""
    with psycopg.connect(dsn) as conn:
        return [who.rpartition("-")[2] for (who,) in conn.execute("SELECT who FROM written ORDER BY n")]


@contextmanager
def frozen(server: EmbeddedPostgres) -> Iterator[None]:
    """Connections stay open, new ones are accepted by the kernel, and nobody ever answers."""
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for child in children:
        os.kill(child, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in (*children, pid):
            os.kill(process, signal.SIGCONT)
