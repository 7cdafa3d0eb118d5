"""Watching the store over the API, on real sockets: nothing is missed unsaid, nobody holds the node up, every stream ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from memory_node import MemoryNode, is_problem, running
from memory_store import MemoryStore
from trunkline.api import limits, storewatch
from trunkline.api.app import create_app
from trunkline.api.connection import Connection
from trunkline.api.server import GRACE_SECONDS
from trunkline.core.clock import ManualClock
from trunkline.core.config import ApiConfig
from trunkline.core.errors import Retryable
from trunkline.store.values import MAX_VALUE
from waiting import eventually

WATCH = "/v1/store/fleet/watch"
Lines = AsyncIterator[dict[str, Any]]


@contextlib.asynccontextmanager
async def watching(address: str, **query: Any) -> AsyncIterator[Lines]:
    async with (
        httpx.AsyncClient(timeout=30) as client,
        client.stream("GET", f"http://{address}{WATCH}", params=query) as answer,
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")

        async def lines() -> Lines:
            async for line in answer.aiter_lines():
                yield json.loads(line)

        yield lines()


async def until(lines: Lines, event: str) -> list[dict[str, Any]]:
    """Everything up to the first of these events, without those that only say that the stream lives."""
    found: list[dict[str, Any]] = []
    async for line in lines:
        if line["event"] != "alive":
            found.append(line)
        if line["event"] == event:
            return found
    raise AssertionError(f"the stream ended before {event}: {found}")


def brief(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(event[name] for name in ("event", "key", "text") if name in event) for event in events]


async def test_first_what_is_there_then_every_change() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    store.write("a", b"1")
    store.write("b", b"1", ttl_ms=5_000)
    async with running(create_app(MemoryNode(store))) as (address, _), watching(address) as lines:
        assert brief(await until(lines, "snapshot_done")) == [("value", "a", "1"), ("value", "b", "1"), ("snapshot_done",)]
        store.write("a", b"2", version=2)
        (changed,) = await until(lines, "value")
        assert (changed["key"], changed["text"], changed["version"], changed["skipped"]) == ("a", "2", 2, 0)
        assert changed["originator"] == "lyon/node-1"
        store.erase("fleet", ["a"])
        assert brief(await until(lines, "erased")) == [("erased", "a", "")]
        clock.advance(6)
        store.tick()
        assert brief(await until(lines, "expired")) == [("expired", "b")]


async def test_filters_hold_for_what_is_there_and_for_changes() -> None:
    store = MemoryStore()
    for key in ("app/a", "web/b", "app/c"):
        store.write(key, b"1", originator="lyon/node-1" if key == "app/c" else "rome/node-1")
    async with (
        running(create_app(MemoryNode(store))) as (address, _),
        watching(address, prefix="app/", originator="lyon/node-1", match="all") as lines,
    ):
        assert brief(await until(lines, "snapshot_done")) == [("value", "app/c", "1"), ("snapshot_done",)]
        store.write("web/b", b"2", version=2)
        store.write("app/d", b"2")
        assert brief(await until(lines, "value")) == [("value", "app/d", "2")]


async def test_refreshes_are_told_to_who_asks_for_them() -> None:
    store = MemoryStore()
    store.write("a", b"1", ttl_ms=60_000)
    async with running(create_app(MemoryNode(store))) as (address, _), contextlib.AsyncExitStack() as stack:
        curious = await stack.enter_async_context(watching(address, ttl=True))
        other = await stack.enter_async_context(watching(address))
        await until(curious, "snapshot_done")
        await until(other, "snapshot_done")
        store.refresh("fleet", {"a": 90_000})
        store.write("b", b"1")
        assert [(e["event"], e["key"]) for e in await until(curious, "value")] == [("ttl", "a"), ("value", "b")]
        assert [(e["event"], e["key"]) for e in await until(other, "value")] == [("value", "b")]


async def test_without_snapshot_only_changes_come_and_without_values_no_bytes() -> None:
    store = MemoryStore()
    for number in range(100):
        store.write(f"k{number}", b"1")
    async with (
        running(create_app(MemoryNode(store))) as (address, _),
        watching(address, snapshot=False, values=False) as lines,
    ):
        assert brief(await until(lines, "snapshot_done")) == [("snapshot_done",)]
        store.write("new", b"12")
        (event,) = await until(lines, "value")
    assert (event["key"], event["bytes"]) == ("new", 2)
    assert not {"text", "base64"} & set(event)


@pytest.mark.parametrize("query", ["key=(", "key=(a*)*", "match=x", "ttl=perhaps"])
async def test_what_is_wrong_with_a_watch_is_said_before_it_begins(query: str) -> None:
    node = MemoryNode()
    async with running(create_app(node)) as (address, _), httpx.AsyncClient() as client:
        assert is_problem(await client.get(f"http://{address}{WATCH}?{query}"), 400, "invalid")
    assert node.store.watches() == 0


async def test_a_quiet_stream_says_that_it_lives_and_no_limit_of_seconds_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storewatch, "ALIVE_SECONDS", 0.1)
    app = create_app(MemoryNode(), ApiConfig(request_seconds=0.2))
    async with running(app) as (address, _), watching(address) as lines:
        await until(lines, "snapshot_done")
        alive = [line async for line, _ in _first(lines, 5)]
    assert alive == [{"event": "alive"}] * 5


async def _first(lines: Lines, count: int) -> AsyncIterator[tuple[dict[str, Any], int]]:
    for number in range(count):
        yield await anext(lines), number


async def test_a_client_that_goes_leaves_no_watch_behind() -> None:
    node = MemoryNode()
    async with running(create_app(node)) as (address, _):
        async with watching(address) as lines:
            await until(lines, "snapshot_done")
            assert node.store.watches() == 1
        await asyncio.to_thread(eventually, lambda: node.store.watches() == 0, 20)


async def test_a_server_that_stops_ends_its_streams_cleanly_and_at_once() -> None:
    node = MemoryNode()
    loop = asyncio.get_running_loop()
    async with running(create_app(node)) as (address, stop), watching(address) as lines:
        await until(lines, "snapshot_done")
        begun = loop.time()
        stop.set()
        assert await until(lines, "ended") == [{"event": "ended", "reason": "the node stops"}]
        assert [line async for line in lines] == []
        assert loop.time() - begun < GRACE_SECONDS
    assert node.store.watches() == 0


async def test_a_node_that_fails_is_the_last_line() -> None:
    node = MemoryNode()
    async with running(create_app(node)) as (address, _), watching(address) as lines:
        await until(lines, "snapshot_done")
        node.store.fails = Retryable("node", "it does not run", "ask again")
        node.store.write("a", b"1")
        assert await until(lines, "ended") == [{"event": "ended", "reason": "node: it does not run (next: ask again)"}]
        assert [line async for line in lines] == []
    assert node.store.watches() == 0


async def test_streams_are_bounded_in_number_and_take_no_place_from_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(limits._MOST, "streams", 2)
    monkeypatch.setitem(limits._MOST, "requests", 1)
    node = MemoryNode()
    async with running(create_app(node)) as (address, _), httpx.AsyncClient() as client:
        async with watching(address) as first, watching(address) as second:
            await until(first, "snapshot_done")
            await until(second, "snapshot_done")
            answer = await client.get(f"http://{address}{WATCH}")
            assert is_problem(answer, 503, "busy")
            assert "2 streams are running" in answer.json()["detail"]
            assert (await client.get(f"http://{address}/v1/status")).status_code == 200
        await asyncio.to_thread(eventually, lambda: node.store.watches() == 0, 20)
        async with watching(address) as again:
            await until(again, "snapshot_done")


@contextlib.asynccontextmanager
async def not_reading(address: str) -> AsyncIterator[asyncio.StreamReader]:
    """A client with small buffers that has sent its request, and reads when the test does."""
    host, _, port = address.rpartition(":")
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=raw, limit=4096)
    writer.write(f"GET {WATCH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    try:
        yield reader
    finally:
        writer.transport.abort()


async def events_of(reader: asyncio.StreamReader, last: bytes) -> tuple[int, bytes]:
    """How many bytes came, up to the last line, and the end of them."""
    count, end = 0, b""
    while last not in end:
        piece = await asyncio.wait_for(reader.read(65536), 30)
        assert piece, "the stream ended"
        count += len(piece)
        end = end[-2 * MAX_VALUE :] + piece
    return count, end


async def lines_of(reader: asyncio.StreamReader, last: bytes) -> AsyncIterator[bytes]:
    """Out of chunks, up to the line that has this."""
    rest = b""
    while True:
        size = int(await asyncio.wait_for(reader.readline(), 30), 16)
        *lines, rest = (rest + (await asyncio.wait_for(reader.readexactly(size + 2), 30))[:-2]).split(b"\n")
        for line in lines:
            yield line
            if last in line:
                return


async def test_g8_a_slow_client_gets_the_last_value_and_costs_a_bounded_number_of_bytes() -> None:
    node = MemoryNode()
    async with running(create_app(node)) as (address, _), not_reading(address) as reader:
        await asyncio.to_thread(eventually, lambda: node.store.watches() == 1, 20)
        changes = 1_000
        for version in range(1, changes + 1):
            node.store.write("big", b"x" * 60_000, version=version)
            await asyncio.sleep(0)
        node.store.write("last", b"end")
        count, _ = await events_of(reader, b'"text":"end"')
    assert count < changes * 60_000 / 3


async def test_g8_a_client_that_missed_changes_is_told_and_shown_everything_anew() -> None:
    node = MemoryNode()
    node.store.most_waiting = 20
    async with running(create_app(node)) as (address, _), not_reading(address) as reader:
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        assert [line async for line in lines_of(reader, b"snapshot_done")]
        for number in range(400):
            node.store.write(f"k{number:03}", b"x" * 60_000)
            await asyncio.sleep(0)
        node.store.write("last", b"end")
        seen = [json.loads(line) async for line in lines_of(reader, b'"text":"end"')]
    missed = max(at for at, event in enumerate(seen) if event["event"] == "missed")
    assert sum(event["changes"] for event in seen if event["event"] == "missed") >= 20
    shown = [event["key"] for event in seen[missed:] if event["event"] == "value"]
    assert sorted(set(shown)) == [*(f"k{number:03}" for number in range(400)), "last"]


async def test_a_client_that_never_reads_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "waits", {**Connection.waits, "reader": 0.3})
    node = MemoryNode()
    async with running(create_app(node)) as (address, _), not_reading(address):
        await asyncio.to_thread(eventually, lambda: node.store.watches() == 1, 20)
        for number in range(200):
            node.store.write(f"k{number:03}", b"x" * 60_000)
        await asyncio.to_thread(eventually, lambda: node.store.watches() == 0, 20)
