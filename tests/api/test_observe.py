"""Every request has an id, which its answer and every line of its log carry; and no line carries what it must not."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import httpx
import pytest
import structlog

from memory_node import MemoryNode, bearing, client_over, token
from trunkline.api.requestid import request_id
from trunkline.core.config import Role
from trunkline.core.health import Check

Line = MutableMapping[str, Any]


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        yield lines


class TalkingNode(MemoryNode):
    def inject(self, payload: Any, metadata: dict[str, str]) -> list[str]:
        structlog.get_logger().info("routing")
        return super().inject(payload, metadata)


@pytest.mark.parametrize("offered", [b"7", b"a" * 128, b"0af7651916cd43dd8448eb211c80319c", b"shop-12.order_9"])
def test_a_sane_id_is_the_callers(offered: bytes) -> None:
    assert request_id(offered, bytes(16)) == offered.decode()


@pytest.mark.parametrize("offered", [None, b"", b"a" * 129, b"a b", b"a\nb", b"\xff", b"-a", b"a/b", b'a"', b"a=b"])
def test_any_other_is_replaced(offered: bytes | None) -> None:
    assert request_id(offered, bytes(15) + b"\x01") == "0" * 31 + "1"


async def test_the_answer_carries_the_id(client: httpx.AsyncClient) -> None:
    for path in ("/livez", "/v1/status", "/nothing"):
        assert (await client.get(path, headers={"X-Request-Id": "mine"})).headers["x-request-id"] == "mine"
    first, second = [(await client.get("/livez")).headers["x-request-id"] for _ in range(2)]
    assert first != second


async def test_every_line_of_a_request_carries_its_id_also_from_the_views_thread(lines: list[Line]) -> None:
    async with client_over(TalkingNode()) as client:
        await client.post("/v1/event", json={}, headers={"X-Request-Id": "one"})
        await client.post("/v1/event", json={}, headers={"X-Request-Id": "two"})
    assert [(line["event"], line["request_id"]) for line in lines] == [
        ("routing", "one"), ("request", "one"), ("routing", "two"), ("request", "two"),
    ]  # fmt: skip
    structlog.get_logger().info("after")
    assert "request_id" not in lines[-1]


async def test_the_line_of_a_request(lines: list[Line], node: MemoryNode) -> None:
    async with client_over(node, tokens=(token("shop-app", Role.WRITE),)) as client:
        await client.post("/v1/event?note=hidden", json={"pin": "4711"}, headers=bearing("shop-app"))
    (line,) = lines
    assert line.pop("ms") >= 0
    assert len(line.pop("request_id")) == 32
    assert line == {
        "event": "request", "log_level": "info", "method": "POST", "route": "/v1/event", "status": 200, "token": "shop-app",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "level"),
    [
        ("POST", "/v1/event", "info"),
        ("GET", "/v1/status", "debug"),
        ("GET", "/v1/nothing", "info"),
        ("DELETE", "/v1/status", "info"),
        ("GET", "/livez", "debug"),
        ("GET", "/readyz", "debug"),
        ("GET", "/metrics", "debug"),
    ],
)
async def test_writes_and_errors_are_info_the_rest_is_debug(
    lines: list[Line], client: httpx.AsyncClient, node: MemoryNode, method: str, path: str, level: str
) -> None:
    node.well.append(Check("disk", False, "full"))
    await client.request(method, path, content=b"{}" if method == "POST" else None)
    assert [line["log_level"] for line in lines if line["event"] == "request"] == [level]


async def test_a_flood_of_refusals_is_no_flood_of_lines(lines: list[Line], node: MemoryNode) -> None:
    async with client_over(node, tokens=(token("ops"),)) as client:
        statuses = [(await client.get("/v1/status")).status_code for _ in range(40)]
    assert statuses.count(429) > 25
    assert sum(line["log_level"] != "debug" for line in lines) == statuses.count(401)


async def test_no_line_has_a_token_a_body_a_query_or_a_strangers_path(lines: list[Line], node: MemoryNode) -> None:
    async with client_over(node, tokens=(token("ops", Role.WRITE),)) as client:
        for headers in (bearing("ops"), bearing("wrong-one")):
            await client.post("/v1/event?key=k3y", content=b'{"pin": "4711"', headers=headers)
            await client.get("/some-secret-path", headers=headers)
    written = repr(lines)
    assert len(lines) == 4
    assert not any(secret in written for secret in ("tl_ops", "tl_wrong-one", "4711", "k3y", "some-secret-path"))


async def test_a_defect_is_logged_with_its_traceback_under_the_requests_id(
    lines: list[Line], client: httpx.AsyncClient, node: MemoryNode
) -> None:
    node.fails = RuntimeError("what nobody foresaw")
    answer = await client.get("/v1/status")
    (defect,) = [line for line in lines if line["log_level"] == "error"]
    assert answer.json()["instance"] == f"urn:trunkline:request:{defect['request_id']}"
    assert defect["exc_info"] is node.fails
    assert defect["exc_info"].__traceback__ is not None
