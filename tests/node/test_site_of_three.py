"""One site of three nodes on one Postgres, and a neighbour that never notices who leads: real processes, default terms."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from sitefleet import CLIENT, EVENTS, Fleet, NodeProcess, batch, lease, watch_writes, writers

from trunkline.db.embedded import EmbeddedPostgres, free_port
from trunkline.db.migrate import migrate
from trunkline.queues.client import QueueClient
from waiting import eventually

pytestmark = pytest.mark.timeout(180)

NAMES = ("n1", "n2", "n3")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    settings = {"fsync": "off", "max_connections": "100"}
    with EmbeddedPostgres(tmp_path_factory.mktemp("three"), settings, port=free_port()) as server:
        migrate(server.dsn, "queues")
        watch_writes(server.dsn)
        yield server


@pytest.fixture(scope="module")
def fleet(
    server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]
) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    fleet.add("a", NAMES, server.dsn, links=["b"])
    fleet.add("b", ["n1"], make_databases("queues"))
    fleet.start()
    try:
        fleet.wait_whole()
        yield fleet
    finally:
        fleet.stop()


class Writer:
    """Sends numbered records in both directions, one transaction each, for as long as it is open; it knows what it sent."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self._fleet, self._name = fleet, name
        self._stop = threading.Event()
        self.sent: dict[str, list[bytes]] = {"a": [], "b": []}
        self._threads = [threading.Thread(target=self._write, args=pair) for pair in (("a", "b"), ("b", "a"))]

    def _write(self, site: str, destination: str) -> None:
        n = 0
        while not self._stop.wait(0.02):
            payload = f"{self._name} {site} {n}".encode()
            try:
                with psycopg.connect(self._fleet.dsn[site], connect_timeout=2) as conn:
                    known = conn.execute("SELECT FROM queues.send_log WHERE payload = %s", (payload,)).fetchone()
                    if known is None:
                        QueueClient(CLIENT).transmit(conn, payload, [destination])
            except psycopg.OperationalError:
                continue  # whether it was committed is looked up before it is sent again
            self.sent[site].append(payload)
            n += 1

    def __enter__(self) -> Writer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)


@contextmanager
def everything_arrives(fleet: Fleet, name: str) -> Iterator[Writer]:
    """What is written meanwhile comes to both sides: all of it, once, in order."""
    before = {site: len(fleet.received(site, other)) for site, other in (("a", "b"), ("b", "a"))}
    with Writer(fleet, name) as writer:
        yield writer
        eventually(lambda: min(map(len, writer.sent.values())) > 10, why=fleet.logs)
    for site, other in (("a", "b"), ("b", "a")):
        expected = writer.sent[other]
        eventually(lambda: len(fleet.received(site, other)) >= before[site] + len(expected), why=fleet.logs)  # noqa: B023
        assert fleet.received(site, other)[before[site] :] == expected


def followers(fleet: Fleet, leader: NodeProcess) -> list[NodeProcess]:
    return [node for node in fleet.of("a") if node is not leader]


def test_exactly_one_leads_and_the_others_serve_api_and_store(fleet: Fleet) -> None:
    leader = fleet.leader("a")
    owner, epoch, live = lease(fleet.dsn["a"])
    assert (owner, live) == (str(leader.id), True)
    assert leader.check("lease") == (True, f"leads with epoch {epoch}")
    for node in followers(fleet, leader):
        assert node.check("lease") == (True, f"follows {leader.id}, epoch {epoch}")
        eventually(node.ready, why=fleet.logs)
        assert node.view("trunk")["links"] == {}
        shown = node.view("topology")
        assert (shown["leads"], shown["neighbours"], shown["rows"]) == (False, [], [])
        eventually(lambda node=node: node.keys() == leader.keys())
        same_site = {str(other.id) for other in fleet.of("a") if other is not node}
        eventually(lambda node=node, ids=same_site: ids <= set(node.view("status")["links"]))
    assert [neighbour["site"] for neighbour in leader.view("topology")["neighbours"]] == ["b"]


def test_an_event_taken_by_a_follower_goes_out_through_the_leader(fleet: Fleet) -> None:
    follower = followers(fleet, fleet.leader("a"))[0]
    eventually(follower.ready, why=fleet.logs)
    before = len(fleet.received("b", "a", EVENTS))
    answer = follower.post({"kind": "alarm", "id": 7})
    assert answer.json().get("durable"), answer.text
    eventually(lambda: len(fleet.received("b", "a", EVENTS)) == before + 1)
    assert json.loads(fleet.received("b", "a", EVENTS)[-1]) == {"kind": "alarm", "id": 7}


def test_kill_9_of_the_leader_moves_the_lease_within_15_s_to_a_higher_epoch(fleet: Fleet) -> None:
    old = fleet.leader("a")
    _, epoch, _ = lease(fleet.dsn["a"])
    with everything_arrives(fleet, "killed"):
        old.kill()
        begun = time.monotonic()
        new = fleet.leader("a", 15)
        assert time.monotonic() - begun < 15
        assert new is not old
        owner, new_epoch, live = lease(fleet.dsn["a"])
        assert (owner, live) == (str(new.id), True)
        assert new_epoch > epoch
        old.start()
        eventually(lambda: old.check("lease") == (True, f"follows {new.id}, epoch {new_epoch}"), why=fleet.logs)
    assert fleet.leaders("a") == [new]


def test_h01_h03_a_paused_leader_writes_nothing_once_it_wakes_and_becomes_a_follower(fleet: Fleet) -> None:
    old = fleet.leader("a")
    with everything_arrives(fleet, "paused"):
        before = len(writers(fleet.dsn["a"]))
        eventually(lambda: len(writers(fleet.dsn["a"])) > before)
        with old.paused():
            eventually(lambda: [n for n in followers(fleet, old) if n.leads()], 30, fleet.logs)
            new = next(node for node in followers(fleet, old) if node.leads())
            taken_over = len(writers(fleet.dsn["a"]))
            eventually(lambda: len(writers(fleet.dsn["a"])) > taken_over + 5, why=fleet.logs)
        eventually(lambda: old.check("lease")[1].startswith(f"follows {new.id}"), why=fleet.logs)
        after = len(writers(fleet.dsn["a"]))
        eventually(lambda: len(writers(fleet.dsn["a"])) > after + 5)
    said = writers(fleet.dsn["a"])[before:]
    first = said.index(new.id.node)
    assert set(said[:first]) <= {old.id.node}
    assert set(said[first:]) == {new.id.node}
    assert "not leading" in old.log()
    assert fleet.leaders("a") == [new]


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_restart_of_postgres_ends_with_one_leader(fleet: Fleet, server: EmbeddedPostgres, how: str) -> None:
    with everything_arrives(fleet, f"postgres {how}"):
        server.stop(signal.SIGINT if how == "stopped" else signal.SIGKILL)
        eventually(lambda: not fleet.of("a")[0].ready())
        server.launch()
        server.wait_ready()
        leader = fleet.leader("a")
        for node in fleet.of("a"):
            eventually(node.ready, why=fleet.logs)
    assert fleet.leaders("a") == [leader]
    assert lease(fleet.dsn["a"])[0] == str(leader.id)


def test_records_sent_in_one_batch_arrive_in_order(fleet: Fleet) -> None:
    before, payloads = len(fleet.received("b", "a")), batch("calm")
    fleet.transmit("a", payloads, "b")
    eventually(lambda: fleet.received("b", "a")[before:] == payloads, why=fleet.logs)
