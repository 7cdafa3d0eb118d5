"""Listening: hands accepted connections to `serve`, and stays open whatever comes in.

1. At most MAX_HANDSHAKES connections are accepted and not yet up. One more and the oldest of them is dropped, not the
   newcomer: a node needs a few round trips to come up, so those who only hold a place open lose it first.
2. An error of accept itself, such as no free file descriptors, pauses accepting; nothing else is touched.
3. After `stop` nothing is accepted and no handshake runs.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from trunkline.core.address import split_address
from trunkline.core.errors import Invalid
from trunkline.net.tasks import Tasks

MAX_HANDSHAKES = 256  # each costs a socket and some 50 KB, for at most the handshake's time limit
ACCEPT_PAUSE = 0.5
BACKLOG = 256

log = structlog.get_logger(__name__)


class Listener:
    """`overload` is called for every connection dropped by rule 1."""

    def __init__(self, serve: Callable[[socket.socket], Coroutine[Any, Any, None]], overload: Callable[[], None]) -> None:
        self.accept_errors = 0
        self._serve = serve
        self._overload = overload
        self._handshakes = Tasks()
        self._socket: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._complaint = ""

    @property
    def listening(self) -> bool:
        return self._socket is not None

    async def start(self, listen: str) -> str:
        host, port = split_address(listen)
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, *_, where = found[0]
            self._socket = socket.create_server(where[:2], family=family, backlog=BACKLOG)
        except OSError as error:
            raise Invalid(f"listen address {listen}", str(error), "choose a free address of this machine") from None
        self._socket.setblocking(False)
        self._accept_from_now_on()
        bound = self._socket.getsockname()
        return f"[{bound[0]}]:{bound[1]}" if family == socket.AF_INET6 else f"{bound[0]}:{bound[1]}"

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    async def stop(self) -> None:
        self.close()
        await self._handshakes.cancel()

    def _accept_from_now_on(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept, self._socket)

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._rest(listener, str(error))
            return
        self._complaint = ""
        if len(self._handshakes) >= MAX_HANDSHAKES:
            self._overload()
            self._handshakes.drop_oldest()
        accepted.setblocking(False)
        self._handshakes.spawn(self._serve(accepted), "serve")

    def _rest(self, listener: socket.socket, reason: str) -> None:
        self.accept_errors += 1
        if reason != self._complaint:
            self._complaint = reason
            log.error("cannot accept", reason=reason, next_step="raise the limit of open files")
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        self._pause = loop.call_later(ACCEPT_PAUSE, self._accept_from_now_on)
