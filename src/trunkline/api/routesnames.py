"""What addresses and queries of the routing table name."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query

from trunkline.routes.keys import RouteKey, Tenant

MOST, MOST_WAIT = 1_000, 60.0
LAST = 2**63 - 1

Org = Annotated[str, Path(description="the organisation", examples=["acme"])]
App = Annotated[str, Path(description="its application", examples=["shop"])]
RouteId = Annotated[str, Path(description="of the route", examples=["alarms"])]
FragmentName = Annotated[str, Path(description="of the fragment", examples=["toHub"])]
PluginName = Annotated[str, Path(description="that a route gave it, or its plugin's", examples=["debug"])]
Limit = Annotated[int, Query(ge=1, le=MOST, description="routes at most")]
AfterId = Annotated[str, Query(max_length=255, description="only ids after this")]
AfterKey = Annotated[str, Query(max_length=800, description="only routes after this `org/app/id`")]
Revision = Annotated[int | None, Query(ge=0, le=LAST, description="only if it is at this revision; 0: only if there is none")]
Wait = Annotated[float, Query(ge=0, le=MOST_WAIT, description="seconds to wait for the answers of the other instances")]


def _tenant(org: Org, app: App) -> Tenant:
    return Tenant(org, app)


OfTenant = Annotated[Tenant, Depends(_tenant)]


def _key(tenant: OfTenant, id: RouteId) -> RouteKey:
    return RouteKey(tenant, id)


OfRoute = Annotated[RouteKey, Depends(_key)]
