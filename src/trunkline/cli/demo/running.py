"""The fleet's processes: servers, nodes, applications and the hub's pipeline, started in the order that is soonest done."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from rich.console import Console

from trunkline.cli.demo.fleet import HUB, RELAY, Site, behind_relay, write_certificates, write_config
from trunkline.cli.demo.interrupt import Patience
from trunkline.cli.demo.live import SCHEMA
from trunkline.cli.demo.processes import Child, stop_all
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.db.embedded import EmbeddedPostgres, free_port

NODES_UP_SECONDS = 30.0


@dataclass
class Fleet:
    folder: Path
    sites: tuple[Site, ...]
    console: Console
    servers: dict[str, EmbeddedPostgres] = field(default_factory=dict)
    nodes: dict[str, Child] = field(default_factory=dict)
    applications: dict[str, Child] = field(default_factory=dict)
    pipeline: Child | None = None
    broker: KafkaBroker | None = None
    orders: Child | None = None
    patience: Patience = field(default_factory=Patience)

    @property
    def dsns(self) -> dict[str, str]:
        return {name: server.dsn for name, server in self.servers.items()}

    @property
    def children(self) -> list[Child]:
        pipeline = [self.pipeline] if self.pipeline else []
        return [*self.writers, *pipeline, *self.nodes.values()]

    @property
    def writers(self) -> list[Child]:
        return [*self.applications.values(), *([self.orders] if self.orders else [])]

    def start(self) -> None:
        """The slowest first: Spark comes up while the rest does, and waits for its database last."""
        seed = f"127.0.0.1:{free_port()}"
        for site in self.sites:
            self.servers[site.name] = EmbeddedPostgres(site.folder / "postgres", port=free_port())
            site.folder.mkdir(parents=True)
            write_config(site, self.servers[site.name].dsn, seed, self.folder)
        write_certificates(self.sites, self.folder)
        hub = self.sites[0]
        self.console.print("starting the hub's pipeline on Spark …")
        self.pipeline = self._child("pipeline", hub, "pipeline", "run", "--fast-start", "--config", str(hub.config))
        self.console.print(f"starting {len(self.sites)} Postgres servers …")
        self._start_servers()
        self.patience.pause(0)
        self.console.print("starting the nodes and the applications …")
        for site in self.sites:
            self.nodes[site.name] = self._child("node", site, "node", "run", "--config", str(site.config))
        self.patience.wait_until(self._nodes_up, NODES_UP_SECONDS, every=0.1)
        for site in self.sites:
            self.applications[site.name] = self._child("application", site, *self._application(site))
        self.console.print("waiting for the first row at the hub …")

    def _start_servers(self) -> None:
        template: EmbeddedPostgres | None = None
        for server in self.servers.values():
            server.initialise(template)
            template = template or server
        for server in self.servers.values():
            server.launch()
        for server in self.servers.values():
            server.wait_ready()
        with psycopg.connect(self.servers[HUB].dsn) as conn:
            conn.execute(SCHEMA)

    def start_kafka(self) -> str:
        """Gives its address; orders come from now on."""
        hub = self.sites[0]
        self.broker = KafkaBroker(hub.folder / "kafka")
        self.broker.start()
        where = ("--database", self.servers[HUB].dsn, "--brokers", self.broker.bootstrap)
        self.orders = self._child("orders", hub, "demo-orders", "--site", HUB, *where, "--pace", "0.3")
        return self.broker.bootstrap

    def _nodes_up(self) -> bool:
        return all((site.folder / "node.json").exists() for site in self.sites)

    def _application(self, site: Site) -> list[str]:
        pace = "1.0" if site.name == HUB else "0.3"
        words = ["demo-application", "--site", site.name, "--hub", HUB, "--database", self.servers[site.name].dsn]
        policies = [word for name in behind_relay(self.sites) for word in ("--policy-site", name)]
        return [*words, "--node-file", str(site.folder / "node.json"), "--pace", pace, *policies]

    def _child(self, kind: str, site: Site, *words: str) -> Child:
        child = Child(f"{kind} of {site.name}", words, site.folder / f"{kind}.log", str(self.folder))
        child.start()
        return child

    def supervise(self) -> None:
        now = time.monotonic()
        for child in self.children:
            child.supervise(now)

    def stop(self) -> None:
        for writer in self.writers:
            writer.wanted = False
            writer.kill()
        stop_all(self.children, seconds=5.0)
        if self.broker is not None:
            self.broker.stop()
        for server in self.servers.values():
            server.stop()


def chaos_schedule(fleet: Fleet) -> list[tuple[float, list[Child]]]:
    """Who is killed (kill -9) when, as parts of the run."""
    leaf = next((s.name for s in fleet.sites if s.name not in (HUB, RELAY)), RELAY)
    assert fleet.pipeline is not None
    return [
        (0.25, [fleet.nodes[RELAY]]),
        (0.45, [fleet.pipeline]),
        (0.65, [fleet.nodes[leaf], fleet.applications[leaf]]),
    ]
