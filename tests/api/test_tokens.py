"""Tokens: how they are made and found, what each role reaches, what a tenant's token may do, and what failing costs."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_node import MemoryNode, bearing, client_of, client_over, is_problem, token
from trunkline.api.access import ACCESS
from trunkline.api.app import create_app
from trunkline.api.tokens import Caller, Keyring, bearer, hash_of, looks_like_a_token, new_token
from trunkline.core.clock import ManualClock
from trunkline.core.config import ApiConfig, Role, TokenConfig
from trunkline.core.errors import Invalid
from trunkline.core.secret import Secret

TOKENS = (
    token("reader", Role.READ),
    token("writer", Role.WRITE),
    token("boss", Role.ADMIN),
    token("acme-writer", Role.WRITE, "acme"),
    token("acme-boss", Role.ADMIN, "acme"),
)
GUARDED = sorted(pair for pair, access in ACCESS.items() if access.role is not None)
VIEWS = [
    "/v1/status",
    "/v1/topology",
    "/v1/topology/table",
    "/v1/topology/why/lyon",
    "/v1/trunk",
    "/v1/store/fleet",
    "/metrics",
]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def guarded(node: MemoryNode, clock: ManualClock) -> Any:
    async with client_over(node, clock, tokens=TOKENS) as client:
        yield client


@given(st.binary(min_size=32, max_size=32))
def test_a_new_token_is_recognised_and_found_by_its_hash_alone(random: bytes) -> None:
    made = new_token(random)
    assert made.startswith("tl_")
    assert looks_like_a_token(made)
    ring = Keyring([TokenConfig(name="n", sha256=Secret(hash_of(made.encode())), role=Role.WRITE, tenant="t")])
    assert ring.caller(made.encode()) == Caller("n", Role.WRITE, "t")
    assert ring.caller(hash_of(made.encode()).encode()) is None


@pytest.mark.parametrize("sha256", ["", "x" * 64, "a" * 63, "tl_" + "a" * 43])
def test_a_hash_that_is_none_is_refused_when_the_app_is_made(sha256: str) -> None:
    broken = TokenConfig.model_construct(name="ops", sha256=Secret(sha256), role=Role.READ, tenant=None)
    with pytest.raises(Invalid, match="64 hex digits") as refused:
        Keyring([broken])
    assert sha256 not in str(refused.value) or not sha256


def test_a_hash_may_be_written_in_capitals() -> None:
    ring = Keyring([TokenConfig(name="n", sha256=Secret(hash_of(b"tl_x").upper()))])
    assert ring.caller(b"tl_x") is not None


@pytest.mark.parametrize(
    ("values", "token"),
    [
        ([b"Bearer tl_x"], b"tl_x"),
        ([b"bearer  tl_x "], b"tl_x"),
        ([], None),
        ([b""], None),
        ([b"Bearer"], None),
        ([b"Bearer "], None),
        ([b"Basic tl_x"], None),
        ([b"tl_x"], None),
        ([b"Bearer tl_x", b"Bearer tl_y"], None),
    ],
)
def test_a_token_is_one_bearer(values: list[bytes], token: bytes | None) -> None:
    assert bearer([(b"host", b"x"), *((b"authorization", value) for value in values)]) == token


def test_roles_include_the_ones_before() -> None:
    roles = [Role.READ, Role.WRITE, Role.ADMIN]
    for n, mine in enumerate(roles):
        assert [Caller("x", mine).may(needed) for needed in roles] == [m <= n for m in range(3)]


@pytest.mark.parametrize(("method", "path"), [*GUARDED, ("GET", "/nothing"), ("GET", "/v1/nothing"), ("DELETE", "/v1/status")])
async def test_nothing_is_said_to_who_has_no_token(
    guarded: httpx.AsyncClient, node: MemoryNode, method: str, path: str
) -> None:
    for headers in ({}, bearing("stranger"), {"Authorization": "Basic dGw6eA=="}):
        answer = await guarded.request(method, path, headers=headers)
        assert is_problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith('Bearer realm="trunkline"')
    assert node.events == []


async def test_a_reader_sees_and_a_writer_also_puts_in(guarded: httpx.AsyncClient, node: MemoryNode) -> None:
    for name in ("reader", "writer", "boss"):
        for path in (*VIEWS, "/docs", "/openapi.json"):
            assert (await guarded.get(path, headers=bearing(name))).status_code == 200
    answer = await guarded.post("/v1/event", json={}, headers=bearing("reader"))
    assert is_problem(answer, 403, "forbidden")
    assert "role write" in answer.json()["detail"]
    for name in ("writer", "boss"):
        assert (await guarded.post("/v1/event", json={}, headers=bearing(name))).status_code == 200
    assert len(node.events) == 2


async def test_whoever_has_a_token_learns_what_is_not_there(guarded: httpx.AsyncClient) -> None:
    assert is_problem(await guarded.get("/nothing", headers=bearing("reader")), 404, "not-found")
    assert is_problem(await guarded.delete("/v1/status", headers=bearing("reader")), 405, "method-not-allowed")


async def test_an_endpoint_nobody_thought_of_needs_an_admin(node: MemoryNode) -> None:
    app = create_app(node, ApiConfig(tokens=TOKENS))

    @app.get("/v1/new")
    async def new() -> str:
        return "new"

    async with client_of(app) as client:
        reached = {
            name: (await client.get("/v1/new", headers=bearing(name))).status_code for name in ("writer", "boss", "acme-boss")
        }
    assert reached == {"writer": 403, "boss": 200, "acme-boss": 403}


@pytest.mark.parametrize("path", VIEWS)
@pytest.mark.parametrize("name", ["acme-writer", "acme-boss"])
async def test_a_tenants_token_sees_no_view_since_each_shows_all_tenants(
    guarded: httpx.AsyncClient, path: str, name: str
) -> None:
    answer = await guarded.get(path, headers=bearing(name))
    assert is_problem(answer, 403, "forbidden")
    assert "'acme'" in answer.json()["detail"]


async def test_a_tenants_event_is_marked_with_the_tenant(guarded: httpx.AsyncClient, node: MemoryNode) -> None:
    for headers in ({}, {"X-Trunkline-Tenant": "acme"}):
        assert (await guarded.post("/v1/event", json={}, headers=bearing("acme-writer") | headers)).status_code == 200
    assert [metadata["x-trunkline-tenant"] for _, metadata in node.events] == ["acme", "acme"]


async def test_a_tenants_token_cannot_speak_for_another(guarded: httpx.AsyncClient, node: MemoryNode) -> None:
    for claim in ([("X-Trunkline-Tenant", "other")], [("X-Trunkline-Tenant", "other"), ("x-trunkline-tenant", "acme")]):
        headers = [*bearing("acme-writer").items(), *claim]
        assert is_problem(await guarded.post("/v1/event", json={}, headers=headers), 403, "forbidden")
    assert node.events == []


async def test_a_token_of_no_tenant_may_speak_for_any(guarded: httpx.AsyncClient, node: MemoryNode) -> None:
    await guarded.post("/v1/event", json={}, headers=bearing("writer") | {"X-Trunkline-Tenant": "other"})
    ((_, metadata),) = node.events
    assert metadata["x-trunkline-tenant"] == "other"


@pytest.mark.parametrize(
    ("headers", "reasons"),
    [({}, False), (bearing("stranger"), False), (bearing("acme-boss"), False), (bearing("reader"), True)],
)
async def test_probes_need_no_token_but_reasons_do(guarded: httpx.AsyncClient, headers: dict[str, str], reasons: bool) -> None:
    assert (await guarded.get("/livez", headers=headers)).status_code == 200
    answer = await guarded.get("/readyz", headers=headers)
    assert answer.status_code == 200
    assert [check["name"] for check in answer.json()["checks"]] == ["database", "lease"]
    assert all(("reason" in check) == reasons for check in answer.json()["checks"])


async def test_failed_attempts_get_429_after_ten_and_one_more_each_second(
    guarded: httpx.AsyncClient, clock: ManualClock
) -> None:
    tries = [(await guarded.get("/v1/status", headers=bearing(f"guess-{n}"))).status_code for n in range(15)]
    assert tries == [401] * 10 + [429] * 5
    clock.advance(1.0)
    answers = [await guarded.get("/v1/status") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [401, 429]
    assert answers[1].headers["retry-after"] == "1"
    assert is_problem(answers[1], 429, "too-many-requests")


async def test_who_fails_locks_out_neither_a_right_token_nor_another_address(node: MemoryNode) -> None:
    app = create_app(node, ApiConfig(tokens=TOKENS), clock=ManualClock())
    async with client_of(app, "192.0.2.1") as guesser, client_of(app, "192.0.2.2") as stranger:
        for _ in range(20):
            await guesser.get("/v1/status")
        assert (await guesser.get("/v1/status")).status_code == 429
        assert (await guesser.get("/v1/status", headers=bearing("reader"))).status_code == 200
        assert (await stranger.get("/v1/status")).status_code == 401


async def test_addresses_of_one_ipv6_network_are_one(node: MemoryNode) -> None:
    app = create_app(node, ApiConfig(tokens=TOKENS), clock=ManualClock())
    statuses = []
    for n in range(12):
        async with client_of(app, f"2001:db8::{n:x}") as client:
            statuses.append((await client.get("/v1/status")).status_code)
    assert statuses == [401] * 10 + [429] * 2
