"""What one request, and all of them together, may take: bytes, requests per second, seconds, places."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import httpx
import pytest

from memory_node import MemoryNode, bearing, client_over, is_problem, running, token
from trunkline.api.app import VIEW_THREADS, create_app
from trunkline.api.limits import BULK_BYTES, MOST_REQUESTS
from trunkline.core.clock import ManualClock
from trunkline.core.config import ApiConfig, Role
from waiting import eventually

MOST = 4096


def text_of(size: int) -> bytes:
    return b'"' + b"x" * (size - 2) + b'"'


async def test_a_body_may_have_so_many_bytes_and_not_one_more(node: MemoryNode) -> None:
    async with client_over(node, max_body_bytes=MOST) as client:
        assert (await client.post("/v1/event", content=text_of(MOST))).status_code == 200
        answer = await client.post("/v1/event", content=text_of(MOST + 1))
    assert is_problem(answer, 413, "too-large")
    assert len(node.events) == 1


async def test_a_body_that_comes_in_pieces_is_measured_as_it_comes(node: MemoryNode) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1024
            yield b"x" * 1024

    async with client_over(node, max_body_bytes=MOST) as client:
        assert is_problem(await client.post("/v1/event", content=endless()), 413, "too-large")
    assert sent <= MOST + 2 * 1024


async def test_a_body_that_announces_too_much_is_refused_before_it_is_read(node: MemoryNode) -> None:
    read = False

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read = True
        yield b"1"

    async with client_over(node, max_body_bytes=MOST) as client:
        answer = await client.post("/v1/event", content=body(), headers={"Content-Length": str(MOST + 1)})
    assert is_problem(answer, 413, "too-large")
    assert not read


async def test_a_table_of_routes_may_be_larger_than_other_bodies(node: MemoryNode) -> None:
    async with client_over(node, max_body_bytes=MOST) as client:
        answer = await client.post("/v1/routes/apply", content=text_of(MOST + 1))
        assert answer.status_code not in (413, 500), answer.text
        answer = await client.post("/v1/routes/apply", content=b"1", headers={"Content-Length": str(BULK_BYTES + 1)})
    assert is_problem(answer, 413, "too-large")


async def test_requests_have_a_rate_with_bursts_of_twice_that(node: MemoryNode) -> None:
    clock = ManualClock()
    async with client_over(node, clock, requests_per_second=5) as client:
        assert [(await client.get("/v1/status")).status_code for _ in range(12)] == [200] * 10 + [429] * 2
        answer = await client.get("/v1/status")
        assert is_problem(answer, 429, "too-many-requests")
        assert answer.headers["retry-after"] == "1"
        clock.advance(1.0)
        assert [(await client.get("/v1/status")).status_code for _ in range(6)] == [200] * 5 + [429]


async def test_each_token_has_a_rate_of_its_own(node: MemoryNode) -> None:
    tokens = (token("a"), token("b"))
    async with client_over(node, ManualClock(), tokens=tokens, requests_per_second=0.5) as client:
        assert [(await client.get("/v1/status", headers=bearing("a"))).status_code for _ in range(2)] == [200, 429]
        assert (await client.get("/v1/status", headers=bearing("b"))).status_code == 200


async def test_work_takes_no_probe_away(node: MemoryNode) -> None:
    async with client_over(node, ManualClock(), requests_per_second=1) as client:
        assert [(await client.get("/v1/status")).status_code for _ in range(3)] == [200, 200, 429]
        assert [(await client.get("/readyz")).status_code for _ in range(3)] == [200, 200, 429]
        assert {(await client.get("/livez")).status_code for _ in range(50)} == {200}


async def test_a_request_that_takes_too_long_is_answered_and_its_work_is_not_waited_for(node: MemoryNode) -> None:
    node.blocks = threading.Event()
    async with client_over(node, request_seconds=0.1) as client:
        answer = await client.post("/v1/event", json={"kind": "alarm"})
        assert is_problem(answer, 503, "too-slow")
        assert "may still be done" in answer.json()["detail"]
        node.blocks.set()


async def test_a_body_that_drips_is_cut(node: MemoryNode) -> None:
    async with running(create_app(node, ApiConfig(request_seconds=0.3))) as (address, _):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = b"POST /v1/event HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head)
        dripping = asyncio.create_task(drip(writer))
        answer = await asyncio.wait_for(reader.readuntil(b"}"), 10)
        dripping.cancel()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"urn:trunkline:problem:too-slow" in answer
    assert node.events == []


async def drip(writer: asyncio.StreamWriter) -> None:
    while not writer.is_closing():
        writer.write(b"1\r\n \r\n")
        await asyncio.sleep(0.02)


async def test_so_many_run_at_once_and_overload_stops_no_probe(node: MemoryNode) -> None:
    node.blocks = threading.Event()
    async with client_over(node) as client, asyncio.TaskGroup() as group:
        posts = [group.create_task(client.post("/v1/event", json={})) for _ in range(MOST_REQUESTS)]
        for _ in range(VIEW_THREADS):
            assert await asyncio.to_thread(node.blocked.acquire, timeout=30)
        answer = await client.post("/v1/event", json={})
        assert is_problem(answer, 503, "busy")
        assert answer.headers["retry-after"] == "1"
        assert (await client.get("/livez")).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
        node.blocks.set()
        assert {(await post).status_code for post in posts} == {200}
        assert (await client.post("/v1/event", json={})).status_code == 200


async def test_work_nobody_waits_for_keeps_its_thread_and_what_did_not_begin_never_does(node: MemoryNode) -> None:
    node.blocks = threading.Event()
    async with client_over(node, request_seconds=2.0) as client:
        answers = await asyncio.gather(*(client.post("/v1/event", json={}) for _ in range(VIEW_THREADS + 8)))
        assert {answer.status_code for answer in answers} == {503}
        node.blocks.set()
        await asyncio.to_thread(eventually, lambda: len(node.events) >= VIEW_THREADS)
        assert (await client.post("/v1/event", json={"kind": "last"})).status_code == 200
    assert len(node.events) == VIEW_THREADS + 1


@pytest.mark.parametrize("name", ["write", "read"])
async def test_who_may_not_write_does_not_get_a_body_read(node: MemoryNode, name: str) -> None:
    read = False

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read = True
        yield b"{}"

    async with client_over(node, tokens=(token(name, Role(name)),)) as client:
        answer = await client.post("/v1/event", content=body(), headers=bearing(name))
    assert (answer.status_code, read) == ((200, True) if name == "write" else (403, False))


async def test_a_client_that_goes_away_leaves_no_event_and_no_defect(node: MemoryNode) -> None:
    app = create_app(node)
    async with running(app) as (address, _):
        host, _, port = address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/event HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{}")
        await writer.drain()
        writer.close()
        gone = 'trunkline_http_requests_total{method="POST",route="/v1/event",status="400"} 1.0'
        await asyncio.to_thread(eventually, lambda: gone in httpx.get(f"http://{address}/metrics").text, 30)
    assert node.events == []
