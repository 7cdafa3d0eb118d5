"""The routing table as a whole: how it stands at every instance, repairs, and many changes as one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response

from trunkline.api import routesexamples as example
from trunkline.api import routesmodels as shown
from trunkline.api.problem import FORBIDDEN, Refused
from trunkline.api.routesasking import RoutesAsking, answers, key_after, wanted
from trunkline.api.routesnames import AfterKey, Limit, Wait
from trunkline.api.storebodies import checked_body
from trunkline.api.visit import visit_of
from trunkline.api.written import answer
from trunkline.core.errors import Invalid
from trunkline.routes.changing import Wish
from trunkline.routes.keys import HOUSE, Tenant

OfOrg = Annotated[str, Query(max_length=255, description="only of this organisation, together with `app`")]
OfApp = Annotated[str, Query(max_length=255, description="only of this application")]
OfId = Annotated[str, Query(max_length=255, description="only the route of this id")]
Session = Annotated[str, Path(description="as the answer to a change has it", examples=["node-1_0f3a-7"])]


def offer_table(app: FastAPI, asking: RoutesAsking) -> None:
    _offer_standing(app, asking)
    _offer_repairs(app, asking)
    _offer_apply(app, asking)


def asked_tenant(asking: RoutesAsking, request: Request, org: str, app: str) -> Tenant | None:
    """The tenant of a query; a token that is bound to one sees that one."""
    if bool(org) != bool(app):
        raise Invalid("query", "org and app belong together", "give both, or none")
    caller = visit_of(request.scope).caller
    bound = caller.tenant if caller else None
    if not org and bound is None:
        return None
    if not org and "/" not in str(bound):
        raise Refused(FORBIDDEN, visit_of(request.scope).asked, "the token is bound to an organisation", "give org and app")
    tenant = Tenant(org, app) if org else Tenant(*str(bound).split("/", 1))
    asking.check_reach(request, tenant)
    return tenant


def _offer_standing(app: FastAPI, asking: RoutesAsking) -> None:
    @app.get(
        "/v1/routes/status",
        summary="How each route is at each instance",
        description="Per route and instance the revision that it has, or why it refused; of others as they said last.",
        response_model=shown.StandingShown,
        responses=answers(shown.StandingShown, example.STANDING, 400, 404),
    )
    async def status(
        request: Request, org: OfOrg = "", app: OfApp = "", id: OfId = "", after: AfterKey = "", limit: Limit = 1000
    ) -> Response:
        tenant = asked_tenant(asking, request, org, app)
        return answer(request, await asking.ask(lambda at: at.standing.status(tenant, id, key_after(after), limit)))

    @app.get(
        "/v1/routes/changes/{session}",
        summary="What the other instances made of a change",
        description="Waits until all have answered, at most `wait` seconds. Only the node that made it knows, for ten seconds.",
        response_model=shown.ChangeShown,
        responses=answers(shown.ChangeShown, example.CHANGE, 400, 404),
    )
    async def change(request: Request, session: Session, wait: Wait = 0.0) -> Response:
        return answer(request, await asking.ask(lambda at: at.standing.change(session, wait)))


def _offer_repairs(app: FastAPI, asking: RoutesAsking) -> None:
    @app.post(
        "/v1/routes/repair",
        summary="Compare this node's table with the stored one, and repair it",
        description="It is done every few minutes anyway.",
        response_model=shown.RepairShown,
        responses=answers(shown.RepairShown, example.REPAIR),
    )
    async def repair(request: Request) -> Response:
        return answer(request, await asking.ask(lambda at: at.standing.repair()))

    @app.get(
        "/v1/routes/repair",
        summary="What repairs of this node's table have found",
        response_model=shown.RepairsShown,
        responses=answers(shown.RepairsShown, example.REPAIRS),
    )
    async def repairs(request: Request) -> Response:
        return answer(request, {"repairs": await asking.ask(lambda at: at.standing.repairs())})


def _offer_apply(app: FastAPI, asking: RoutesAsking) -> None:
    @app.post(
        "/v1/routes/apply",
        summary="Change many routes as one",
        description="All of the changes are made, or none. Every mistake in them is told, with its place. With `dry_run` "
        "nothing is changed. A route that names no tenant is of `trunkline/trunkline`.",
        response_model=shown.AppliedShown,
        responses=answers(shown.AppliedShown, example.APPLIED, 400, 409, 413),
        openapi_extra=wanted({"$ref": "#/components/schemas/ApplyWanted"}, example.APPLY),
    )
    async def apply(request: Request, wait: Wait = 0.0) -> Response:
        wanted = checked_body(shown.ApplyWanted, await asking.body(request))
        wishes = [_wish(n, change) for n, change in enumerate(wanted.changes)]
        for tenant in {wish.tenant for wish in wishes}:
            asking.check_reach(request, tenant, changes=not wanted.dry_run)
        return answer(request, await asking.ask(lambda at: at.routes.apply(wishes, wanted.dry_run, wait)))


def _wish(n: int, change: shown.ChangeWanted) -> Wish:
    if (change.put is None) == (change.remove is None):
        raise Invalid(f"changes[{n}]", "it is neither put nor remove, or both", "write one of them")
    if change.put is not None:
        return Wish(_tenant_of(n, change.put), "", change.put, change.revision)
    removed = change.remove or {}
    id = removed.get("id")
    if not isinstance(id, str) or not id:
        raise Invalid(f"changes[{n}].remove.id", "it is missing", "write the id of the route")
    return Wish(_tenant_of(n, removed), id, None, change.revision)


def _tenant_of(n: int, part: dict[str, Any]) -> Tenant:
    said = part.get("tenant")
    if said is None:
        return HOUSE
    org, app = (said.get("orgId"), said.get("appId")) if isinstance(said, dict) else (None, None)
    if not isinstance(org, str) or not isinstance(app, str):
        raise Invalid(f"changes[{n}].tenant", "it has not both orgId and appId", "write tenant: {orgId: …, appId: …}")
    return Tenant(org, app)
