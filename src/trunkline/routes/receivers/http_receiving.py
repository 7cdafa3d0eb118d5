"""The http receiver: at the node's API, or as a small server of its own.

A request is one event. It is answered when the event is done, or when its time is over; what the event became by then is in the
answer. When the receiver stops, the requests that run get their answers first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from typing import Any, Self

import uvicorn

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps
from trunkline.db.lease import Grant
from trunkline.routes.ends import Give, Place
from trunkline.routes.outcome import Outcome
from trunkline.routes.receivers.http import HttpReceiverConfig
from trunkline.routes.receivers.http_port import BIND_SECONDS, Port
from trunkline.routes.receivers.http_request import event_of, fits

MOST_BYTES = 1 << 20  # of a body: what a queue takes, too
MOST_REQUESTS = 64  # at a time: each may hold one body
MAX_HEAD_BYTES = 16 << 10
_GRACE_SECONDS = 1

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class HookReceiving:
    def __init__(self, config: HttpReceiverConfig, place: Place) -> None:
        self._config, self._place = config, place

    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        config, hooks = self._config, self._place.hooks
        remove = hooks.add(self._place.tenant, config.method, config.path, give, config.acknowledge_timeout)
        try:
            await stop.wait()
        finally:
            remove()

    async def close(self) -> None:
        """It holds nothing."""


class Refusal(Exception):
    def __init__(self, status: int, why: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(why)
        self.status, self.why, self.headers = status, why, headers or {}


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield  # signals belong to the process


class ServerReceiving:
    def __init__(self, config: HttpReceiverConfig, place: Place, port: Port) -> None:
        self._config, self._place, self._port = config, place, port

    @classmethod
    async def open(cls, config: HttpReceiverConfig, place: Place, bind_seconds: float = BIND_SECONDS) -> Self:
        port = Port(place.tenant, config.address, config.port or 0, place.clock, bind_seconds)
        await port.open()
        return cls(config, place, port)

    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        async with self._port.listening(stop) as listener:
            if stop.is_set():
                return
            server = _Server(self._settings(_App(self._config, self._place, give)))
            running = asyncio.create_task(server.serve(sockets=[listener]), name="route-http")
            stopping = asyncio.create_task(stop.wait(), name="route-http-stop")
            try:
                await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                server.should_exit = True
                await running

    async def close(self) -> None:
        self._port.close()

    def _settings(self, app: _App) -> uvicorn.Config:
        return uvicorn.Config(
            app,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            http="h11",
            timeout_graceful_shutdown=int(self._config.acknowledge_timeout) + 1 + _GRACE_SECONDS,
        )


class _App:
    def __init__(self, config: HttpReceiverConfig, place: Place, give: Give) -> None:
        self._config, self._place, self._give = config, place, give
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
            self._running += 1
            try:
                status, said, headers = await self._taken(scope, receive)
            finally:
                self._running -= 1
        except Refusal as refusal:
            status, said, headers = refusal.status, {"error": refusal.why}, refusal.headers
        await _answer(send, status, said, headers)

    def _check(self, scope: Scope) -> None:
        if not fits(self._config, scope["path"]):
            raise Refusal(404, f"there is nothing at {scope['path']}")
        if scope["method"] != self._config.method:
            raise Refusal(405, f"only {self._config.method} is taken here", {"allow": self._config.method})
        if self._running >= MOST_REQUESTS:
            raise Refusal(503, f"{MOST_REQUESTS} requests are running, wait a moment", {"retry-after": "1"})
        announced = dict(scope["headers"]).get(b"content-length", b"")
        if announced.isdigit() and int(announced) > MOST_BYTES:
            raise _too_large()

    async def _taken(self, scope: Scope, receive: Receive) -> tuple[int, dict[str, Any], dict[str, str]]:
        seconds, failure = self._config.acknowledge_timeout, self._config.failure_status
        try:
            async with asyncio.timeout(seconds + _GRACE_SECONDS):
                event = event_of(self._config, self._place, dict(scope), await _body(receive))
                [done] = await asyncio.shield(await self._give([event], seconds))
        except TimeoutError:
            return failure, {"error": f"it was not done after {seconds:g} s, and may still be done"}, {}
        except Invalid as error:
            raise Refusal(400, str(error)) from None
        if done.outcome is Outcome.ACKED:
            return self._config.success_status, {"id": event.source.id}, {}
        why = done.reason or ("it was not done in time" if done.outcome is Outcome.TIMED_OUT else "it failed")
        return failure, {"error": why, "id": event.source.id}, {}


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "the request was not complete")
        body += message.get("body", b"")
        if len(body) > MOST_BYTES:
            raise _too_large()
        if not message.get("more_body"):
            return bytes(body)


def _too_large() -> Refusal:
    return Refusal(413, f"the body is larger than {MOST_BYTES} bytes", {"connection": "close"})


async def _answer(send: Send, status: int, said: dict[str, Any], headers: dict[str, str]) -> None:
    body = b"" if status == 204 else dumps(said)
    own = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    named = [(name.encode(), value.encode()) for name, value in own.items()]
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": body})
