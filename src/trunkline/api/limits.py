"""How much one request may take: bytes, seconds, and a place among those that run.

A body that announces too many bytes is refused before one is read; one that does not is counted as it comes. A request has its
seconds for everything, its body too, so that one that drips is cut. Work in a thread cannot be cut: it goes on, but nobody
waits for it. A request that may say how long it wants to wait (`wait`) has that time beside its seconds, and one that changes
routes or tries events on them has what that may take (`_longer`). Places are for the requests that hold memory or wait for
threads. Probes have their own; so have tables of routes, which may be larger than other bodies; and so have streams, which
have no seconds: they end when the client goes, when it no longer reads (`connection`), or when the server stops (`streams`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trunkline.api.access import LIVENESS, PROBES, STREAMS
from trunkline.api.problem import BUSY, TOO_LARGE, TOO_SLOW, Refused
from trunkline.api.routesnames import MOST_WAIT
from trunkline.api.visit import Visit, visit_of

MOST_REQUESTS = 64  # each may hold one body
MOST_PROBES = 16
MOST_STREAMS = 64  # each holds a connection and, in the store, the names of the keys that wait for it
MOST_BULKS = 2  # of BULK_BYTES each
_MOST = {"requests": MOST_REQUESTS, "probes": MOST_PROBES, "streams": MOST_STREAMS, "bulks": MOST_BULKS}
BULKS = frozenset({"/v1/routes/apply"})
BULK_BYTES = 16 * 1024 * 1024  # some 20,000 routes as one change

_KINDS = {"probes": PROBES, "streams": STREAMS, "bulks": BULKS}

_ROUTES = "/routes"
_TRIALS = frozenset({"/v1/routes/explain", "/v1/routes/test"})
_TRIAL_SECONDS = 45.0  # a page of routes that are compiled anew
_CHANGE_SECONDS = 30.0  # a route that starts waits for what it opens, one that stops for what it has taken


class Limits:
    def __init__(self, app: ASGIApp, max_body_bytes: int, request_seconds: float) -> None:
        self._app, self._bytes, self._seconds = app, max_body_bytes, request_seconds
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        visit = visit_of(scope)
        if visit.route == LIVENESS:
            await self._app(scope, receive, send)
            return
        self._refuse_announced(visit, scope)
        with self._place(visit):
            if visit.route in STREAMS:
                await self._app(scope, self._counted(visit, receive), send)
            else:
                await self._in_time(visit, scope, self._counted(visit, receive), send)

    @contextmanager
    def _place(self, visit: Visit) -> Iterator[None]:
        kind = next((kind for kind, routes in _KINDS.items() if visit.route in routes), "requests")
        if self._running[kind] >= _MOST[kind]:
            raise Refused(BUSY, visit.asked, f"{_MOST[kind]} {kind} are running", "wait a moment", {"Retry-After": "1"})
        self._running[kind] += 1
        try:
            yield
        finally:
            self._running[kind] -= 1

    async def _in_time(self, visit: Visit, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(seconds := self._seconds + _longer(visit, scope)) as limit:
                await self._app(scope, receive, send)
        except TimeoutError:
            if not limit.expired():
                raise
            why = f"it was not done after {seconds:g} s, and may still be done"
            raise Refused(TOO_SLOW, visit.asked, why, "look whether it was done, then send it again") from None

    def _refuse_announced(self, visit: Visit, scope: Scope) -> None:
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self._most(visit):
                raise self._too_large(visit)

    def _counted(self, visit: Visit, receive: Receive) -> Receive:
        came, most = 0, self._most(visit)

        async def counting() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > most:
                raise self._too_large(visit)
            return message

        return counting

    def _most(self, visit: Visit) -> int:
        return max(self._bytes, BULK_BYTES) if visit.route in BULKS else self._bytes

    def _too_large(self, visit: Visit) -> Refused:
        why = f"the body is larger than {self._most(visit)} bytes"
        return Refused(TOO_LARGE, visit.asked, why, "send it in parts, or a reference to it")


def _longer(visit: Visit, scope: Scope) -> float:
    """Seconds beside the usual ones."""
    if _ROUTES not in visit.route:
        return 0.0
    if visit.route in _TRIALS:
        return _TRIAL_SECONDS
    return _wait(scope["query_string"]) + (_CHANGE_SECONDS if visit.method != "GET" else 0.0)


def _wait(query: bytes) -> float:
    """What is no number of seconds is refused later."""
    try:
        seconds = float(parse_qs(query.decode()).get("wait", ["0"])[-1])
    except ValueError:
        return 0.0
    return min(seconds, MOST_WAIT) if seconds > 0 else 0.0
