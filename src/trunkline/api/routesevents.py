"""Events for a tenant's routes: into one route, or to the http receivers that hear an address.

The answer comes when the event is done: 200 if every route has taken it, dropped it or kept it as a dead letter. A nacked event
is a problem with status 502, one that was not done in time 504, and one beyond the tenant's quota 429; it may be sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Path, Request, Response
from opentelemetry.trace import get_current_span

from trunkline.api import routesexamples as example
from trunkline.api import routesmodels as shown
from trunkline.api.access import OF_TENANT
from trunkline.api.event import TENANT, metadata, payload
from trunkline.api.routesasking import RoutesAsking, answers
from trunkline.api.routesnames import OfRoute, OfTenant
from trunkline.api.visit import visit_of
from trunkline.core.clock import SystemClock
from trunkline.routes.event import Event, Source
from trunkline.routes.keys import Tenant

_CLOCK = SystemClock()
METHODS = ("POST", "PUT", "GET", "DELETE")
_CODES = (400, 404, 409, 413, 502, 504)
_BODY = {
    "requestBody": {"required": False, "content": {"application/json": {"schema": {}, "example": example.EVENT}}}
}  # fmt: skip
_NEEDED = {"requestBody": {**_BODY["requestBody"], "required": True}}
HookPath = Annotated[
    str, Path(description="as the http receiver of a route has it, without the first slash", examples=["alarms"])
]
_ABOUT = "The body is the payload, the headers are the metadata. The answer comes when the event is done."


def offer_route_events(app: FastAPI, asking: RoutesAsking) -> None:
    _offer_inject(app, asking)
    for method in METHODS:
        _offer_hooks(app, asking, method)


def _offer_inject(app: FastAPI, asking: RoutesAsking) -> None:
    @app.post(
        f"{OF_TENANT}/routes/{{id}}/event",
        summary="Send an event through one route",
        description=f"{_ABOUT} Other routes do not see it.",
        response_model=shown.EventAnswer,
        responses=answers(shown.EventAnswer, example.EVENT_DONE, *_CODES),
        openapi_extra=_NEEDED,
    )
    async def inject(request: Request, key: OfRoute) -> Response:
        event = event_of(request, key.tenant, payload(await request.body()))
        return await asking.item(request, lambda at: at.events.inject(key, event))


def _offer_hooks(app: FastAPI, asking: RoutesAsking, method: str) -> None:
    async def post(request: Request, tenant: OfTenant, path: str = "") -> Response:
        body = await request.body()
        event = event_of(request, tenant, payload(body) if body else None)
        return await asking.item(request, lambda at: at.events.post(tenant, method, path, event))

    async def without(request: Request, tenant: OfTenant) -> Response:
        return await post(request, tenant)

    async def within(request: Request, tenant: OfTenant, path: HookPath) -> Response:
        return await post(request, tenant, f"/{path}")

    for address, endpoint, words in (("/event", without, ""), ("/event/{path:path}", within, " that hear this path")):
        _offer_hook(app, method, OF_TENANT + address, endpoint, words)


def _offer_hook(app: FastAPI, method: str, address: str, endpoint: Callable[..., Any], words: str) -> None:
    app.add_api_route(
        address,
        endpoint,
        methods=[method],
        summary=f"Send an event to the http receivers of a tenant{words}",
        description=f"{_ABOUT} For receivers without a port of their own whose method is {method}; all of them get it.",
        response_model=shown.EventAnswer,
        responses=answers(shown.EventAnswer, example.POSTED, *_CODES),
        openapi_extra=_BODY if method in ("POST", "PUT") else None,
    )


def event_of(request: Request, tenant: Tenant, value: Any) -> Event:
    visit = visit_of(request.scope)
    marks: dict[str, Any] = metadata(request.headers.items(), None, visit.request_id) | {TENANT: str(tenant)}
    span = get_current_span().get_span_context()
    trace = f"{span.trace_id:032x}" if span.is_valid else visit.request_id
    return Event(value, marks, Source("", tenant, trace, _CLOCK.wall()))
