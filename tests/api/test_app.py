"""The REST API over a node in memory: every answer, and every way to say no."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest
import structlog

from memory_node import MemoryNode, client_over, is_problem
from memory_paths import MemoryPaths
from trunkline.core.errors import Fenced, Invalid, Retryable, Terminal
from trunkline.core.health import Check


async def test_an_event_that_a_route_takes_is_durable(client: httpx.AsyncClient, node: MemoryNode) -> None:
    answer = await client.post("/v1/event", json={"kind": "alarm"})
    assert (answer.status_code, answer.json()) == (200, {"routes": ["alarm-to-hub"], "durable": True})
    assert [payload for payload, _ in node.events] == [{"kind": "alarm"}]


async def test_an_event_nobody_wants_is_no_mistake_and_is_not_kept(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/event", json=[1, None, "x"])
    assert (answer.status_code, answer.json()) == (200, {"routes": [], "durable": False})


async def test_a_view_may_block_because_it_never_runs_in_the_event_loop(client: httpx.AsyncClient, node: MemoryNode) -> None:
    await client.post("/v1/event", json={})
    assert node.threads
    assert threading.current_thread().name not in node.threads


async def test_headers_become_metadata_but_secrets_do_not(client: httpx.AsyncClient, node: MemoryNode) -> None:
    secrets = {"Authorization": "Bearer x", "Cookie": "a=b", "Proxy-Authorization": "Basic x"}
    await client.post("/v1/event", json={}, headers={"X-Request-Id": "7", "X-Shop": "12", **secrets})
    ((_, metadata),) = node.events
    assert (metadata["x-request-id"], metadata["x-shop"]) == ("7", "12")
    assert metadata["content-type"] == "application/json"
    assert not {"authorization", "cookie", "proxy-authorization"} & set(metadata)


async def test_an_event_carries_its_requests_id_also_when_the_api_made_it(client: httpx.AsyncClient, node: MemoryNode) -> None:
    answer = await client.post("/v1/event", json={})
    ((_, metadata),) = node.events
    assert metadata["x-request-id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"{'a': 1}", b'{"a": NaN}'])
async def test_what_is_not_json_is_refused(client: httpx.AsyncClient, node: MemoryNode, body: bytes) -> None:
    answer = await client.post("/v1/event", content=body)
    assert is_problem(answer, 400, "invalid")
    assert answer.json()["detail"].startswith("event: not JSON")
    assert node.events == []


@pytest.mark.parametrize(("depth", "status"), [(64, 200), (65, 400), (5000, 400)])
async def test_json_may_be_nested_64_deep(client: httpx.AsyncClient, node: MemoryNode, depth: int, status: int) -> None:
    body = b"[" * depth + b"]" * depth
    assert (await client.post("/v1/event", content=body)).status_code == status
    assert len(node.events) == (status == 200)


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (Invalid("route r", "no id", "send one"), 400, "invalid"),
        (Retryable("database", "down", "wait"), 503, "unavailable"),
        (Terminal("disk", "full", "free it"), 500, "failed"),
        (Fenced("lease", "over", "stop"), 500, "failed"),
    ],
)
async def test_an_error_says_what_why_and_what_next(
    client: httpx.AsyncClient, node: MemoryNode, error: Any, status: int, slug: str
) -> None:
    node.fails = error
    for answer in (await client.post("/v1/event", json={}), await client.get("/v1/status")):
        assert is_problem(answer, status, slug)
        assert answer.json()["detail"] == f"{error.what}: {error.why}"
        assert answer.json()["next"] == error.next_step


async def test_a_view_that_does_not_answer_is_unavailable(client: httpx.AsyncClient, node: MemoryNode) -> None:
    node.fails = TimeoutError()
    assert is_problem(await client.get("/v1/status"), 503, "unavailable")


async def test_a_defect_is_a_500_in_the_same_form_and_tells_no_inner_text(client: httpx.AsyncClient, node: MemoryNode) -> None:
    node.fails = RuntimeError("password=hunter2")
    with structlog.testing.capture_logs():
        answer = await client.post("/v1/event", json={})
    assert is_problem(answer, 500, "defect")
    assert "hunter2" not in answer.text
    assert "RuntimeError" not in answer.text


@pytest.mark.parametrize(
    ("method", "path", "status", "slug"),
    [
        ("GET", "/v1/nothing", 404, "not-found"),
        ("GET", "/v1/status/", 404, "not-found"),
        ("GET", "/healthz", 404, "not-found"),
        ("GET", "/v1/event", 405, "method-not-allowed"),
        ("BREW", "/v1/status", 405, "method-not-allowed"),
    ],
)
async def test_what_is_not_there_is_refused_in_the_same_form(
    client: httpx.AsyncClient, method: str, path: str, status: int, slug: str
) -> None:
    answer = await client.request(method, path)
    assert is_problem(answer, status, slug)
    assert answer.json()["detail"].startswith(f"{method} {path}: ")
    assert ("allow" in answer.headers) == (status == 405)


async def test_the_views_are_what_the_node_says(client: httpx.AsyncClient, node: MemoryNode) -> None:
    for path, expected in {
        "/v1/status": node.status(),
        "/v1/topology": node.topology(),
        "/v1/topology/table": node.topology_table(),
        "/v1/trunk": node.trunk(),
    }.items():
        answer = await client.get(path)
        assert (answer.status_code, answer.json()) == (200, expected)


async def test_ready_when_every_check_is_well(client: httpx.AsyncClient) -> None:
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()) == (
        200,
        {
            "ready": True,
            "checks": [
                {"name": "database", "ok": True, "reason": "answers"},
                {"name": "lease", "ok": True, "reason": "epoch 17"},
            ],
        },
    )


async def test_live_is_not_ready_and_the_reason_is_said(client: httpx.AsyncClient, node: MemoryNode) -> None:
    node.well[1] = Check("lease", False, "held by b/node-2")
    assert (await client.get("/livez")).json() == {"live": True}
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert answer.json()["checks"][1] == {"name": "lease", "ok": False, "reason": "held by b/node-2"}


@pytest.mark.parametrize("error", [Retryable("node", "it has not started yet", "ask again"), TimeoutError()])
async def test_a_node_that_cannot_be_asked_is_live_and_not_ready(
    client: httpx.AsyncClient, node: MemoryNode, error: Exception
) -> None:
    node.fails = error
    assert (await client.get("/livez")).status_code == 200
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert [(check["name"], check["ok"]) for check in answer.json()["checks"]] == [("node", False)]


async def test_nothing_is_kept_by_caches_or_guessed_by_browsers(client: httpx.AsyncClient) -> None:
    for path in ("/livez", "/v1/status", "/nothing"):
        headers = (await client.get(path)).headers
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


async def test_the_page_of_the_api_needs_no_script_and_nobody_else(client: httpx.AsyncClient) -> None:
    answer = await client.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for shown in ("/v1/event", "/v1/store/{area}", "Run one event through the routes", "413", "/openapi.json"):
        assert shown in answer.text
    assert not any(foreign in answer.text for foreign in ("<script", "http://cdn", "https://", "src="))


async def test_two_apps_in_one_process_have_numbers_of_their_own(client: httpx.AsyncClient) -> None:
    async with client_over(MemoryNode(paths=MemoryPaths("lyon"))) as other:
        assert "trunkline_topology_neighbours 1.0" in (await other.get("/metrics")).text
    assert "trunkline_topology_neighbours 2.0" in (await client.get("/metrics")).text
