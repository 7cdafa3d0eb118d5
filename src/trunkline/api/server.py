"""The HTTP server inside an event loop that is not its own: no signal handlers, no log of its own, stopped by an event.

The socket is bound here, so port 0 is known (`on_bound`) before the first request, and requests that come before the
server accepts wait in the socket's backlog. An app that has no tokens is served on loopback only: the address that was really
bound is looked at, before anybody can connect to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator

import uvicorn
from fastapi import FastAPI

from trunkline.api.connection import Connection
from trunkline.api.foreign import is_loopback
from trunkline.api.storewatch import end_streams
from trunkline.core.errors import Invalid, Terminal

GRACE_SECONDS = 3  # for requests that are running when the server stops
KEEP_ALIVE_SECONDS = 15
MAX_HEAD_BYTES = 16 * 1024
_OPEN = "it has no tokens, so whoever reaches this address could use it"


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield  # signals belong to the process


async def serve(app: FastAPI, listen: str, on_bound: Callable[[str], None], stop: asyncio.Event) -> None:
    """Answers requests at `listen` until `stop` is set or this is cancelled; either way nothing stays open."""
    with _bind(listen, guarded=getattr(app.state, "guarded", False)) as listener:
        on_bound(_text(listener))
        server = _Server(_settings(app))
        running = asyncio.create_task(server.serve(sockets=[listener]), name="api-server")
        stopping = asyncio.create_task(stop.wait(), name="api-stop")
        try:
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            end_streams(app)
            server.should_exit = True
            await running


def _settings(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # an address is who is connected, not what a header says
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


def _bind(listen: str, guarded: bool) -> socket.socket:
    host, port = _split(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        if guarded or is_loopback(listener.getsockname()[0]):
            listener.listen(1024)
            return listener
    except (OSError, UnicodeError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise Terminal(f"API at {listen}", reason, "free the address or change api.listen") from None
    listener.close()
    raise Terminal(f"API at {listen}", _OPEN, "listen on 127.0.0.1, or make a token with `trunkline token new`")


def _split(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise Invalid(f"address {listen!r}", "it is not <host>:<port>", "write for example 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def _text(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
