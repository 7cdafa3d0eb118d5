"""Fragments over the API: plugins with a name, which routes of their tenant can use."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from trunkline.api import routesexamples as example
from trunkline.api import routesmodels as shown
from trunkline.api.access import OF_TENANT
from trunkline.api.routesasking import RoutesAsking, answers, wanted
from trunkline.api.routesnames import FragmentName, OfTenant

_ALL, _ONE = f"{OF_TENANT}/fragments", f"{OF_TENANT}/fragments/{{name}}"
_BODY = wanted(shown.FRAGMENT_WANTED, example.FRAGMENT_BODY)


def offer_fragments(app: FastAPI, asking: RoutesAsking) -> None:
    _offer_looks(app, asking)
    _offer_writing(app, asking)

    @app.delete(
        _ONE,
        summary="Remove a fragment",
        description="Whether it is there or not. Routes that were made with it stay as they are.",
        response_model=shown.FragmentRemoved,
        responses=answers(shown.FragmentRemoved, example.FRAGMENT_REMOVED, 400, 404),
    )
    async def remove(request: Request, tenant: OfTenant, name: FragmentName) -> Response:
        return await asking.item(request, lambda at: at.fragments.remove(tenant, name))


def _offer_looks(app: FastAPI, asking: RoutesAsking) -> None:
    @app.get(
        "/v1/fragments",
        summary="The fragments of all tenants",
        response_model=shown.FragmentsAnswer,
        responses=answers(shown.FragmentsAnswer, example.FRAGMENTS),
    )
    async def all_fragments(request: Request) -> Response:
        return await asking.items(request, lambda at: at.fragments.all_listed())

    @app.get(
        _ALL,
        summary="The fragments of a tenant",
        response_model=shown.FragmentsAnswer,
        responses=answers(shown.FragmentsAnswer, example.FRAGMENTS, 400, 404),
    )
    async def fragments(request: Request, tenant: OfTenant) -> Response:
        return await asking.items(request, lambda at: at.fragments.listed(tenant))

    @app.get(
        _ONE,
        summary="One fragment",
        response_model=shown.FragmentAnswer,
        responses=answers(shown.FragmentAnswer, example.FRAGMENT, 400, 404),
    )
    async def fragment(request: Request, tenant: OfTenant, name: FragmentName) -> Response:
        return await asking.item(request, lambda at: at.fragments.show(tenant, name))


def _offer_writing(app: FastAPI, asking: RoutesAsking) -> None:
    @app.post(
        _ALL,
        summary="Add a fragment, or replace the one of this name",
        description="Routes that name it are made of it when they are written; later changes do not touch them.",
        response_model=shown.FragmentAnswer,
        responses=answers(shown.FragmentAnswer, example.FRAGMENT, 400, 404, 413),
        openapi_extra=_BODY,
    )
    async def add(request: Request, tenant: OfTenant) -> Response:
        body = await asking.body(request)
        return await asking.item(request, lambda at: at.fragments.put(tenant, body))

    @app.put(
        _ONE,
        summary="Replace a fragment, or add it",
        description="The name in the body must be the same, or none.",
        response_model=shown.FragmentAnswer,
        responses=answers(shown.FragmentAnswer, example.FRAGMENT, 400, 404, 413),
        openapi_extra=_BODY,
    )
    async def put(request: Request, tenant: OfTenant, name: FragmentName) -> Response:
        body = await asking.body(request)
        return await asking.item(request, lambda at: at.fragments.put(tenant, body, name))
