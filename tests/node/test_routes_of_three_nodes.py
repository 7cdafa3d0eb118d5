"""One site of three real nodes: a route that is changed over one node's API is live on all, and what it takes is durable."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest
from sitefleet import Fleet, NodeProcess

from trunkline.queues.registry import remember_site
from waiting import eventually

pytestmark = pytest.mark.timeout(180)
NAMES = ("n1", "n2", "n3")
HOUSE = "/v1/orgs/trunkline/applications/trunkline/routes"
ALARMS = {
    "userId": "ada",
    "receiver": {"plugin": "http"},
    "filterChain": [{"plugin": "match", "config": {"mode": "allow", "matcher": "pattern", "pattern": {"kind": "alarm"}}}],
    "sender": {"plugin": "queue", "config": {"client": "alarms", "destinations": ["b"]}},
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]) -> Iterator[Fleet]:
    fleet, dsn = Fleet(tmp_path_factory.mktemp("three-nodes")), make_databases("queues", "routes")
    with psycopg.connect(dsn) as conn:
        remember_site(conn, "b")
    fleet.add("a", NAMES, dsn)
    for node in fleet.nodes:
        node.wishes = {"routes": None}
    fleet.start()
    try:
        for node in fleet.nodes:
            eventually(node.ready, why=fleet.logs)
        yield fleet
    finally:
        fleet.stop()


def ask(node: NodeProcess, method: str, path: str, body: Any = None) -> httpx.Response:
    return httpx.request(method, f"http://{node.api()}{path}", json=body, timeout=20)


def routes_of(node: NodeProcess, event: dict[str, Any]) -> Any:
    answer = node.post(event)
    assert answer.status_code == 200, answer.text
    return answer.json()["routes"]


def sent(fleet: Fleet) -> list[Any]:
    with psycopg.connect(fleet.dsn["a"]) as conn:
        return [json.loads(row[0]) for row in conn.execute("SELECT payload FROM queues.sent_message ORDER BY id, nth")]


def test_a_route_put_at_one_node_takes_events_at_all_and_outlives_any_of_them(fleet: Fleet) -> None:
    n1, n2, n3 = fleet.nodes
    assert ask(n1, "PUT", f"{HOUSE}/alarms", ALARMS).status_code == 200
    for node in fleet.nodes:
        eventually(lambda at=node: routes_of(at, {"kind": "alarm", "at": at.id.node}) == ["alarms"], why=fleet.logs)
        assert routes_of(node, {"kind": "other"}) == []
    assert {event["at"] for event in sent(fleet) if event.get("kind") == "alarm"} == set(NAMES)

    n1.kill()
    assert ask(n2, "PUT", f"{HOUSE}/alarms", {**ALARMS, "filterChain": []}).status_code == 200
    eventually(lambda: routes_of(n3, {"kind": "other", "at": "n3"}) == ["alarms"], why=fleet.logs)
    n1.start()
    eventually(n1.ready, why=n1.log)
    assert routes_of(n1, {"kind": "other", "at": "n1 again"}) == ["alarms"]
    assert "1 live route of 1 id" in n1.check("routes")[1]

    assert ask(n3, "DELETE", f"{HOUSE}/alarms").status_code == 200
    for node in fleet.nodes:
        eventually(lambda at=node: routes_of(at, {"kind": "alarm"}) == [], why=fleet.logs)
    numbers = ask(n3, "GET", "/metrics").text
    assert 'trunkline_routes_sent_total{receiver="http",sender="queue"}' in numbers
    assert "trunkline_routes_live 0.0" in numbers


def test_an_event_that_a_route_cannot_send_is_an_error_and_not_lost(fleet: Fleet) -> None:
    n1, n2, _ = fleet.nodes
    headers = {"client": "alarms", "destinations": ["b"], "headers": {"id": "{payload.id}"}}
    body = {**ALARMS, "filterChain": [], "sender": {"plugin": "queue", "config": headers}}
    assert ask(n1, "PUT", f"{HOUSE}/strict", body).status_code == 200
    eventually(lambda: n2.post({"id": 7}).json().get("routes") == ["strict"], why=fleet.logs)
    refused = n2.post({"kind": "alarm"})
    assert refused.status_code == 400
    assert "route strict" in refused.json()["detail"]
    assert "dead letter" in refused.json()["detail"]
    letters = ask(n1, "GET", "/v1/deadletters").json()["letters"]
    assert [(letter["route"], letter["step"]) for letter in letters] == [("strict", "message")]
    assert ask(n2, "DELETE", f"{HOUSE}/strict").status_code == 200
    for node in fleet.nodes:
        eventually(lambda at=node: routes_of(at, {"id": 7}) == [], why=fleet.logs)
