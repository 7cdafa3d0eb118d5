"""What the node offers under /v1: one endpoint to put events in, and its status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, Field

from trunkline.api.event import TENANT, metadata, payload
from trunkline.api.openapi import GUARDED, JSON_BODY, errors, example_answer, json_answer
from trunkline.api.threads import Threads
from trunkline.api.view import NodeView
from trunkline.api.visit import visit_of
from trunkline.core.jsoncodec import dumps

_TAKEN = {"durable": True, "routes": ["alarm-to-hub"]}
_STATUS = {"site": "paris", "node": "node-1", "leads": True, "incarnation": 1790000000, "head": 42, "links": ["hub/node-1"]}


class EventTaken(BaseModel):
    routes: list[str] = Field(description="ids of the routes that took the event", examples=[["alarm-to-hub"]])
    durable: bool = Field(
        description="whether a route took it: then it is where that sends it, or kept for another try; else it is not kept"
    )


def as_json(read: Callable[..., Any], *args: Any) -> bytes:
    return dumps(read(*args))


def offer_events(app: FastAPI, view: NodeView, threads: Threads) -> None:
    def inject(body: bytes, marks: dict[str, str]) -> bytes:
        routes = view.inject(payload(body), marks)
        return dumps({"routes": routes, "durable": bool(routes)})

    @app.post(
        "/v1/event",
        summary="Run one event through the routes",
        description=f"The body is the payload, the headers are the metadata. A token that is bound to a tenant marks the event "
        f"with the metadata `{TENANT}`; a header that names another tenant is refused.",
        response_model=EventTaken,
        responses=example_answer(_TAKEN) | errors(*GUARDED, 400, 413),
        openapi_extra=JSON_BODY,
    )
    async def event(request: Request) -> Response:
        visit = visit_of(request.scope)
        marks = metadata(request.headers.items(), visit.caller, visit.request_id)
        return json_response(await threads.run(inject, await request.body(), marks))


def offer_status(app: FastAPI, view: NodeView, threads: Threads) -> None:
    @app.get("/v1/status", summary="What this node is and does", responses=json_answer(_STATUS) | errors(*GUARDED))
    async def status() -> Response:
        return json_response(await threads.run(as_json, view.status))


def json_response(body: bytes) -> Response:
    return Response(body, media_type="application/json")
