"""The HTTP server inside an event loop that is not its own: no signal handlers, no log of its own, stopped by an event.

The socket is bound here, so port 0 is known (`on_bound`) before the first request, and requests that come before the
server accepts wait in the socket's backlog.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator

import uvicorn
from fastapi import FastAPI

from trunkline.core.errors import Invalid, Terminal

GRACE_SECONDS = 3  # for requests that are running when the server stops


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield  # signals belong to the process


async def serve(app: FastAPI, listen: str, on_bound: Callable[[str], None], stop: asyncio.Event) -> None:
    """Answers requests at `listen` until `stop` is set or this is cancelled; either way nothing stays open."""
    with _bind(listen) as listener:
        on_bound(_text(listener))
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=GRACE_SECONDS)
        server = _Server(config)
        running = asyncio.create_task(server.serve(sockets=[listener]), name="api-server")
        stopping = asyncio.create_task(stop.wait(), name="api-stop")
        try:
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            server.should_exit = True
            await running


def _bind(listen: str) -> socket.socket:
    host, port = _split(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise Terminal(f"API at {listen}", error.strerror or str(error), "free the address or change api.listen") from None
    return listener


def _split(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise Invalid(f"address {listen!r}", "it is not <host>:<port>", "write for example 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def _text(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
