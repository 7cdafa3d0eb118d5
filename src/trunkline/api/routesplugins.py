"""Plugins over the API: those that run, and all that routes may name."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Path, Request, Response

from trunkline.api import routesexamples as example
from trunkline.api import routesmodels as shown
from trunkline.api.access import OF_TENANT
from trunkline.api.routesasking import RoutesAsking, answers
from trunkline.api.routesnames import OfTenant, PluginName
from trunkline.routes.registry import Kind

KindName = Annotated[str, Path(description="receiver, filter or sender", examples=["filter"])]
_ADDRESSES = {Kind.RECEIVER: "receivers", Kind.FILTER: "filters", Kind.SENDER: "senders"}


def offer_plugins(app: FastAPI, asking: RoutesAsking) -> None:
    for kind, address in _ADDRESSES.items():
        _offer_running(app, asking, kind, address)
    _offer_declared(app, asking)


def _offer_running(app: FastAPI, asking: RoutesAsking, kind: Kind, address: str) -> None:
    @app.get(
        f"/v1/{address}",
        summary=f"The {address} that run at this node, of all tenants",
        response_model=shown.RunningsAnswer,
        responses=answers(shown.RunningsAnswer, example.RUNNINGS),
    )
    async def all_running(request: Request) -> Response:
        return await asking.items(request, lambda at: at.plugins.running(kind))

    @app.get(
        f"{OF_TENANT}/{address}",
        summary=f"The {address} of a tenant that run at this node",
        response_model=shown.RunningsAnswer,
        responses=answers(shown.RunningsAnswer, example.RUNNINGS, 400, 404),
    )
    async def running(request: Request, tenant: OfTenant) -> Response:
        return await asking.items(request, lambda at: at.plugins.running(kind, tenant))

    @app.get(
        f"{OF_TENANT}/{address}/{{name}}",
        summary=f"One of the {address} of a tenant",
        response_model=shown.RunningAnswer,
        responses=answers(shown.RunningAnswer, example.RUNNING, 400, 404),
    )
    async def one(request: Request, tenant: OfTenant, name: PluginName) -> Response:
        return await asking.item(request, lambda at: at.plugins.one_running(kind, tenant, name))


def _offer_declared(app: FastAPI, asking: RoutesAsking) -> None:
    @app.get(
        "/v1/plugins",
        summary="All plugins that a route may name",
        response_model=shown.DeclaredAnswer,
        responses=answers(shown.DeclaredAnswer, example.DECLARED),
    )
    async def declared(request: Request) -> Response:
        return await asking.items(request, lambda at: at.plugins.declared())

    @app.get(
        "/v1/plugins/{kind}/{name}",
        summary="What a plugin may be told, as JSON Schema",
        response_model=shown.DeclarationAnswer,
        responses=answers(shown.DeclarationAnswer, example.DECLARATION, 400, 404),
    )
    async def declaration(request: Request, kind: KindName, name: PluginName) -> Response:
        return await asking.item(request, lambda at: at.plugins.declaration(kind, name))
