"""Real `trunkline node` processes over TLS and Postgres: hub, relay, and two leaves behind the relay."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from trunkline.cli.demo.fleet import HUB, RELAY, Site, write_certificates, write_config
from trunkline.cli.demo.processes import Child, stop_all
from trunkline.db.embedded import free_port
from trunkline.queues.client import QueueClient
from waiting import eventually

LEAVES = ("leaf-1", "leaf-2")


class Fleet:
    def __init__(self, folder: Path, make_database: Callable[..., str]) -> None:
        parents = {HUB: None, RELAY: HUB, "leaf-1": RELAY, "leaf-2": RELAY}
        self.sites = tuple(Site(name, parent, folder / name) for name, parent in parents.items())
        self.dsn = {site.name: make_database("queues") for site in self.sites}
        self.nodes: dict[str, Child] = {}
        for site in self.sites:
            site.folder.mkdir()
        write_certificates(self.sites, folder)
        seed = f"127.0.0.1:{free_port()}"
        for site in self.sites:
            write_config(site, self.dsn[site.name], seed, folder)
            words = ("node", "run", "--config", str(site.config))
            self.nodes[site.name] = Child(site.name, words, site.folder / "node.log", str(folder))
            self.nodes[site.name].start()

    def ask(self, site: str, view: str) -> dict[str, Any]:
        folder = next(s.folder for s in self.sites if s.name == site)
        try:
            api = json.loads((folder / "node.json").read_text())["api"]
            answer: dict[str, Any] = httpx.get(f"http://{api}/v1/{view}", timeout=2).raise_for_status().json()
        except (OSError, httpx.HTTPError):
            return {}
        return answer

    def post(self, site: str, event: dict[str, Any]) -> httpx.Response:
        folder = next(s.folder for s in self.sites if s.name == site)
        api = json.loads((folder / "node.json").read_text())["api"]
        return httpx.post(f"http://{api}/v1/event", json=event, timeout=5)

    def paths(self, site: str) -> dict[str, list[str]]:
        return {row["source"]: row["path"] for row in self.ask(site, "topology").get("rows", ())}

    def transmit(self, site: str, payloads: list[bytes], *destinations: str) -> None:
        with psycopg.connect(self.dsn[site]) as conn:
            for payload in payloads:
                QueueClient("policy").transmit(conn, payload, destinations)
                conn.commit()

    def received(self, site: str, origin: str, client: str = "policy") -> list[bytes]:
        query = """SELECT payload FROM queues.receive JOIN queues.queue ON queue.id = receive.queue
                    WHERE client = %s AND remote = %s ORDER BY position"""
        with psycopg.connect(self.dsn[site]) as conn:
            return [row[0] for row in conn.execute(query, (client, origin))]

    def wait_joined(self) -> None:
        for site in self.sites:
            others = {s.name for s in self.sites} - {site.name}
            eventually(lambda s=site.name, o=others: set(self.paths(s)) == o)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), make_databases)
    try:
        fleet.wait_joined()
        yield fleet
    finally:
        stop_all(list(fleet.nodes.values()))


def batch(name: str, count: int = 40) -> list[bytes]:
    return [f"{name} {n}".encode() for n in range(count)]


@pytest.mark.timeout(180)
def test_nodes_find_each_other_from_one_seed_and_agree_on_paths(fleet: Fleet) -> None:
    nodes = {f"node:{site.name}/node-1" for site in fleet.sites}
    for site in fleet.sites:
        eventually(lambda s=site.name: set(fleet.ask(s, "store/fleet?prefix=node:").get("values", ())) == nodes)
    assert fleet.paths("leaf-1") == {"relay": ["relay"], "hub": ["relay", "hub"], "leaf-2": ["relay", "leaf-2"]}
    assert fleet.paths("hub")["leaf-2"] == ["relay", "leaf-2"]


@pytest.mark.timeout(180)
def test_g3_an_entry_for_two_sites_behind_one_relay_crosses_the_relay_s_link_once(fleet: Fleet) -> None:
    def sent() -> int:
        return int(fleet.ask(HUB, "trunk")["links"][RELAY].get("sent", 0))

    fleet.transmit(HUB, [b"how do you do"], *LEAVES)  # each leaf meets the client in its own time
    for leaf in LEAVES:
        eventually(lambda leaf=leaf: b"how do you do" in fleet.received(leaf, HUB))
    before, payloads = sent(), batch("once")
    counts = {leaf: len(fleet.received(leaf, HUB)) for leaf in LEAVES}
    fleet.transmit(HUB, payloads, *LEAVES)
    for leaf in LEAVES:
        eventually(lambda leaf=leaf: fleet.received(leaf, HUB)[counts[leaf] :] == payloads)
    assert sent() - before == len(payloads)
    assert fleet.received(RELAY, HUB) == []


@pytest.mark.timeout(180)
def test_g1_g4_kill_9_of_every_node_loses_nothing_repeats_nothing_and_keeps_the_order(fleet: Fleet) -> None:
    counts = {leaf: len(fleet.received(leaf, HUB)) for leaf in LEAVES}
    expected: list[bytes] = []
    for victim in (RELAY, HUB, "leaf-1"):
        payloads = batch(f"while {victim} dies")
        expected += payloads
        fleet.transmit(HUB, payloads[:20], *LEAVES)
        fleet.nodes[victim].kill()
        fleet.transmit(HUB, payloads[20:], *LEAVES)
        process = fleet.nodes[victim].process
        assert process is not None
        process.wait()
        fleet.nodes[victim].start()
    for leaf in LEAVES:
        eventually(lambda leaf=leaf: len(fleet.received(leaf, HUB)) >= counts[leaf] + len(expected))
        assert fleet.received(leaf, HUB)[counts[leaf] :] == expected


@pytest.mark.timeout(180)
def test_an_event_posted_to_a_node_is_routed_into_the_queue_and_arrives(fleet: Fleet) -> None:
    fleet.wait_joined()
    alarm = {"kind": "alarm", "id": "a-1", "subject": "door", "severity": "high", "at": "2026-01-02T03:04:05+00:00"}
    answer = fleet.post("leaf-2", alarm)
    assert answer.json() == {"routes": ["alarms-to-hub"], "durable": True}
    assert fleet.post("leaf-2", {"kind": "noise"}).json() == {"routes": [], "durable": False}
    eventually(lambda: len(fleet.received(HUB, "leaf-2", "status")) == 1)
    assert json.loads(fleet.received(HUB, "leaf-2", "status")[0]) == [alarm]


@pytest.mark.timeout(120)
def test_a_node_waits_for_its_database_and_stops_when_told(tmp_path: Path) -> None:
    site = Site("lonely", None, tmp_path / "lonely")
    site.folder.mkdir()
    write_certificates((site,), tmp_path)
    write_config(site, f"host=127.0.0.1 port={free_port()} dbname=none", "127.0.0.1:1", tmp_path)
    node = Child("lonely", ("node", "run", "--config", str(site.config)), tmp_path / "node.log", str(tmp_path))
    node.start()
    try:
        eventually(lambda: "the database does not answer" in node.tail())
        assert node.alive()
        node.stop()
        assert node.process is not None
        assert node.process.wait(20) == 0
        assert "Traceback" not in node.tail(100)
    finally:
        stop_all([node])
