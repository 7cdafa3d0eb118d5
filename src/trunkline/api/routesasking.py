"""How endpoints ask for the routing table: on the node's event loop, and with its errors as problems of their own kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request, Response

from trunkline.api import problem
from trunkline.api.openapi import GUARDED, Responses, errors
from trunkline.api.problem import Kind, Refused
from trunkline.api.reach import check_reach
from trunkline.api.threads import Threads
from trunkline.api.view import NodeView
from trunkline.api.visit import visit_of
from trunkline.api.written import YAML, answer, enveloped, read_body
from trunkline.core.errors import TrunklineError
from trunkline.routes.eventing import NobodyHears, NotDelivered, NotDone, NotLive, QuotaUsedUp
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.lettering import NoSuchLetter
from trunkline.routes.manager import NoSuchRoute
from trunkline.routes.operating import RoutesOperating
from trunkline.routes.plugins_shown import NoSuchPlugin
from trunkline.routes.standing import NoSuchChange
from trunkline.routes.storage.base import Conflict
from trunkline.routes.tenancy import Exists, NoSuchTenant
from trunkline.routes.writing import NoSuchFragment

_T = TypeVar("_T")
Question = Callable[[RoutesOperating], Awaitable[_T]]

_KINDS: dict[type[TrunklineError], Kind] = {
    NoSuchTenant: problem.NO_TENANT,
    NoSuchRoute: problem.NO_ROUTE,
    NoSuchFragment: problem.NO_FRAGMENT,
    NoSuchPlugin: problem.NO_PLUGIN,
    NoSuchChange: problem.NO_CHANGE,
    NoSuchLetter: problem.NO_LETTER,
    NobodyHears: problem.NO_HOOK,
    NotLive: problem.NOT_LIVE,
    NotDelivered: problem.NOT_DELIVERED,
    NotDone: problem.NOT_DONE,
    QuotaUsedUp: problem.NO_QUOTA,
    Exists: problem.EXISTS,
    Conflict: problem.CONFLICT,
}


@dataclass(frozen=True)
class RoutesAsking:
    view: NodeView
    threads: Threads

    async def body(self, request: Request) -> Any:
        return await self.threads.run(read_body, request, await request.body())

    async def ask(self, question: Question[_T]) -> _T:
        """Goes on when nobody waits any longer: half a change would have to be repaired."""
        try:
            return await asyncio.shield(asyncio.wrap_future(self.view.routes.begun(question)))
        except tuple(_KINDS) as error:
            raise Refused(_KINDS[type(error)], error.what, error.why, error.next_step) from None

    async def answer(self, request: Request, question: Question[dict[str, Any]]) -> Response:
        """What the question gives, with the status beside it."""
        return answer(request, enveloped(**await self.ask(question)))

    async def item(self, request: Request, question: Question[Any]) -> Response:
        return answer(request, enveloped(item=await self.ask(question)))

    async def items(self, request: Request, question: Question[list[Any]]) -> Response:
        return answer(request, enveloped(items=await self.ask(question)))

    def check_reach(self, request: Request, tenant: Tenant, changes: bool = False) -> None:
        check_reach(visit_of(request.scope), tenant, self.view.routes.tenant, changes)


def answers(model: type[Any], example: dict[str, Any], *codes: int) -> Responses:
    """Of an endpoint with this model of its answer, as JSON or as YAML."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    content = {"application/json": {"example": example}, YAML: {"schema": schema}}
    return {200: {"content": content}} | errors(*GUARDED, *codes)


def wanted(schema: dict[str, Any], example: Any, required: bool = True) -> dict[str, Any]:
    """For `openapi_extra`: a body as JSON or as YAML."""
    content = {"application/json": {"schema": schema, "example": example}, YAML: {"schema": schema}}
    return {"requestBody": {"required": required, "content": content}}


def key_after(text: str) -> RouteKey | None:
    """`org/app/id`, as `next` of the page before has it."""
    org, _, rest = text.partition("/")
    app, _, id = rest.partition("/")
    return RouteKey(Tenant(org, app), id) if text else None
