"""Tenants over the API: who may change their routes, and how many events they may have."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from trunkline.api import routesexamples as example
from trunkline.api import routesmodels as shown
from trunkline.api.access import OF_TENANT
from trunkline.api.routesasking import RoutesAsking, answers, wanted
from trunkline.api.routesnames import OfTenant

_BODY = wanted(shown.TENANT_WANTED, example.TENANT_BODY)


def offer_tenants(app: FastAPI, asking: RoutesAsking) -> None:
    for address in (OF_TENANT, f"{OF_TENANT}/config"):
        _offer_look(app, asking, address)
        _offer_writing(app, asking, address)
        _offer_removing(app, asking, address)

    @app.get(
        "/v1/tenants",
        summary="All tenants",
        response_model=shown.TenantsAnswer,
        responses=answers(shown.TenantsAnswer, example.TENANTS),
    )
    async def tenants(request: Request) -> Response:
        return await asking.items(request, lambda at: at.tenancy.listed())


def _offer_look(app: FastAPI, asking: RoutesAsking, address: str) -> None:
    @app.get(
        address,
        summary="One tenant",
        response_model=shown.TenantAnswer,
        responses=answers(shown.TenantAnswer, example.TENANT_ONE, 400, 404),
    )
    async def tenant(request: Request, tenant: OfTenant) -> Response:
        return await asking.item(request, lambda at: at.tenancy.show(tenant))


def _offer_writing(app: FastAPI, asking: RoutesAsking, address: str) -> None:
    @app.put(
        address,
        summary="Change a tenant, or make it",
        description="A new quota counts at every instance within a second.",
        response_model=shown.TenantChanged,
        responses=answers(shown.TenantChanged, example.TENANT_CHANGED, 400, 413),
        openapi_extra=_BODY,
    )
    async def put(request: Request, tenant: OfTenant) -> Response:
        body = await asking.body(request)
        return await asking.answer(request, lambda at: at.tenancy.put(tenant, body))

    @app.post(
        address,
        summary="Make a tenant",
        description="Routes need their tenant. One that is there already is refused.",
        response_model=shown.TenantChanged,
        responses=answers(shown.TenantChanged, example.TENANT_CHANGED, 400, 409, 413),
        openapi_extra=_BODY,
    )
    async def add(request: Request, tenant: OfTenant) -> Response:
        body = await asking.body(request)
        return await asking.answer(request, lambda at: at.tenancy.add(tenant, body))


def _offer_removing(app: FastAPI, asking: RoutesAsking, address: str) -> None:
    @app.delete(
        address,
        summary="Remove a tenant",
        description="Its fragments go with it. Refused while it has routes.",
        response_model=shown.TenantRemoved,
        responses=answers(shown.TenantRemoved, example.TENANT_REMOVED, 400, 404, 409),
    )
    async def remove(request: Request, tenant: OfTenant) -> Response:
        return await asking.item(request, lambda at: at.tenancy.remove(tenant))
