"""The REST API over a node that is a plain object in memory: every answer, and every way to say no."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from trunkline.api.app import MAX_BODY, create_app
from trunkline.core.errors import Fenced, Invalid, Retryable, Terminal


class MemoryNode:
    """A node whose one route takes alarms."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, dict[str, str]]] = []
        self.threads: set[str] = set()
        self.fails: Exception | None = None
        self.not_ready = ""

    def inject(self, payload: Any, metadata: dict[str, str]) -> list[str]:
        self.threads.add(threading.current_thread().name)
        if self.fails is not None:
            raise self.fails
        self.events.append((payload, metadata))
        return ["alarm-to-hub"] if isinstance(payload, dict) and payload.get("kind") == "alarm" else []

    def status(self) -> dict[str, Any]:
        if self.fails is not None:
            raise self.fails
        return {"site": "a", "leader": True, "epoch": 17, "age_seconds": 0.5}

    def topology(self) -> dict[str, Any]:
        return {"parents": {"b": "c"}}

    def trunk(self) -> dict[str, Any]:
        return {"links": {"hub": {"sent": 3, "state": "up"}, "site-b": {"sent": 4}}, "sent": 7}

    def store(self, area: str, prefix: str) -> dict[str, Any]:
        return {"area": area, "prefix": prefix}

    def ready(self) -> tuple[bool, str]:
        return not self.not_ready, self.not_ready


@pytest.fixture
def node() -> MemoryNode:
    return MemoryNode()


@pytest.fixture
async def client(node: MemoryNode) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(node), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
        yield client


async def test_an_event_that_a_route_takes_is_durable(client: httpx.AsyncClient, node: MemoryNode) -> None:
    answer = await client.post("/v1/event", json={"kind": "alarm"})
    assert (answer.status_code, answer.json()) == (200, {"routes": ["alarm-to-hub"], "durable": True})
    assert [payload for payload, _ in node.events] == [{"kind": "alarm"}]


async def test_an_event_nobody_wants_is_no_mistake_and_is_not_kept(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/event", json=[1, None, "x"])
    assert (answer.status_code, answer.json()) == (200, {"routes": [], "durable": False})


async def test_inject_may_block_because_it_never_runs_in_the_event_loop(client: httpx.AsyncClient, node: MemoryNode) -> None:
    await client.post("/v1/event", json={})
    assert node.threads
    assert threading.current_thread().name not in node.threads


async def test_headers_become_metadata_but_secrets_do_not(client: httpx.AsyncClient, node: MemoryNode) -> None:
    secrets = {"Authorization": "Bearer x", "Cookie": "a=b"}
    await client.post("/v1/event", json={}, headers={"X-Request-Id": "7", **secrets})
    ((_, metadata),) = node.events
    assert metadata["x-request-id"] == "7"
    assert metadata["content-type"] == "application/json"
    assert not {"authorization", "cookie"} & set(metadata)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"{'a': 1}", b'{"a": NaN}'])
async def test_what_is_not_json_is_refused(client: httpx.AsyncClient, node: MemoryNode, body: bytes) -> None:
    answer = await client.post("/v1/event", content=body)
    assert answer.status_code == 400
    assert answer.json()["what"] == "event"
    assert "not JSON" in answer.json()["why"]
    assert node.events == []


def text_of(size: int) -> bytes:
    return b'"' + b"x" * (size - 2) + b'"'


async def test_a_body_may_have_one_mebibyte_and_no_byte_more(client: httpx.AsyncClient, node: MemoryNode) -> None:
    assert (await client.post("/v1/event", content=text_of(MAX_BODY))).status_code == 200
    answer = await client.post("/v1/event", content=text_of(MAX_BODY + 1))
    assert answer.status_code == 413
    assert set(answer.json()) == {"what", "why", "next"}
    assert len(node.events) == 1


