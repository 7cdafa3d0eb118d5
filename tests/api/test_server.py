"""The server in somebody else's event loop: a real socket, and nothing left behind."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading

import httpx
import pytest
from fastapi import FastAPI

from memory_node import MemoryNode, bearing, running, token
from trunkline.api.app import create_app
from trunkline.api.server import serve
from trunkline.core.config import ApiConfig
from trunkline.core.errors import Invalid, Terminal


def small_app() -> FastAPI:
    app = FastAPI()

    @app.get("/")
    def hello() -> str:
        return "hello"

    return app


def refuses(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


async def test_port_0_is_told_when_it_is_bound_and_answers() -> None:
    async with running(small_app()) as (address, _), httpx.AsyncClient() as client:
        assert not address.endswith(":0")
        assert (await client.get(f"http://{address}/")).json() == "hello"


async def test_stop_closes_the_port_even_with_an_idle_connection_open() -> None:
    async with httpx.AsyncClient() as client:
        async with running(small_app()) as (address, _):
            await client.get(f"http://{address}/")
            assert not refuses(address)
        assert refuses(address)


async def test_a_request_that_runs_when_it_stops_gets_its_answer() -> None:
    app, began, go = FastAPI(), threading.Event(), threading.Event()

    @app.get("/slow")
    def slow() -> str:
        began.set()
        go.wait(30)
        return "done"

    async with httpx.AsyncClient() as client, running(app) as (address, stop):
        request = asyncio.create_task(client.get(f"http://{address}/slow"))
        await asyncio.to_thread(began.wait, 30)
        stop.set()
        go.set()
        assert (await request).json() == "done"


async def test_cancelling_closes_the_port_too() -> None:
    bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(small_app(), "127.0.0.1:0", bound.set_result, asyncio.Event()))
    address = await bound
    async with httpx.AsyncClient() as client:
        await client.get(f"http://{address}/")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert refuses(address)


async def test_signals_stay_the_processs_own() -> None:
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    async with running(small_app()) as (address, _), httpx.AsyncClient() as client:
        await client.get(f"http://{address}/")
        assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before


async def test_an_address_in_use_is_said_plainly() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(Terminal, match="in use") as refused:
            await serve(small_app(), listen, lambda _: None, asyncio.Event())
    assert listen in refused.value.what


@pytest.mark.parametrize("listen", ["", "8080", "host:", "host:x", "127.0.0.1:70000"])
async def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(Invalid, match="address"):
        await serve(small_app(), listen, lambda _: None, asyncio.Event())


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
@pytest.mark.parametrize("app", [create_app(MemoryNode()), small_app()], ids=["node", "any"])
async def test_without_tokens_an_address_of_the_network_is_refused_before_anybody_can_connect(
    app: FastAPI, listen: str
) -> None:
    bound: list[str] = []
    with pytest.raises(Terminal, match="no tokens") as refused:
        await serve(app, listen, bound.append, asyncio.Event())
    assert bound == []
    assert listen in refused.value.what
    assert "trunkline token new" in refused.value.next_step


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:0", "[::1]:0"])
async def test_without_tokens_loopback_is_served(listen: str) -> None:
    async with running(create_app(MemoryNode()), listen) as (address, _), httpx.AsyncClient() as client:
        assert (await client.get(f"http://{address}/v1/status")).status_code == 200


async def test_with_tokens_the_network_is_served_to_who_has_one() -> None:
    app = create_app(MemoryNode(), ApiConfig(tokens=(token("ops"),)))
    async with running(app, "0.0.0.0:0") as (address, _), httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{address.rpartition(':')[2]}/v1/status"
        assert (await client.get(url)).status_code == 401
        assert (await client.get(url, headers=bearing("ops"))).status_code == 200


async def test_who_is_connected_is_not_what_a_header_says() -> None:
    app = create_app(MemoryNode(), ApiConfig(tokens=(token("ops"),)))
    async with running(app) as (address, _), httpx.AsyncClient() as client:
        url = f"http://{address}/v1/status"
        statuses = [(await client.get(url, headers={"X-Forwarded-For": f"192.0.2.{n}"})).status_code for n in range(20)]
    assert statuses.count(429) >= 8
