"""Routes over the API: at the addresses of EARS, with its answers, and with our problems."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response

from trunkline.api import routesexamples as example
from trunkline.api import routesmodels as shown
from trunkline.api.access import OF_TENANT
from trunkline.api.routesasking import RoutesAsking, answers, key_after, wanted
from trunkline.api.routesnames import AfterId, AfterKey, Limit, OfRoute, OfTenant, Revision, Wait
from trunkline.routes.operating import RoutesOperating

_ROUTES, _ROUTE = f"{OF_TENANT}/routes", f"{OF_TENANT}/routes/{{id}}"
_BODY = wanted(shown.ROUTE_WANTED, example.ROUTE)


def offer_routes(app: FastAPI, asking: RoutesAsking) -> None:
    _offer_looks(app, asking)
    _offer_writing(app, asking)
    _offer_removing(app, asking)
    _offer_switching(app, asking)
    _offer_all(app, asking)


def _offer_looks(app: FastAPI, asking: RoutesAsking) -> None:
    @app.get(
        _ROUTES,
        summary="The routes of a tenant",
        description="In the order of their ids, in pages.",
        response_model=shown.RoutesAnswer,
        responses=answers(shown.RoutesAnswer, example.LIST, 400, 404),
    )
    async def routes(request: Request, tenant: OfTenant, after: AfterId = "", limit: Limit = 1000) -> Response:
        async def listed(at: RoutesOperating) -> dict[str, Any]:
            items, following = await at.routes.listed(tenant, after, limit)
            return {"items": items, "next": following}

        return await asking.answer(request, listed)

    @app.get(
        _ROUTE,
        summary="One route",
        description="As it was written, with fragments filled in and without secrets; it can be sent back as it is.",
        response_model=shown.RouteAnswer,
        responses=answers(shown.RouteAnswer, example.ONE, 400, 404),
    )
    async def route(request: Request, key: OfRoute) -> Response:
        return await asking.item(request, lambda at: at.routes.show(key))


def _offer_writing(app: FastAPI, asking: RoutesAsking) -> None:
    @app.post(
        _ROUTES,
        summary="Add a route, or update the one of this id",
        description="It is checked and compiled first: what is wrong with it is told at once, and nothing is changed. "
        "Without an id its id is the hash of what it does, so that the same route twice is one.",
        response_model=shown.RouteChanged,
        responses=answers(shown.RouteChanged, example.CHANGED, 400, 404, 409, 413),
        openapi_extra=_BODY,
    )
    async def add(request: Request, tenant: OfTenant, revision: Revision = None, wait: Wait = 0.0) -> Response:
        body = await asking.body(request)
        return await asking.answer(request, lambda at: at.routes.add(tenant, body, "", revision, wait))

    @app.put(
        _ROUTE,
        summary="Update a route, or add it",
        description="The id in the body must be the same, or none. The old version runs until the new one has started; where "
        "that fails it runs on, and `here` says why.",
        response_model=shown.RouteChanged,
        responses=answers(shown.RouteChanged, example.CHANGED, 400, 404, 409, 413),
        openapi_extra=_BODY,
    )
    async def put(request: Request, key: OfRoute, revision: Revision = None, wait: Wait = 0.0) -> Response:
        body = await asking.body(request)
        return await asking.answer(request, lambda at: at.routes.add(key.tenant, body, key.id, revision, wait))


def _offer_removing(app: FastAPI, asking: RoutesAsking) -> None:
    @app.delete(
        _ROUTE,
        summary="Remove a route",
        description="Whether it is there or not. What it has taken is finished first.",
        response_model=shown.RouteRemoved,
        responses=answers(shown.RouteRemoved, example.REMOVED, 400, 404, 409),
    )
    async def remove(request: Request, key: OfRoute, revision: Revision = None, wait: Wait = 0.0) -> Response:
        return await asking.answer(request, lambda at: at.routes.remove(key, revision, wait))


def _offer_switching(app: FastAPI, asking: RoutesAsking) -> None:
    @app.put(
        f"{_ROUTE}/toggleEnable",
        summary="Make an active route inactive, and the other way round",
        response_model=shown.RouteChanged,
        responses=answers(shown.RouteChanged, example.CHANGED, 400, 404, 409),
    )
    async def toggle(request: Request, key: OfRoute, wait: Wait = 0.0) -> Response:
        return await asking.answer(request, lambda at: at.routes.toggle(key, wait))

    @app.put(
        f"{_ROUTE}/reload",
        summary="Build a route anew at every instance",
        description="As after one of its secrets has changed.",
        response_model=shown.RouteChanged,
        responses=answers(shown.RouteChanged, example.CHANGED, 400, 404, 409),
    )
    async def reload(request: Request, key: OfRoute, wait: Wait = 0.0) -> Response:
        return await asking.answer(request, lambda at: at.routes.reload(key, wait))


def _offer_all(app: FastAPI, asking: RoutesAsking) -> None:
    @app.get(
        "/v1/routes",
        summary="The routes of all tenants",
        description="In pages.",
        response_model=shown.RoutesAnswer,
        responses=answers(shown.RoutesAnswer, example.LIST, 400),
    )
    async def all_routes(request: Request, after: AfterKey = "", limit: Limit = 1000) -> Response:
        async def listed(at: RoutesOperating) -> dict[str, Any]:
            items, following = await at.routes.all_listed(key_after(after), limit)
            return {"items": items, "next": following}

        return await asking.answer(request, listed)

    @app.put(
        "/v1/routes",
        summary="Build all routes anew at every instance",
        response_model=shown.RoutesReloaded,
        responses=answers(shown.RoutesReloaded, example.RELOADED, 400, 409),
    )
    async def reload_all(request: Request, wait: Wait = 0.0) -> Response:
        return await asking.answer(request, lambda at: at.routes.reload_all(wait))
