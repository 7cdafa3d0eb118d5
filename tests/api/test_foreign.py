"""Without tokens, a page of another site in the user's browser can neither read nor post."""

from __future__ import annotations

import httpx
import pytest

from memory_node import MemoryNode, bearing, client_over, is_problem, token
from trunkline.api.foreign import foreign, names_loopback
from trunkline.core.config import Role


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:80", "127.8.9.10:1", "[::1]", "[::1]:8080"]
)
def test_names_of_this_machines_loopback(host: str) -> None:
    assert names_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0", "10.0.0.1",
        "localhost:x", "localhost@evil.example", "evil@localhost", "localhost/x", "127.0.0.1#", "127.1", "2130706433",
        "[::1", "::1", "[::ffff:10.0.0.1]", "localhost,evil.example", "localhost evil.example",
    ],
)  # fmt: skip
def test_everything_else_is_not(host: str) -> None:
    assert not names_loopback(host)


def test_a_host_must_be_there_and_only_once() -> None:
    assert foreign([(b"host", b"localhost")]) is None
    assert foreign([])
    assert foreign([(b"host", b"localhost"), (b"host", b"localhost")])


async def test_a_name_that_was_pointed_at_loopback_is_refused(client: httpx.AsyncClient, node: MemoryNode) -> None:
    for path in ("/v1/status", "/metrics", "/readyz", "/docs", "/openapi.json", "/nothing"):
        assert is_problem(await client.get(path, headers={"Host": "rebound.example:8080"}), 403, "foreign-page")
    assert is_problem(
        await client.post("/v1/event", json={"kind": "alarm"}, headers={"Host": "rebound.example"}), 403, "foreign-page"
    )
    assert node.events == []


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "https://evil.example:8080", "null", "http://localhost:3000", "", "x"]
)
async def test_a_simple_post_of_another_site_is_refused(client: httpx.AsyncClient, node: MemoryNode, origin: str) -> None:
    headers = {"Origin": origin, "Content-Type": "text/plain"}
    assert is_problem(await client.post("/v1/event", content='{"kind": "alarm"}', headers=headers), 403, "foreign-page")
    assert node.events == []


async def test_a_page_of_the_apis_own_may(client: httpx.AsyncClient, node: MemoryNode) -> None:
    headers = {"Host": "localhost:8080", "Origin": "http://localhost:8080"}
    assert (await client.post("/v1/event", json={}, headers=headers)).status_code == 200
    assert len(node.events) == 1


async def test_no_preflight_is_ever_answered_with_consent(client: httpx.AsyncClient) -> None:
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = await client.options("/v1/event", headers=headers)
    assert answer.status_code == 403
    assert not any(name.startswith("access-control") for name in answer.headers)


async def test_probes_of_liveness_may_use_any_name(client: httpx.AsyncClient) -> None:
    assert (await client.get("/livez", headers={"Host": "node.cluster.example"})).status_code == 200


async def test_with_tokens_the_node_may_have_any_name(node: MemoryNode) -> None:
    async with client_over(node, tokens=(token("app", Role.WRITE),)) as client:
        headers = bearing("app") | {"Host": "trunkline.example", "Origin": "https://console.example"}
        assert (await client.post("/v1/event", json={}, headers=headers)).status_code == 200
