"""The outermost middleware: every request has an id, a span, a line in the log, its numbers, and an answer.

Whatever goes wrong inside ends here as problem details. The log has methods, templates of addresses and names of tokens;
never a token, a body or a query. Writes and errors are logged as info, the rest as debug. So are probes, which come for ever,
and refusals for asking too often, since a flood of requests must not become a flood of lines.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import structlog
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trunkline.api.access import PROBES, place
from trunkline.api.metrics import HttpNumbers
from trunkline.api.problem import DEFECT, TOO_MANY, answer, refusal
from trunkline.api.requestid import HEADER, request_id
from trunkline.api.visit import Visit, begin_visit
from trunkline.core.clock import Clock

log = structlog.get_logger()
_ALWAYS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_CUT = 499  # in log and numbers only: the connection or the server ended before the answer
_propagator = TraceContextTextMapPropagator()


class _Reply:
    """Remembers the status on its way out, and adds what every answer carries."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send, self._headers = send, [*_ALWAYS, (HEADER.encode(), request_id.encode())]
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
        await self._send(message)


class Observe:
    def __init__(
        self, app: ASGIApp, routes: Callable[[], Sequence[BaseRoute]], tracer: Tracer, numbers: HttpNumbers, clock: Clock
    ) -> None:
        self._app, self._routes, self._tracer, self._numbers, self._clock = app, routes, tracer, numbers, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        visit = begin_visit(
            scope, request_id(headers.get(HEADER.encode()), secrets.token_bytes(16)), *place(self._routes(), scope)
        )
        reply = _Reply(send, visit.request_id)
        with self._span(visit, headers) as span, _context(visit, span), self._recorded(visit, reply, span):
            await self._answered(visit, scope, receive, reply)

    async def _answered(self, visit: Visit, scope: Scope, receive: Receive, reply: _Reply) -> None:
        try:
            await self._app(scope, receive, reply.send)
        except Exception as error:
            refused = refusal(error, visit.asked)
            if refused.kind is DEFECT:
                log.error("request failed", method=visit.method, route=visit.route, exc_info=error)
            if reply.status is not None:
                raise  # too late to answer anything else: the server closes the connection
            await answer(refused, visit.request_id)(scope, receive, reply.send)

    @contextmanager
    def _span(self, visit: Visit, headers: dict[bytes, bytes]) -> Iterator[Span]:
        carrier = {name: headers[name.encode()].decode("latin-1") for name in _propagator.fields if name.encode() in headers}
        with self._tracer.start_as_current_span(
            f"{_method(visit)} {visit.route}",
            context=_propagator.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": _method(visit),
                "http.route": visit.route,
                "trunkline.request_id": visit.request_id,
            },
        ) as span:
            yield span

    @contextmanager
    def _recorded(self, visit: Visit, reply: _Reply, span: Span) -> Iterator[None]:
        began = self._clock.monotonic()
        try:
            yield
        finally:
            status, seconds = reply.status or _CUT, self._clock.monotonic() - began
            span.set_attribute("http.response.status_code", status)
            if status >= 500:
                span.set_status(StatusCode.ERROR)
            self._numbers.count(visit.route, _method(visit), status, seconds)
            _write_line(visit, status, seconds)


def _method(visit: Visit) -> str:
    return visit.method if visit.method in HttpNumbers.METHODS else "other"


def _write_line(visit: Visit, status: int, seconds: float) -> None:
    quiet = status == TOO_MANY.status or visit.route in PROBES or (status < 400 and visit.method in _READS)
    write = log.debug if quiet else log.info
    token = {"token": visit.caller.name} if visit.caller and visit.caller.name else {}
    write("request", method=_method(visit), route=visit.route, status=status, ms=round(seconds * 1000, 1), **token)


@contextmanager
def _context(visit: Visit, span: Span) -> Iterator[None]:
    known = span.get_span_context()
    trace = {"trace_id": f"{known.trace_id:032x}"} if known.is_valid else {}
    with structlog.contextvars.bound_contextvars(request_id=visit.request_id, **trace):
        yield
