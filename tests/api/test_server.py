"""The server in somebody else's event loop: a real socket, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

from trunkline.api.server import serve
from trunkline.core.errors import Invalid, Terminal


def small_app() -> FastAPI:
    app = FastAPI()

    @app.get("/")
    def hello() -> str:
        return "hello"

    return app


@contextlib.asynccontextmanager
async def running(app: FastAPI, listen: str = "127.0.0.1:0") -> AsyncIterator[tuple[str, asyncio.Event]]:
    bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(app, listen, bound.set_result, stop))
        try:
            yield await bound, stop
        finally:
            stop.set()


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
