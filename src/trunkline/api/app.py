"""The node's REST API. It knows a node only as a `NodeView`: what can be asked of it, and what can be put in.

Every answer to a mistake has the same three fields: what, why, next. The endpoints are plain functions, so that a view
may block on its database: they run in the framework's threads, never in the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Protocol

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, generate_latest
from starlette.exceptions import HTTPException

import trunkline
from trunkline.api.metrics import ViewCollector
from trunkline.core.errors import Invalid, Retryable, TrunklineError
from trunkline.core.jsoncodec import loads

MAX_BODY = 1024 * 1024  # an event is one message; what is larger belongs into a file or a broker
_ANY_JSON = {"requestBody": {"required": True, "content": {"application/json": {"schema": {}}}}}
_SECRET = frozenset({"authorization", "cookie", "proxy-authorization"})


class NodeView(Protocol):
    """All of these may block, and may raise `TrunklineError`."""

    def inject(self, payload: Any, metadata: dict[str, str]) -> list[str]:
        """The ids of the routes that took the event; it is durable in the send queue when this returns."""

    def status(self) -> dict[str, Any]: ...

    def topology(self) -> dict[str, Any]: ...

    def trunk(self) -> dict[str, Any]: ...

    def store(self, area: str, prefix: str) -> dict[str, Any]: ...

    def ready(self) -> tuple[bool, str]:
        """Whether this node does its work, and if not, the reason."""


class TooLarge(Invalid):
    """More bytes than one request may carry."""


# The first type that fits gives the status code.
_CODES: tuple[tuple[type[TrunklineError], int], ...] = (
    (TooLarge, 413),
    (Invalid, 400),
    (Retryable, 503),
    (TrunklineError, 500),
)


def create_app(view: NodeView) -> FastAPI:
    app = FastAPI(title="Trunkline", version=trunkline.__version__, redoc_url=None)
    _answer_errors(app)
    _offer_events(app, view)
    _offer_views(app, view)
    _offer_health(app, view)
    return app


async def _read_json(request: Request) -> Any:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise TooLarge("event", f"it is larger than {MAX_BODY} bytes", "send it in parts, or a reference to it")
    return loads(bytes(body), "event")


def _metadata(request: Request) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name not in _SECRET}


def _offer_events(app: FastAPI, view: NodeView) -> None:
    @app.post("/v1/event", summary="Run one event through the routes", openapi_extra=_ANY_JSON)
    def event(
        payload: Annotated[Any, Depends(_read_json)], metadata: Annotated[dict[str, str], Depends(_metadata)]
    ) -> dict[str, Any]:
        routes = view.inject(payload, metadata)
        return {"routes": routes, "durable": bool(routes)}


def _offer_views(app: FastAPI, view: NodeView) -> None:
    @app.get("/v1/status", summary="What this node is and does")
    def status() -> dict[str, Any]:
        return view.status()

    @app.get("/v1/topology", summary="Links, and the neighbour each origin is taken from")
    def topology() -> dict[str, Any]:
        return view.topology()

    @app.get("/v1/trunk", summary="What was sent, relayed and received")
    def trunk() -> dict[str, Any]:
        return view.trunk()

    @app.get("/v1/store/{area}", summary="The replicated store's values of an area")
    def store(area: str, prefix: str = "") -> dict[str, Any]:
        return view.store(area, prefix)


def _offer_health(app: FastAPI, view: NodeView) -> None:
    registry = CollectorRegistry()
    registry.register(ViewCollector({"status": view.status, "trunk": view.trunk}, view.ready))

    @app.get("/healthz", summary="The process answers")
    def healthz() -> dict[str, bool]:
        return {"live": True}

    @app.get("/readyz", summary="The node does its work; 503 with the reason if not")
    def readyz() -> JSONResponse:
        ready, reason = view.ready()
        if ready:
            return JSONResponse({"ready": True})
        return _problem(503, "node", reason, "wait, or read its log")

    @app.get("/metrics", summary="Numbers in Prometheus' text format", response_class=PlainTextResponse)
    def metrics() -> Response:
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4; charset=utf-8")


def _problem(
    code: int, what: str, why: str, next_step: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:  # fmt: skip
    return JSONResponse({"what": what, "why": why, "next": next_step}, code, headers)


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(TrunklineError)
    async def ours(request: Request, error: TrunklineError) -> JSONResponse:
        code = next(code for kind, code in _CODES if isinstance(error, kind))
        return _problem(code, error.what, error.why, error.next_step)

    @app.exception_handler(HTTPException)
    async def framework(request: Request, error: HTTPException) -> JSONResponse:
        what = f"{request.method} {request.url.path}"
        return _problem(error.status_code, what, str(error.detail), "see /docs for what there is", error.headers)

    @app.exception_handler(RequestValidationError)
    async def parameters(request: Request, error: RequestValidationError) -> JSONResponse:
        why = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        return _problem(400, f"{request.method} {request.url.path}", why, "see /docs for what there is")

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, error: Exception) -> JSONResponse:
        return _problem(500, f"{request.method} {request.url.path}", type(error).__name__, "read the node's log")
