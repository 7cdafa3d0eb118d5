"""Trying events on routes over the API: nothing is sent and nothing is kept."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query, Request, Response

from trunkline.api import routesexamples as example
from trunkline.api import routesmodels as shown
from trunkline.api.routesasking import RoutesAsking, answers, wanted
from trunkline.api.routesnames import AfterId
from trunkline.api.storebodies import checked_body
from trunkline.api.visit import visit_of
from trunkline.api.written import answer
from trunkline.core.errors import Invalid
from trunkline.routes.event import Event, Source
from trunkline.routes.keys import HOUSE, RouteKey, Tenant

Routes = Annotated[int, Query(ge=1, le=1_000, description="routes at most")]


def offer_trials(app: FastAPI, asking: RoutesAsking) -> None:
    _offer_explain(app, asking)
    _offer_test(app, asking)


def _offer_explain(app: FastAPI, asking: RoutesAsking) -> None:
    @app.post(
        "/v1/routes/explain",
        summary="Which routes of a tenant would take an event, and why the others would not",
        description="In the order of their ids, in pages. The event goes through the very filters that run, one by one; where "
        "it ends, `reason` says which comparison failed.",
        response_model=shown.ExplainShown,
        responses=answers(shown.ExplainShown, example.EXPLAINED, 400, 404, 413),
        openapi_extra=wanted({"$ref": "#/components/schemas/ExplainWanted"}, example.EXPLAIN),
    )
    async def explain(request: Request, after: AfterId = "", limit: Routes = 100) -> Response:
        asked = checked_body(shown.ExplainWanted, await asking.body(request))
        tenant = _tenant(asking, request, asked.tenant)
        event = _event(request, tenant, asked)
        return answer(request, await asking.ask(lambda at: at.trial.explained(tenant, event, after, limit)))


def _offer_test(app: FastAPI, asking: RoutesAsking) -> None:
    @app.post(
        "/v1/routes/test",
        summary="What a route would make of some events",
        description="Of a stored route, or of one in the body, which is checked as if it was added.",
        response_model=shown.TestShown,
        responses=answers(shown.TestShown, example.TESTED, 400, 404, 413),
        openapi_extra=wanted({"$ref": "#/components/schemas/TestWanted"}, example.TEST),
    )
    async def test(request: Request) -> Response:
        asked = checked_body(shown.TestWanted, await asking.body(request))
        if not asked.id and asked.route is None:
            raise Invalid("body", "it names no route", "give the id of a stored route, or a route")
        tenant = _tenant(asking, request, asked.tenant)
        events = [_event(request, tenant, event) for event in asked.events]
        key = RouteKey(tenant, asked.id)
        return answer(request, await asking.ask(lambda at: at.trial.tried(key, asked.route, events)))


def _tenant(asking: RoutesAsking, request: Request, said: shown.TenantWanted | None) -> Tenant:
    tenant = Tenant(said.orgId, said.appId) if said else HOUSE
    asking.check_reach(request, tenant)
    return tenant


def _event(request: Request, tenant: Tenant, said: shown.EventWanted) -> Event:
    return Event(said.payload, said.metadata, Source("trial", tenant, visit_of(request.scope).request_id))
