"""One HTTP connection, with the limits the server itself does not have: a client that keeps us waiting is closed.

1. While a request runs, its own time limit counts; between requests, the server's keep-alive.
2. Otherwise the connection waits for its client, and each kind of waiting has its seconds (`WAITS`): for the head of a request,
   for the rest of a body that was refused (so that the client can read the answer before the connection is reset), for a
   client that does not read, for a connection that closes.
3. There are at most `MOST_CONNECTIONS`, since the node needs file handles too. One more closes the one that has been idle for
   longest, so that nobody can keep a probe out by holding connections.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from trunkline.api.problem import MALFORMED, MEDIA_TYPE, Refused, details

MOST_CONNECTIONS = 400
WAITS = {"head": 10.0, "body": 2.0, "reader": 60.0, "close": 2.0}
_NOT_HTTP = Refused(MALFORMED, "request", "its head is not HTTP/1.1, or larger than 16 KiB", "send HTTP/1.1 with fewer headers")


class Connection(H11Protocol):
    waits = WAITS
    most = MOST_CONNECTIONS
    since = 0.0
    _waiting_for: str | None = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        self._wait_for("head")
        if len(self.connections) > self.most:
            _close_oldest(other for other in self.connections if isinstance(other, Connection) and other is not self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_for(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.since = self.loop.time()
        super().data_received(data)
        self._wait_for(self._owed(idle="head"))

    def on_response_complete(self) -> None:
        self._wait_for(self._owed(idle=None))
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        if not self.flow.write_paused:
            super().timeout_keep_alive_handler()
            self._wait_for("close")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for("reader")

    def resume_writing(self) -> None:
        super().resume_writing()
        self._wait_for(self._owed(idle="head"))

    def send_400_response(self, msg: str) -> None:
        problem = details(_NOT_HTTP, secrets.token_hex(16)).model_dump_json().encode()
        headers = [("content-type", MEDIA_TYPE), ("content-length", str(len(problem))), ("connection", "close")]
        answer = (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=problem),
            h11.EndOfMessage(),
        )
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in answer))
        self.transport.close()

    def running(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _owed(self, idle: str | None) -> str | None:
        """What the client has to do next: nothing while a request runs, and `idle` when nothing is under way."""
        owed = (
            (self.flow.write_paused, "reader"),
            (self.transport.is_closing(), "close"),
            (self.running(), None),
            (self.conn.their_state is h11.SEND_BODY, "body"),
            (True, idle),
        )
        return next(what for holds, what in owed if holds)

    def _wait_for(self, what: str | None) -> None:
        if what == self._waiting_for:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._waiting_for = what
        self._deadline = None if what is None else self.loop.call_later(self.waits[what], self.transport.abort)


def _close_oldest(connections: Iterable[Connection]) -> None:
    idle = [connection for connection in connections if not connection.running()]
    if idle:
        min(idle, key=lambda connection: connection.since).transport.abort()