async def test_a_body_is_measured_as_it_comes_whatever_its_headers_say(client: httpx.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 65536
            yield b"x" * 65536

    assert (await client.post("/v1/event", content=endless())).status_code == 413
    assert sent <= MAX_BODY + 2 * 65536


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Invalid("route r", "no id", "send one"), 400),
        (Retryable("database", "down", "wait"), 503),
        (Terminal("disk", "full", "free it"), 500),
        (Fenced("lease", "over", "stop"), 500),
    ],
)
async def test_an_error_says_what_why_and_what_next(client: httpx.AsyncClient, node: MemoryNode, error: Any, code: int) -> None:
    node.fails = error
    for answer in (await client.post("/v1/event", json={}), await client.get("/v1/status")):
        assert answer.status_code == code
        assert answer.json() == {"what": error.what, "why": error.why, "next": error.next_step}


async def test_a_defect_is_a_500_in_the_same_form_and_tells_no_inner_text(client: httpx.AsyncClient, node: MemoryNode) -> None:
    node.fails = RuntimeError("password=hunter2")
    answer = await client.post("/v1/event", json={})
    assert answer.status_code == 500
    assert set(answer.json()) == {"what", "why", "next"}
    assert "hunter2" not in answer.text


@pytest.mark.parametrize(("method", "path", "code"), [("GET", "/v1/nothing", 404), ("GET", "/v1/event", 405)])
async def test_what_the_framework_refuses_has_the_same_form(
    client: httpx.AsyncClient, method: str, path: str, code: int
) -> None:
    answer = await client.request(method, path)
    assert answer.status_code == code
    assert answer.json()["what"] == f"{method} {path}"
    assert set(answer.json()) == {"what", "why", "next"}


async def test_the_views_are_what_the_node_says(client: httpx.AsyncClient, node: MemoryNode) -> None:
    for path, expected in {
        "/v1/status": node.status(),
        "/v1/topology": node.topology(),
        "/v1/trunk": node.trunk(),
        "/v1/store/fleet": {"area": "fleet", "prefix": ""},
        "/v1/store/site:a?prefix=node:": {"area": "site:a", "prefix": "node:"},
    }.items():
        answer = await client.get(path)
        assert (answer.status_code, answer.json()) == (200, expected)


async def test_live_is_not_ready(client: httpx.AsyncClient, node: MemoryNode) -> None:
    assert (await client.get("/readyz")).status_code == 200
    node.not_ready = "migrating"
    assert (await client.get("/healthz")).status_code == 200
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["why"] == "migrating"


async def test_metrics_are_the_views_numbers_with_their_place_as_label(client: httpx.AsyncClient, node: MemoryNode) -> None:
    lines = (await client.get("/metrics")).text.splitlines()
    for line in (
        "trunkline_ready 1.0",
        'trunkline_status_leader{of=""} 1.0',
        'trunkline_status_epoch{of=""} 17.0',
        'trunkline_status_age_seconds{of=""} 0.5',
        'trunkline_trunk_sent{of="links.hub"} 3.0',
        'trunkline_trunk_sent{of="links.site-b"} 4.0',
        'trunkline_trunk_sent{of=""} 7.0',
    ):
        assert line in lines
    assert not any("state" in line for line in lines)


async def test_two_apps_in_one_process_have_metrics_of_their_own(client: httpx.AsyncClient) -> None:
    class Other(MemoryNode):
        def trunk(self) -> dict[str, Any]:
            return {"sent": 99}

    transport = httpx.ASGITransport(create_app(Other()))
    async with httpx.AsyncClient(transport=transport, base_url="http://other") as other:
        assert 'trunkline_trunk_sent{of=""} 99.0' in (await other.get("/metrics")).text
    assert 'trunkline_trunk_sent{of=""} 7.0' in (await client.get("/metrics")).text


async def test_the_schema_describes_the_event(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    assert "application/json" in paths["/v1/event"]["post"]["requestBody"]["content"]
    assert set(paths) >= {"/v1/status", "/v1/topology", "/v1/trunk", "/v1/store/{area}", "/healthz", "/readyz", "/metrics"}
