"""The http receiver: at the node's API, or as a server of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from route_place import MINE, Hooks, place_at, until
from route_receiver_suite import Runner
from running_routes import bench
from trunkline.cli.dev.ports import lasting_port
from trunkline.core.errors import Terminal
from trunkline.routes.outcome import Outcome
from trunkline.routes.receivers.http import HTTP, HttpReceiverConfig
from trunkline.routes.receivers.http_receiving import MOST_BYTES, ServerReceiving

Client = httpx.AsyncClient


@asynccontextmanager
async def served(runner: Runner, **config: Any) -> AsyncIterator[tuple[Client, asyncio.Event]]:
    port = lasting_port()
    model = HttpReceiverConfig.model_validate({"path": "/in", "port": port, **config})
    async with place_at() as place, asyncio.TaskGroup() as tasks:
        receiving, stop = await ServerReceiving.open(model, place), asyncio.Event()
        running = tasks.create_task(receiving.run(runner.give, stop, None))
        async with Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            try:
                await until(lambda: _answers(port))
                yield client, stop
            finally:
                stop.set()
        await running
        await receiving.close()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def runner() -> Runner:
    return Runner()


async def test_an_event_is_answered_when_it_is_done(runner: Runner) -> None:
    runner.held = True
    async with served(runner, successStatus=202) as (client, _):
        posting = asyncio.create_task(client.post("/in?a=1", json={"n": 1}, headers={"X-Kind": "k", "Cookie": "c"}))
        await until(lambda: runner.waiting)
        assert not posting.done()
        runner.finish()
        answer = await posting
    [event] = runner.events
    assert (answer.status_code, answer.json()) == (202, {"id": event.source.id})
    assert event.payload == {"n": 1}
    assert event.metadata["x-kind"] == "k"
    assert event.metadata["http"] == {"path": "/in", "relativePath": "", "method": "POST", "query": "a=1"}
    assert event.source.tenant == MINE
    assert not {"cookie", "authorization"} & event.metadata.keys()


@pytest.mark.parametrize("outcome", [Outcome.NACKED, Outcome.TIMED_OUT])
async def test_one_that_failed_is_told_with_the_reason(runner: Runner, outcome: Outcome) -> None:
    runner.outcome = lambda event: outcome
    async with served(runner, failureStatus=502) as (client, _):
        answer = await client.post("/in", json=1)
    assert (answer.status_code, answer.json()["error"]) == (502, "as told")


async def test_one_that_is_never_done_is_answered_after_its_time(runner: Runner) -> None:
    runner.held = True
    async with served(runner, acknowledgeTimeout=0.1, failureStatus=503) as (client, _):
        answer = await client.post("/in", json=1)
        runner.finish()
    assert (answer.status_code, "0.1 s" in answer.json()["error"]) == (503, True)


async def chunks(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * (MOST_BYTES // 4)


Ask = Callable[[Client], Any]
WRONG: list[tuple[int, Ask]] = [
    (404, lambda client: client.post("/other", json=1)),
    (404, lambda client: client.post("/in/below", json=1)),
    (405, lambda client: client.get("/in")),
    (400, lambda client: client.post("/in", content=b"{torn")),
    (400, lambda client: client.post("/in")),
    (400, lambda client: client.post("/in", content=b"[" * 65 + b"]" * 65)),
    (413, lambda client: client.post("/in", content=b"x" * (MOST_BYTES + 1))),
    (413, lambda client: client.post("/in", content=chunks(5))),
]


@pytest.mark.parametrize(("status", "ask"), WRONG)
async def test_a_wrong_request_is_refused_with_the_reason_and_is_no_event(runner: Runner, status: int, ask: Ask) -> None:
    async with served(runner) as (client, _):
        answer = await ask(client)
        assert answer.status_code == status
        assert answer.json()["error"]
        assert (await client.post("/in", json={"n": 1})).status_code == 200
    assert runner.numbers == [1]


async def test_a_path_with_a_slash_at_its_end_takes_all_below_and_get_needs_no_body(runner: Runner) -> None:
    async with served(runner, path="/in/", method="GET") as (client, _):
        assert (await client.get("/in/a/b")).status_code == 200
    [event] = runner.events
    assert (event.payload, event.metadata["http"]["relativePath"]) == (None, "a/b")


@pytest.mark.parametrize(
    ("headers", "trace"),
    [
        ({"X-B3-TraceId": "463AC35C9F6413AD48485A3953BB6124"}, "463ac35c9f6413ad48485a3953bb6124"),
        ({"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "0af7651916cd43dd8448eb211c80319c"),
        ({"X-B3-TraceId": "no"}, ""),
    ],
)
async def test_a_trace_goes_on(runner: Runner, headers: dict[str, str], trace: str) -> None:
    async with served(runner) as (client, _):
        await client.post("/in", json=1, headers=headers)
    assert runner.events[0].source.trace_id == trace


async def test_n3_a_stop_lets_requests_that_run_have_their_answers(runner: Runner) -> None:
    runner.held = True
    async with served(runner) as (client, stop):
        posting = asyncio.create_task(client.post("/in", json={"n": 1}))
        await until(lambda: runner.waiting)
        stop.set()
        runner.finish()
        assert (await posting).status_code == 200


async def test_a_port_that_is_taken_or_cannot_be_is_named_before_anything_runs() -> None:
    async with place_at() as place:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            with pytest.raises(Terminal, match=f"port {port}: Address already in use"):
                await ServerReceiving.open(HttpReceiverConfig(port=port), place, bind_seconds=0.1)
        with pytest.raises(Terminal, match=r"at 192\.0\.2\.1 port 8081: Cannot assign"):
            await ServerReceiving.open(HttpReceiverConfig(port=8081, address="192.0.2.1"), place)


async def test_one_that_never_ran_leaves_its_port() -> None:
    config = HttpReceiverConfig(port=lasting_port())
    async with place_at() as place:
        for _ in range(2):
            await (await ServerReceiving.open(config, place, bind_seconds=0.1)).close()


def web(port: int, path: str) -> dict[str, Any]:
    return {"receiver": {"plugin": "http", "config": {"port": port, "path": path, "placement": "local"}}}


async def test_a_change_that_cannot_have_its_port_leaves_the_route_before_and_one_that_keeps_it_gets_it() -> None:
    port = lasting_port()
    async with bench() as at, Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        await at.add("r", **web(port, "/a"))
        with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(Terminal, match="Address already in use"):
            await at.add("r", **web(other.getsockname()[1], "/a"))
        assert (await client.post("/a", json=1)).status_code == 200
        await at.add("r", **web(port, "/b"))

        async def taken() -> bool:
            with suppress(httpx.TransportError):
                return (await client.post("/b", json=2)).status_code == 200
            return False

        await until(taken)
    assert at.shop.sink().got == [1, 2]


async def test_without_a_port_it_hears_what_is_posted_to_the_nodes_api(runner: Runner) -> None:
    assert HTTP.open is not None
    assert HTTP.everywhere
    async with place_at() as place:
        hooks = place.hooks
        assert isinstance(hooks, Hooks)
        receiving, stop = await HTTP.open(HttpReceiverConfig(path="/hook"), place), asyncio.Event()
        task = asyncio.create_task(receiving.run(runner.give, stop, None))
        await until(lambda: hooks.added)
        assert list(hooks.added) == [(MINE, "POST", "/hook")]
        assert hooks.added[MINE, "POST", "/hook"][1] == 5.0
        stop.set()
        await task
        await receiving.close()
        assert hooks.added == {}
