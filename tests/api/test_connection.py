"""A connection whose client keeps us waiting is closed, and nobody keeps a probe out by holding connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from memory_node import MemoryNode, running
from trunkline.api.app import create_app
from trunkline.api.connection import WAITS, Connection
from trunkline.core.config import ApiConfig

HEAD = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n"
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "waits", dict.fromkeys(WAITS, 0.3))


@contextlib.asynccontextmanager
async def dialled(address: str) -> AsyncIterator[Wire]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server closes."""
    try:
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionError:
        return b""


@contextlib.contextmanager
def dripping(writer: asyncio.StreamWriter, piece: bytes) -> Iterator[None]:
    async def drip() -> None:
        while not writer.is_closing():
            writer.write(piece)
            await asyncio.sleep(0.02)

    task = asyncio.create_task(drip())
    try:
        yield
    finally:
        task.cancel()


async def test_who_sends_nothing_is_closed() -> None:
    async with running(create_app(MemoryNode())) as (address, _), dialled(address) as (reader, _writer):
        assert await rest_of(reader) == b""


async def test_a_head_that_drips_is_closed() -> None:
    async with running(create_app(MemoryNode())) as (address, _), dialled(address) as (reader, writer):
        writer.write(HEAD + b"X-Long: ")
        with dripping(writer, b"x"):
            assert await rest_of(reader) == b""


async def test_a_head_that_drips_after_an_answer_is_closed_too() -> None:
    async with running(create_app(MemoryNode())) as (address, _), dialled(address) as (reader, writer):
        writer.write(HEAD + b"\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
        writer.write(HEAD + b"X-Long: ")
        with dripping(writer, b"x"):
            assert await rest_of(reader) == b""


async def test_a_refused_body_that_goes_on_for_ever_is_closed_after_its_answer() -> None:
    app = create_app(MemoryNode(), ApiConfig(max_body_bytes=1024))
    async with running(app) as (address, _), dialled(address) as (reader, writer):
        writer.write(b"POST /v1/event HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n")
        with dripping(writer, b"x" * 100):
            answer = await rest_of(reader)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"urn:trunkline:problem:too-large" in answer


async def test_after_a_refused_body_that_ends_the_connection_goes_on() -> None:
    app = create_app(MemoryNode(), ApiConfig(max_body_bytes=1024))
    async with running(app) as (address, _), dialled(address) as (reader, writer):
        writer.write(b"POST /v1/event HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n" + b"x" * 1999)
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 413 ")
        writer.write(b"x" + HEAD + b"Connection: close\r\n\r\n")
        assert (await rest_of(reader)).startswith(b"HTTP/1.1 200 ")


async def write_for_ever(writer: asyncio.StreamWriter) -> None:
    """Who reads nothing learns of the end by writing."""
    while True:
        writer.write(b"G")
        await writer.drain()
        await asyncio.sleep(0.02)


class Talkative(MemoryNode):
    def topology(self) -> dict[str, str]:
        return {"much": "x" * 30_000_000}


async def test_a_client_that_does_not_read_its_answer_is_closed() -> None:
    async with running(create_app(Talkative())) as (address, _), dialled(address) as (reader, writer):
        writer.write(HEAD.replace(b"status", b"topology") + b"\r\n")
        assert (await reader.readexactly(64)).startswith(b"HTTP/1.1 200 ")
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(write_for_ever(writer), 10)


async def test_a_client_that_reads_gets_all_of_a_large_answer() -> None:
    async with running(create_app(Talkative())) as (address, _), dialled(address) as (reader, writer):
        writer.write(HEAD.replace(b"status", b"topology") + b"Connection: close\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        assert len(await rest_of(reader)) == 30_000_000 + len('{"much":""}')


@pytest.mark.parametrize("stream", [b"GARBAGE\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", HEAD + b"X: " + b"y" * 20_000])
async def test_what_is_not_http_or_has_too_large_a_head_is_a_problem_and_the_end(stream: bytes) -> None:
    async with running(create_app(MemoryNode())) as (address, _), dialled(address) as (reader, writer):
        writer.write(stream)
        head, _, body = (await rest_of(reader)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in head
    assert json.loads(body)["type"] == "urn:trunkline:problem:malformed"


async def test_one_connection_too_many_closes_the_one_idle_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "waits", dict.fromkeys(WAITS, 60.0))
    monkeypatch.setattr(Connection, "most", 3)
    async with running(create_app(MemoryNode())) as (address, _), contextlib.AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(dialled(address)) for _ in range(3)]
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"http://{address}/livez")).status_code == 200
        assert await rest_of(wires[0][0]) == b""
        wires[2][1].write(HEAD + b"\r\n")
        assert (await wires[2][0].readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
