"""Which routes are busy, over the API."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from trunkline.api import routesexamples as example
from trunkline.api.access import OF_TENANT
from trunkline.api.routesasking import RoutesAsking, answers
from trunkline.api.routeslooks import OfApp, OfOrg, asked_tenant
from trunkline.api.routesmodels import TenantName
from trunkline.api.routesnames import Limit, OfTenant
from trunkline.api.written import answer


class _Shown(BaseModel):
    model_config = ConfigDict(extra="forbid")


class BusyRoute(_Shown):
    id: str
    tenant: TenantName
    runner: Literal["node", "spark"] = Field(description="node: at the instance that answers; spark: at all pipelines")
    receiver: str = Field(description="its plugin")
    sender: str = Field(description="its plugin")
    received: int = Field(description="events that came to its filters")
    matched: int = Field(description="messages that left them")
    dropped: int = Field(description="events that came to nothing there")
    sent: int = Field(description="messages that are where they shall be")
    kept: int = Field(description="messages that were kept for another try")
    dead: int = Field(description="dead letters")
    failed: int = Field(description="messages that are gone or back at their source")
    seconds: float = Field(description="from coming in to being sent, of all that were sent")


class BusyGroup(_Shown):
    name: str = Field(description="of its lease")
    instance: str | None = Field(description="that runs it; none: nobody does")
    events: int
    batches: int
    seconds: float = Field(description="that all batches took")
    behind: int = Field(description="events that wait for the next batch")
    failing: str = Field(description="why it does not read, if it does not")


class TopShown(_Shown):
    instance: str = Field(description="that answers")
    at: float = Field(description="unix seconds; two answers make a rate")
    routes: list[BusyRoute] = Field(description="those that received most first")
    groups: list[BusyGroup] = Field(description="receiver groups at pipelines; none in the answer for one tenant")


TOP: dict[str, Any] = {
    "instance": "node-1_0f3a", "at": 1893456000.5,
    "routes": [
        {"id": "alarms", "tenant": example.TENANT, "runner": "spark", "receiver": "kafka", "sender": "queue",
         "received": 120000, "matched": 4000, "dropped": 116000, "sent": 3998, "kept": 2, "dead": 0, "failed": 0,
         "seconds": 812.5}],
    "groups": [
        {"name": "routes:kafka:kafka.example:9092", "instance": "hub-pipeline_5d1c", "events": 120000, "batches": 340,
         "seconds": 95.0, "behind": 0, "failing": ""}],
}  # fmt: skip


def offer_top(app: FastAPI, asking: RoutesAsking) -> None:
    @app.get(
        "/v1/routes/top",
        summary="Which routes have how much to do",
        description="What they came to since they started: at this node, and at all pipelines of the site.",
        response_model=TopShown,
        responses=answers(TopShown, TOP, 400, 404),
    )
    async def top(request: Request, org: OfOrg = "", app: OfApp = "", limit: Limit = 1000) -> Response:
        tenant = asked_tenant(asking, request, org, app)
        return answer(request, await asking.ask(lambda at: at.busy.top(tenant, limit)))

    @app.get(
        f"{OF_TENANT}/top",
        summary="Which routes of a tenant have how much to do",
        response_model=TopShown,
        responses=answers(TopShown, TOP, 400, 404),
    )
    async def top_of(request: Request, tenant: OfTenant, limit: Limit = 1000) -> Response:
        return answer(request, await asking.ask(lambda at: at.busy.top(tenant, limit)))
