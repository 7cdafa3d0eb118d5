"""The bridge over the API: what each answer has, that its description says so, who may, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest
from pydantic import BaseModel

from filled_bridge import FilledBridge, fill
from filled_queues import copy_of
from memory_bridge import MemoryBridge
from memory_node import MemoryNode, bearing, client_over, is_problem, token
from trunkline.api import bridgemodels as models
from trunkline.api.bridgemetrics import bridge_metrics
from trunkline.bridge.operating import BridgeOperating
from trunkline.bridge.shipped import SHIPPED
from trunkline.core.config import Role

LOOKS: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {
    "/v1/bridge/status": (models.BridgeShown, models.STATUS),
    "/v1/bridge/types": (models.TypesShown, models.TYPES),
    "/v1/bridge/offsets": (models.OffsetsShown, models.OFFSETS),
    "/v1/bridge/sites/paris": (models.SiteShown, models.SITE),
    "/v1/bridge/quarantine": (models.QuarantineShown, models.QUARANTINE),
    "/v1/bridge/quarantine/1": (models.QuarantinedShown, models.QUARANTINED),
}
CHANGES: dict[tuple[str, str], tuple[type[BaseModel], dict[str, Any]]] = {
    ("post", "/v1/bridge/quarantine/{id}"): (models.SettledShown, models.RETRIED),
    ("delete", "/v1/bridge/quarantine/{id}"): (models.SettledShown, models.DROPPED),
    ("post", "/v1/bridge/resync"): (models.ResyncShown, models.RESYNC),
    ("delete", "/v1/bridge/sites/{site}"): (models.ForgottenShown, models.FORGOTTEN),
}


@pytest.fixture(scope="module")
def filled(make_databases: Callable[..., str]) -> FilledBridge:
    return fill(make_databases("queues", "bridge"))


@pytest.fixture
def copy(filled: FilledBridge) -> Iterator[FilledBridge]:
    """To be changed."""
    with copy_of(filled.dsn) as dsn:
        yield FilledBridge(dsn)


def api_over(dsn: str) -> httpx.AsyncClient:
    return client_over(MemoryNode(bridge=BridgeOperating(lambda: psycopg.connect(dsn), SHIPPED)))


@pytest.fixture
async def hub(filled: FilledBridge) -> AsyncIterator[httpx.AsyncClient]:
    """For tests that change nothing."""
    async with api_over(filled.dsn) as client:
        yield client


async def got(client: httpx.AsyncClient, path: str, **params: Any) -> dict[str, Any]:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_every_answer_is_what_its_description_promises(hub: httpx.AsyncClient) -> None:
    for path, (model, _) in LOOKS.items():
        found = await got(hub, path)
        assert model.model_validate(found).model_dump() == found


async def test_the_description_names_the_models_and_its_examples_fit_them(client: httpx.AsyncClient) -> None:
    paths = (await got(client, "/openapi.json"))["paths"]
    looks = {("get", p.replace("paris", "{site}").replace("/1", "/{id}")): found for p, found in LOOKS.items()}
    for (method, path), (model, example) in (looks | CHANGES).items():
        content = paths[path][method]["responses"]["200"]["content"]["application/json"]
        assert content["schema"] == {"$ref": f"#/components/schemas/{model.__name__}"}
        assert model.model_validate(example).model_dump() == example
        assert content["example"] == model.model_validate(example).model_dump(exclude_none=True)
    body = paths["/v1/bridge/resync"]["post"]["requestBody"]["content"]["application/json"]
    assert models.ResyncWanted.model_validate(body["example"]).site == "paris"


async def test_sites_come_in_pages_and_can_be_of_one_type(hub: httpx.AsyncClient) -> None:
    page = await got(hub, "/v1/bridge/status", limit=1, after="berlin", type="compliance")
    assert ([one["site"] for one in page["sites"]], page["next"]) == (["lyon"], "lyon")
    assert [note["type"] for note in page["notes"]] == ["compliance"]


async def test_a_bundle_is_tried_again_given_up_and_gone_from_the_list(copy: FilledBridge) -> None:
    newer = copy.aside("berlin", "clusters", (12, 9), "it was wrong")
    async with api_over(copy.dsn) as client:
        assert (await client.post(f"/v1/bridge/quarantine/{newer}")).json() == {"id": newer, "state": "retried"}
        assert (await client.delete("/v1/bridge/quarantine/1")).json() == {"id": 1, "state": "dropped"}
        assert is_problem(await client.post("/v1/bridge/quarantine/1"), 400, "invalid")
        assert (await got(client, "/v1/bridge/quarantine")) == {"quarantine": []}
        settled = (await got(client, "/v1/bridge/quarantine", settled=True))["quarantine"]
    assert {one["id"]: one["state"] for one in settled} == {1: "dropped", newer: "retried"}


async def test_a_resync_is_asked_for_and_a_site_forgotten(copy: FilledBridge) -> None:
    async with api_over(copy.dsn) as client:
        wanted = await client.post("/v1/bridge/resync", json={"site": "berlin"})
        assert wanted.json() == {"site": "berlin", "types": ["clusters"]}
        assert copy.do("SELECT type FROM bridge.resync WHERE site = 'berlin'") == [("clusters",)]
        copy.do("UPDATE bridge.inbox SET arrived_at = now()")
        assert is_problem(await client.delete("/v1/bridge/sites/paris"), 400, "invalid")
        gone = await client.delete("/v1/bridge/sites/paris", params={"force": True})
        assert models.ForgottenShown.model_validate(gone.json()).deleted["bridge.ledger"] == 1
        assert is_problem(await client.get("/v1/bridge/sites/paris"), 404, "no-such-status")


@pytest.mark.parametrize("name", ["atlantis", "a%00b", "%ED%A0%80", "ключ", "x" * 300])
async def test_an_unknown_site_is_a_404(hub: httpx.AsyncClient, name: str) -> None:
    assert is_problem(await hub.get(f"/v1/bridge/sites/{name}"), 404, "no-such-status")
    assert is_problem(await hub.delete(f"/v1/bridge/sites/{name}"), 404, "no-such-status")


async def test_an_unknown_bundle_is_a_404_for_each_method(hub: httpx.AsyncClient) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert is_problem(await hub.request(method, "/v1/bridge/quarantine/99"), 404, "no-such-status")


@pytest.mark.parametrize(
    ("path", "params"),
    [("status", {"limit": 0}), ("status", {"limit": 1001}), ("status", {"type": "none-such"}), ("quarantine/0", {}),
     ("quarantine/x", {}), (f"quarantine/{2**63}", {}), ("quarantine", {"before": 0}), ("quarantine/1", {"bytes": 65_537})],
)  # fmt: skip
async def test_what_is_beyond_all_bounds_is_refused(hub: httpx.AsyncClient, path: str, params: dict[str, Any]) -> None:
    assert is_problem(await hub.get(f"/v1/bridge/{path}", params=params), 400, "invalid")


@pytest.mark.parametrize("body", [{}, {"site": 3}, {"site": "berlin", "more": 1}, {"site": "berlin", "type": "events"}])
async def test_a_resync_that_cannot_be_asked_for_is_refused(hub: httpx.AsyncClient, body: Any) -> None:
    assert is_problem(await hub.post("/v1/bridge/resync", json=body), 400, "invalid")


async def test_a_node_whose_database_has_no_bridge_says_so(make_database: Callable[..., str]) -> None:
    async with api_over(make_database("queues")) as client:
        for path in LOOKS:
            if path != "/v1/bridge/types":
                answer = await client.get(path)
                assert is_problem(answer, 404, "no-bridge")
                assert "trunkline bridge run" in answer.json()["next"]
        lines = (await client.get("/metrics")).text.splitlines()
    assert 'trunkline_view_answers{view="bridge"} 1.0' in lines
    assert not any(line.startswith("trunkline_bridge_") for line in lines)


async def test_a_database_that_is_away_is_unavailable() -> None:
    async with api_over("host=127.0.0.1 port=1 dbname=x") as client:
        assert is_problem(await client.get("/v1/bridge/status"), 503, "unavailable")


async def test_readers_look_writers_ask_again_and_admins_delete() -> None:
    view = MemoryBridge()
    tokens = (token("reader"), token("writer", Role.WRITE), token("boss", Role.ADMIN))
    needed = {
        ("GET", "/v1/bridge/status"): Role.READ, ("GET", "/v1/bridge/quarantine/7"): Role.READ,
        ("POST", "/v1/bridge/quarantine/7"): Role.WRITE, ("POST", "/v1/bridge/resync"): Role.WRITE,
        ("DELETE", "/v1/bridge/quarantine/7"): Role.ADMIN, ("DELETE", "/v1/bridge/sites/paris"): Role.ADMIN,
    }  # fmt: skip
    ranks = {"reader": 0, "writer": 1, "boss": 2}
    async with client_over(MemoryNode(bridge=view), tokens=tokens) as client:
        for (method, path), role in needed.items():
            for who, rank in ranks.items():
                body = {"site": "paris"} if path.endswith("resync") else None
                answer = await client.request(method, path, json=body, headers=bearing(who))
                may = rank >= (Role.READ, Role.WRITE, Role.ADMIN).index(role)
                assert answer.status_code == (200 if may else 403), (method, path, who)
    assert [asked[0] for asked in view.asked if asked[0] not in ("status", "quarantine")] == [
        "retry", "retry", "resync", "resync", "drop", "forget",
    ]  # fmt: skip


# -- numbers


def samples(view: dict[str, Any]) -> dict[str, float]:
    return {
        f"{sample.name.removeprefix('trunkline_bridge_')}{dict(sample.labels)}": sample.value
        for family in bridge_metrics(view)
        for sample in family.samples
    }


def test_counters_are_per_site_and_the_rest_is_of_the_bridge(filled: FilledBridge) -> None:
    found = samples(BridgeOperating(lambda: psycopg.connect(filled.dsn), SHIPPED).numbers())
    assert 180 <= found["staleness_max_seconds{}"] < 600
    assert 4 <= found["oldest_waiting_seconds{}"] < 600
    paris = {"site": "paris"}
    for name, number in {
        "sites{}": 3, "silent_sites{}": 1, "inbox_entries{}": 1, "inbox_bytes{}": 2, "parked{}": 1, "quarantine_open{}": 1,
        "resyncs_wanted{}": 1, "running{}": 0, f"received_total{paris}": 9, f"applied_total{paris}": 8,
        f"rows_received_total{paris}": 90, f"rows_written_total{paris}": 7, f"conflated_total{paris}": 0,
        f"stale_total{paris}": 0, f"rejected_total{paris}": 0, f"quarantined_total{paris}": 0, f"discarded_total{paris}": 0,
    }.items():  # fmt: skip
        assert found[name] == number, name
    assert 180 <= found[f"staleness_seconds{paris}"] < 600


async def test_the_numbers_are_those_of_the_node_s_view(client: httpx.AsyncClient) -> None:
    lines = (await client.get("/metrics")).text.splitlines()
    for line in (
        'trunkline_bridge_received_total{site="paris"} 120.0',
        'trunkline_bridge_staleness_seconds{site="paris"} 32.5',
        "trunkline_bridge_parked 1.0",
        'trunkline_view_answers{view="bridge"} 1.0',
    ):
        assert line in lines
