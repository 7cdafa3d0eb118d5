"""How a node starts: what it waits for it shows, what it cannot wait for ends it with a reason."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from sitefleet import Fleet, NodeProcess

from trunkline.core.ids import NodeId
from trunkline.db.embedded import EmbeddedPostgres, free_port
from trunkline.net.authority import issue, make_ca
from waiting import eventually


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[[str], NodeProcess]]:
    fleet = Fleet(tmp_path)

    def make(dsn: str) -> NodeProcess:
        fleet.add("lonely", ["n1"], dsn)
        fleet.nodes[-1].wishes = {"api": {"listen": f"127.0.0.1:{free_port()}"}}
        return fleet.nodes[-1]

    yield make
    fleet.stop()


def ends_with_2(node: NodeProcess) -> str:
    node.start()
    assert node.running.wait(60) == 2
    said = " ".join(node.log().split())
    assert "Traceback" not in said
    assert "error:" in said
    assert "next:" in said
    return said


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield f"127.0.0.1:{other.getsockname()[1]}"


def test_the_api_answers_and_gives_the_reason_while_the_database_is_away(
    make_node: Callable[[str], NodeProcess], tmp_path: Path
) -> None:
    port = free_port()
    server = EmbeddedPostgres(tmp_path / "postgres", {"fsync": "off"}, port=port)
    server.initialise()
    node = make_node(f"host=127.0.0.1 port={port} user=trunkline dbname=postgres passfile={server.passfile}")
    node.start()
    api = f"http://{node.wishes['api']['listen']}"

    def get(path: str) -> httpx.Response | None:
        try:
            return httpx.get(f"{api}{path}", timeout=2)
        except httpx.HTTPError:
            return None

    def waits() -> bool:
        answer = get("/readyz")
        return answer is not None and "database, waiting for" in answer.text

    eventually(waits, why=node.log)
    ready, live = get("/readyz"), get("/livez")
    assert ready is not None
    assert live is not None
    assert (ready.status_code, live.status_code) == (503, 200)
    assert "Connection refused" in ready.text
    assert not (node.folder / "node.json").exists()
    with server:
        eventually(node.ready, why=node.log)
        assert node.check("lease")[1].startswith("leads with epoch")
        steps = [line.rpartition("step=")[2] for line in node.log().splitlines() if "] started" in line]
        assert steps == ["database", "schema", "pool", "links", "store", "lease", "routes"]
        node.signal(15)
        assert node.running.wait(20) == 0


def test_a_schema_it_does_not_know_ends_it(make_node: Callable[[str], NodeProcess], make_database: Callable[..., str]) -> None:
    dsn = make_database("queues")
    with psycopg.connect(dsn) as conn:
        conn.execute("UPDATE site.migration SET checksum = 'of another version' WHERE part = 'queues' AND number = 2")
    assert "it was applied with another text" in ends_with_2(make_node(dsn))


def test_what_it_may_not_do_in_the_database_ends_it(
    make_node: Callable[[str], NodeProcess], make_database: Callable[..., str]
) -> None:
    dsn = make_database()
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE SCHEMA queues")
    assert 'schema "queues" already exists' in ends_with_2(make_node(dsn))


def test_a_taken_port_ends_it(make_node: Callable[[str], NodeProcess], make_database: Callable[..., str], taken: str) -> None:
    node = make_node(make_database())
    node.wishes = {"link": {"listen": taken}}
    assert taken in ends_with_2(node)
    node.wishes = {"api": {"listen": taken}}
    assert f"API at {taken}" in ends_with_2(node)


def test_a_certificate_of_another_node_ends_it(make_node: Callable[[str], NodeProcess], tmp_path: Path) -> None:
    node = make_node("host=127.0.0.1 port=1 dbname=none")
    make_ca(tmp_path / "others", "another fleet")
    issue(tmp_path / "others", node.folder / "tls", NodeId("lonely", "n1"))
    assert "certificate" in ends_with_2(node)
