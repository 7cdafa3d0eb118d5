"""How far tokens reach among tenants: those that are bound to one, clients of a tenant, and events that are open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from memory_node import bearing, is_problem, token
from memory_routes import T, routed, simple
from trunkline.api.access import ACCESS, OF_TENANT
from trunkline.api.reach import reaches
from trunkline.core.config import Role
from trunkline.routes.keys import Tenant

OTHER = "/v1/orgs/myorg/applications/other"
TOKENS = (
    token("ops", Role.ADMIN),
    token("anybody", Role.WRITE),
    token("mine", Role.WRITE, "myorg/myapp"),
    token("org", Role.WRITE, "myorg"),
    token("stranger", Role.ADMIN, "elsewhere"),
    token("looker", Role.READ, "myorg/myapp"),
)
MINE = {"orgId": "myorg", "appId": "myapp"}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with routed() as at, at.client(tokens=TOKENS) as client:
        for address in (T, OTHER):
            assert (await client.put(address, json={}, headers=bearing("ops"))).status_code == 200
        yield client


def test_a_binding_is_an_organisation_or_one_of_its_applications() -> None:
    tenant = Tenant("a", "b")
    assert [reaches(bound, tenant) for bound in (None, "a", "a/b", "b", "a/", "a/c", "")] == [True] * 3 + [False] * 4


@pytest.mark.parametrize(
    ("name", "addresses"), [("mine", {T}), ("org", {T, OTHER}), ("anybody", {T, OTHER}), ("stranger", set())]
)
async def test_a_token_reaches_exactly_its_tenants(client: httpx.AsyncClient, name: str, addresses: set[str]) -> None:
    for address in (T, OTHER):
        answers = [
            await client.get(f"{address}/routes", headers=bearing(name)),
            await client.put(f"{address}/routes/r", json=simple(), headers=bearing(name)),
            await client.get(f"/ears{address}/routes/r", headers=bearing(name)),
            await client.get(address, headers=bearing(name)),
            await client.get(f"{address}/senders", headers=bearing(name)),
            await client.delete(f"{address}/routes/r", headers=bearing(name)),
        ]
        if address in addresses:
            assert {answer.status_code for answer in answers} == {200}
        else:
            assert all(is_problem(answer, 403, "forbidden") for answer in answers)


async def test_every_address_of_a_tenant_is_closed_to_tokens_of_another(client: httpx.AsyncClient) -> None:
    for (method, path), access in ACCESS.items():
        if path.startswith(OF_TENANT):
            address = path.format(org="myorg", app="myapp", id="x", name="x", path="x")
            answer = await client.request(method, address, headers=bearing("stranger"))
            assert is_problem(answer, 403, "forbidden"), (method, path, access)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/routes/status?org=myorg&app=other", None),
        ("POST", "/v1/routes/explain", {"payload": 1, "tenant": {"orgId": "myorg", "appId": "other"}}),
        ("POST", "/v1/routes/explain", {"payload": 1}),
        ("POST", "/v1/routes/test", {"id": "x", "events": [{"payload": 1}], "tenant": {"orgId": "myorg", "appId": "other"}}),
        ("POST", "/v1/routes/apply", {"changes": [{"put": simple()}]}),
        ("POST", "/v1/routes/apply", {"changes": [{"remove": {"id": "x"}}], "dry_run": True}),
        ("GET", "/v1/routes", None),
        ("GET", "/v1/tenants", None),
        ("GET", "/v1/senders", None),
    ],
)
async def test_a_tenant_that_a_query_or_body_names_is_closed_as_well(
    client: httpx.AsyncClient, method: str, path: str, body: Any
) -> None:
    assert is_problem(await client.request(method, path, json=body, headers=bearing("mine")), 403, "forbidden")


async def test_a_bound_token_may_apply_and_look_at_what_is_its_own(client: httpx.AsyncClient) -> None:
    changes = {"changes": [{"put": simple(id="x", tenant=MINE)}]}
    assert (await client.post("/v1/routes/apply", json=changes, headers=bearing("mine"))).status_code == 200
    status = await client.get("/v1/routes/status", headers=bearing("looker"))
    assert [route["id"] for route in status.json()["routes"]] == ["x"]
    assert is_problem(await client.get("/v1/routes/status", headers=bearing("org")), 403, "forbidden")
    explained = await client.post("/v1/routes/explain", json={"payload": 1, "tenant": MINE}, headers=bearing("looker"))
    assert [route["id"] for route in explained.json()["routes"]] == ["x"]


async def test_where_a_tenant_names_clients_nobody_else_changes_its_routes(client: httpx.AsyncClient) -> None:
    await client.put(T, json={"clientIds": ["mine"]}, headers=bearing("ops"))
    changes = {"changes": [{"put": simple(id="x", tenant=MINE)}]}
    for name, status in {"mine": 200, "ops": 200, "anybody": 403, "org": 403}.items():
        assert (await client.put(f"{T}/routes/r", json=simple(), headers=bearing(name))).status_code == status
        assert (await client.put(f"{T}/fragments/f", json={"plugin": "nop"}, headers=bearing(name))).status_code == status
        assert (await client.post("/v1/routes/apply", json=changes, headers=bearing(name))).status_code == status
        assert (await client.get(f"{T}/routes/r", headers=bearing(name))).status_code == 200
    assert (await client.put(f"{OTHER}/routes/r", json=simple(), headers=bearing("anybody"))).status_code == 200


async def test_open_events_need_no_token_and_nothing_else_is_open(client: httpx.AsyncClient) -> None:
    await client.put(f"{T}/routes/r", json=simple(), headers=bearing("ops"))
    sends = [
        ("POST", f"{T}/routes/r/event"),
        ("POST", f"{T}/event"),
        ("PUT", f"{T}/event/a/b"),
        ("POST", f"/ears{T}/routes/r/event"),
    ]
    for method, path in sends:
        assert is_problem(await client.request(method, path, json={}), 401, "unauthenticated")
    await client.put(T, json={"openEventApi": True}, headers=bearing("ops"))
    for method, path in sends:
        for headers in ({}, bearing("looker"), bearing("stranger")):
            answer = await client.request(method, path, json={}, headers=headers)
            assert is_problem(answer, 503, "unavailable"), answer.text  # it came through: but no route runs here
    assert is_problem(await client.post(f"{T}/event", json={}, headers=bearing("nobody")), 503, "unavailable")
    assert is_problem(await client.get(f"{T}/routes"), 401, "unauthenticated")
    assert is_problem(await client.put(f"{T}/routes/r", json=simple()), 401, "unauthenticated")
    assert is_problem(await client.post(f"{OTHER}/event", json={}), 401, "unauthenticated")
