"""The http sender: a request for each event, and what its answer means."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from route_place import AROUND, MINE, event, place_at
from route_sender_suite import SenderEnd, SenderSuite
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads
from trunkline.core.secret import Secret
from trunkline.routes.ends import Sendable, Undelivered
from trunkline.routes.secrets import TenantSecrets
from trunkline.routes.senders.http import HTTP, HttpSenderConfig, Request, compile_request

Asked = tuple[str, str, dict[str, str], bytes]
"""Method, path, headers, body."""
Reply = tuple[int, dict[str, str], bytes]


class Server:
    """A small real HTTP server; `reply` says what it answers."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.reply: Callable[[Asked], Reply] = lambda asked: (204, {}, b"")
        self.port = 0
        self.most = self.now = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                await self._one(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        method, path, _ = first.split(" ")
        self.asked.append((method, path, headers, body))
        status, more, said = self.reply(self.asked[-1])
        self.now -= 1
        head = "".join(f"{name}: {value}\r\n" for name, value in {**more, "content-length": str(len(said))}.items())
        if status == 204:
            head = "".join(f"{name}: {value}\r\n" for name, value in more.items())
        writer.write(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + said)
        await writer.drain()


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class ToHttp(SenderEnd):
    plugin = HTTP
    ordered = False
    durable = False
    server: Server

    def bad(self) -> Sendable:
        return Sendable("bad", Request("POST", f"http://127.0.0.1:{self.server.port}/bad", {}, '{"n":2}'))

    async def arrived(self) -> list[int]:
        return [loads(body)["n"] for _, path, _, body in self.server.asked if path == "/in"]

    async def ids(self) -> list[str]:
        return [headers["trunkline-id"] for _, _, headers, _ in self.server.asked]

    async def lose(self) -> None:
        await self.server.stop()

    async def mend(self) -> None:
        await self.server.start()


@pytest.fixture
async def end() -> AsyncIterator[ToHttp]:
    async with serving() as server, place_at() as place:
        server.reply = lambda asked: (404, {}, b"no such thing: hunter2") if asked[1] == "/bad" else (204, {}, b"")
        end = ToHttp(place, {"url": f"http://127.0.0.1:{server.port}", "urlPath": "/in", "method": "POST", "attempts": 2})
        end.server = server
        yield end


class TestHttpSender(SenderSuite):
    pass


async def one(end: ToHttp, *payloads: Any) -> list[Undelivered | None]:
    message = compile_request(end.model, AROUND)
    sending = await end.open()
    try:
        return list(await sending.send([Sendable(f"id-{n}", message(event(p))) for n, p in enumerate(payloads)]))
    finally:
        await sending.close()


async def test_a_request_is_made_of_templates(end: ToHttp) -> None:
    end.config |= {"urlPath": "/{payload.id}?a={payload.k}", "body": {"v": "{payload.v}"}, "headers": {"X-Kind": "{payload.k}"}}
    assert await one(end, {"id": 7, "k": "x", "v": [1]}) == [None]
    end.config |= {"method": "GET", "body": None}
    assert await one(end, {"id": 8, "k": "x"}) == [None]
    end.config |= {"method": "PUT", "body": "id: {payload.id}"}
    assert await one(end, {"id": 9, "k": "x"}) == [None]
    seen = [(m, p, h.get("content-type"), h["x-kind"], b) for m, p, h, b in end.server.asked]
    assert seen == [
        ("POST", "/7?a=x", "application/json", "x", b'{"v":[1]}'),
        ("GET", "/8?a=x", None, "x", b""),
        ("PUT", "/9?a=x", "text/plain; charset=utf-8", "x", b"id: 9"),
    ]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
async def test_a_status_that_passes_is_tried_again_up_to_the_attempts(end: ToHttp, status: int) -> None:
    end.server.reply = lambda asked: (status, {"retry-after": "0"}, b"later")
    assert await one(end, {"n": 1}) == [Undelivered(f"status {status}: later", True)]
    assert len(end.server.asked) == 2
    end.server.reply = lambda asked: (status if len(end.server.asked) < 4 else 200, {}, b"")
    assert await one(end, {"n": 1}) == [None]


@pytest.mark.parametrize("status", [301, 400, 404, 409])
async def test_any_other_status_is_a_refusal_with_the_first_of_what_it_says(end: ToHttp, status: int) -> None:
    end.config["auth"] = {"type": "bearer", "token": "hunter2"}
    end.server.reply = lambda asked: (status, {"location": "/in"}, b"because of hunter2" + b"x" * 100_000)
    [answer] = await one(end, {"n": 1})
    assert answer is not None
    assert answer.reason.startswith(f"status {status}: because of ***xx")
    assert len(answer.reason) < 300
    assert not answer.again
    assert len(end.server.asked) == 1


async def test_only_so_many_requests_run_at_a_time(end: ToHttp) -> None:
    assert await one(end, *[{"n": n} for n in range(100)]) == [None] * 100
    assert 1 < end.server.most <= 16


async def test_basic_and_bearer(end: ToHttp) -> None:
    end.config["auth"] = {"type": "basic", "username": "me", "password": "p:w"}
    assert await one(end, {}) == [None]
    end.config["auth"] = {"type": "bearer", "token": "t1"}
    assert await one(end, {}) == [None]
    basic, bearer = [headers["authorization"] for _, _, headers, _ in end.server.asked]
    assert b64decode(basic.removeprefix("Basic ")) == b"me:p:w"
    assert bearer == "Bearer t1"


async def test_a_token_is_asked_for_once_kept_and_renewed_when_it_is_refused_or_old(end: ToHttp) -> None:
    given = 0
    seconds, refused = 3600.0, {"Bearer t1"}

    def reply(asked: Asked) -> Reply:
        nonlocal given
        if asked[1] == "/token":
            given += 1
            assert asked[3] == b"grant_type=client_credentials&scope=a+b"
            assert b64decode(asked[2]["authorization"].removeprefix("Basic ")) == b"me:s%2F"
            return 200, {}, f'{{"access_token":"t{given}","expires_in":{seconds}}}'.encode()
        return (401 if asked[2]["authorization"] in refused else 204), {}, b""

    end.server.reply = reply
    auth = {"type": "oauth2", "clientId": "me", "clientSecret": "s/", "scopes": ["a", "b"]}
    end.config["auth"] = auth | {"tokenURL": f"http://127.0.0.1:{end.server.port}/token"}
    sending = await end.open()
    assert await sending.send([end.sendable(1)]) == [None]
    assert given == 2, "the first one was refused"
    assert await sending.send([end.sendable(n) for n in range(20)]) == [None] * 20
    assert given == 2
    refused.add("Bearer t2")
    seconds = 0.0
    assert await sending.send([end.sendable(1)]) == [None]
    assert await sending.send([end.sendable(1)]) == [None]
    assert given == 4, "t3 was old at once"
    refused |= {f"Bearer t{n}" for n in range(9)}
    [answer] = await sending.send([end.sendable(1)])
    assert answer is not None
    assert "401" in answer.reason
    await sending.close()


async def test_who_gets_no_token_says_so(end: ToHttp) -> None:
    end.server.reply = lambda asked: (403, {}, b"")
    auth = {"type": "oauth2", "clientId": "me", "clientSecret": "hunter2"}
    end.config["auth"] = auth | {"tokenURL": f"http://127.0.0.1:{end.server.port}/token"}
    [answer] = await one(end, {"n": 1})
    assert answer is not None
    assert not answer.again
    assert "says 403" in answer.reason


@pytest.mark.parametrize("id", ["a b", "\n", "é\u2028", None, "a\0"])
def test_an_event_that_makes_no_request_is_refused_before_it_is_sent(id: Any) -> None:
    in_header = HttpSenderConfig(url="http://h/x", headers={"x-id": "{payload.id}"})
    in_address = HttpSenderConfig(url="http://h/", url_path="{payload.id}")
    with pytest.raises(Invalid):
        compile_request(in_address, AROUND)(event({"id": id}))
    if id != "a b":
        with pytest.raises(Invalid):
            compile_request(in_header, AROUND)(event({"id": id}))
    with pytest.raises(Invalid, match="not an http"):
        compile_request(HttpSenderConfig(url="{payload.u}"), AROUND)(event({"u": "file:///etc/passwd"}))
    with pytest.raises(Invalid, match="cannot be a name"):
        compile_request(HttpSenderConfig(url="http://h", headers={"a b": "x"}), AROUND)


SECRET = "hunter2-never-shown"


async def test_an_address_and_headers_may_be_secrets_that_no_message_holds() -> None:
    async with serving() as server, place_at() as place:
        sections = {"myorg": {"myapp": {"hook": Secret(f"http://127.0.0.1:{server.port}/{SECRET}"), "key": Secret(SECRET)}}}
        written = {
            "url": "secret://hook",
            "urlPath": "/{payload.n}",
            "headers": {"X-Api-Key": "secret://key", "x": "{payload.h}"},
        }
        config = TenantSecrets(MINE, sections).resolved(HttpSenderConfig.model_validate(written))
        request = compile_request(config, AROUND)(event({"n": 7, "h": "secret://key"}))
        assert request == Request("GET", "secret://hook/7", {"x": "secret://key", "x-api-key": "secret://key"})
        server.reply = lambda asked: (404, {}, f"no {asked[1]}".encode())
        assert HTTP.open is not None
        sending = await HTTP.open(config, place)
        try:
            (left,) = await sending.send([Sendable("id-1", request)])
        finally:
            await sending.close()
        ((_, path, headers, _),) = server.asked
        assert (path, headers["x-api-key"], headers["x"]) == (f"/{SECRET}/7", SECRET, "secret://key")
        assert left is not None
        assert SECRET not in left.reason


def test_a_secret_that_is_no_address_or_header_is_refused_without_being_shown() -> None:
    sections = {"myorg": {"myapp": {"bad": Secret(f"{SECRET} \n")}}}
    for written in ({"url": "secret://bad"}, {"url": "http://h", "headers": {"k": "secret://bad"}}):
        config = TenantSecrets(MINE, sections).resolved(HttpSenderConfig.model_validate(written))
        with pytest.raises(Invalid) as refused:
            compile_request(config, AROUND)
        assert SECRET not in str(refused.value)
    unknown = HttpSenderConfig.model_validate({"url": "secret://hook", "headers": {"k": "secret://key"}})
    assert compile_request(unknown, AROUND)(event({})) == Request("GET", "secret://hook", {"k": "secret://key"})
