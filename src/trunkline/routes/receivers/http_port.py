"""The port of an http receiver's own server.

It is taken when the receiver opens: so a change that cannot have its port leaves what ran before running. The port that a
receiver of the same tenant has in this process may be its own, of the version before: it is taken when that one has stopped.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trunkline.core.clock import Clock
from trunkline.core.errors import Terminal
from trunkline.routes.keys import Tenant

BIND_SECONDS = 3.0  # so long an older version of the same route, or a node that was started anew, may still have the port
_PAUSE = 0.05

_held: Counter[tuple[Tenant, int]] = Counter()
"""Of this process: ports are."""


class Port:
    def __init__(self, tenant: Tenant, address: str, port: int, clock: Clock, seconds: float = BIND_SECONDS) -> None:
        self._of, self._address, self._clock, self._seconds = (tenant, port), address, clock, seconds
        self._listener: socket.socket | None = None

    async def open(self) -> None:
        """Raises `Terminal` if it is somebody else's, or cannot be anybody's."""
        try:
            self._take()
        except (OSError, UnicodeError) as error:
            if not _in_use(error) or not _held[self._of]:
                await self._wait(asyncio.Event())

    @asynccontextmanager
    async def listening(self, stop: asyncio.Event) -> AsyncIterator[socket.socket]:
        if self._listener is None:
            await self._wait(stop)
        assert self._listener is not None, "it was waited for"
        try:
            yield self._listener
        finally:
            self.close()

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            _held[self._of] -= 1

    async def _wait(self, stop: asyncio.Event) -> None:
        deadline = self._clock.monotonic() + self._seconds
        while True:
            try:
                return self._take()
            except (OSError, UnicodeError) as error:
                if not _in_use(error) or self._clock.monotonic() >= deadline or stop.is_set():
                    why = getattr(error, "strerror", None) or str(error)
                    what = f"http receiver at {self._address} port {self._of[1]}"
                    raise Terminal(what, why, "free the port, or give the route another one") from None
            await asyncio.sleep(_PAUSE)

    def _take(self) -> None:
        self._listener = _listener(self._address, self._of[1])
        _held[self._of] += 1


def _in_use(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EADDRINUSE


def _listener(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(256)
    except BaseException:
        listener.close()
        raise
    return listener
