"""Trying events on routes without sending anything: what would become of them, and why.

Routes are compiled anew for it, so that filters that remember are not disturbed, and nothing is counted or logged. No answer
holds a secret (`trunkline.routes.hiding`), and stars of a route that is not stored stay stars.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trunkline.core.errors import Invalid
from trunkline.routes.compile import CompiledRoute
from trunkline.routes.event import Event
from trunkline.routes.explain import Verdict, explain
from trunkline.routes.hiding import Hiding
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.live import Rests
from trunkline.routes.messages import shown_message
from trunkline.routes.model import RouteReader, read_route
from trunkline.routes.plugin import Around
from trunkline.routes.shown import shown_key
from trunkline.routes.storage.base import RouteConfig, Storage
from trunkline.routes.tenancy import Tenancy
from trunkline.routes.workshop import Workshop
from trunkline.routes.writing import Writing

REFUSED = "refused"


class Trial:
    """`rests`: why a route does not run at this instance."""

    def __init__(self, storage: Storage, tenancy: Tenancy, workshop: Workshop, writing: Writing, rests: Rests) -> None:
        self._storage, self._tenancy, self._writing, self._rests = storage, tenancy, writing, rests
        quiet = Around(workshop.around.constants, workshop.around.now)
        self._workshop = replace(workshop, around=quiet)
        self._reader = RouteReader(workshop.plugins)

    async def explained(self, tenant: Tenant, event: Event, after: str = "", most: int = 100) -> dict[str, Any]:
        """What each route of the tenant would make of it."""
        await self._tenancy.check(tenant)
        found = await self._storage.of_tenant(tenant, after, most + 1)
        explained = await asyncio.to_thread(self._explained, found[:most], event)
        return {"routes": explained, "next": found[most - 1].key.id if len(found) > most else None}

    async def tried(self, key: RouteKey, written: Any, events: Sequence[Event]) -> dict[str, Any]:
        """What a route would make of these events, one after the other; `written`: a route that is not stored, or none."""
        await self._tenancy.check(key.tenant)
        if written is not None:
            change = (await self._writing.tried(key.tenant, written, key.id)).change
            body = getattr(change, "body", {})
            config = RouteConfig(change.key, "", body, {}, 0, 0.0, 0.0)
        else:
            config = await self._writing.stored(key)
        return await asyncio.to_thread(self._tried, config, events)

    def _explained(self, routes: Sequence[RouteConfig], event: Event) -> list[dict[str, Any]]:
        """Routes that do the same are asked once."""
        said: dict[str, dict[str, Any]] = {}
        for route in routes:
            if route.hash not in said:
                said[route.hash] = self._one(route, event)
        return [{**said[route.hash], **shown_key(route.key)} for route in routes]

    def _one(self, route: RouteConfig, event: Event) -> dict[str, Any]:
        rests = "" if route.body.get("inactive") else self._rests(route.body)
        if rests:
            return _ended(route, Verdict.ELSEWHERE, rests)
        try:
            compiled = self._compiled(route)
        except Invalid as error:
            return _ended(route, REFUSED, f"{error.what}: {error.why}")
        return self._said(compiled, event, Hiding(self._workshop, route.body, compiled.config))

    def _tried(self, config: RouteConfig, events: Sequence[Event]) -> dict[str, Any]:
        compiled = self._compiled(config)
        hiding = Hiding(self._workshop, config.body, compiled.config)
        results = [self._said(compiled, event, hiding) for event in events]
        ran = compiled.chain.flush(float("inf"))
        flushed = [hiding.message(shown_message(compiled.message(event))) for event in ran.out]
        return {**shown_key(config.key), "events": results, "flushed": flushed}

    def _said(self, compiled: CompiledRoute, event: Event, hiding: Hiding) -> dict[str, Any]:
        said = explain(event, [compiled], self._workshop.around)[0].as_json()
        return {
            **hiding.of(said),
            **shown_key(compiled.config.key),
            "messages": [hiding.message(one) for one in said["messages"]],
        }

    def _compiled(self, route: RouteConfig) -> CompiledRoute:
        reading = read_route({**route.body, "id": route.key.id}, self._reader, route.key.tenant)
        if reading.mistakes:
            raise Invalid(f"route {route.key}", "; ".join(map(str, reading.mistakes)), "write it anew")
        return self._workshop.compiled(reading.routes[0].route)


def _ended(route: RouteConfig, verdict: str, reason: str) -> dict[str, Any]:
    receiver = str(route.body.get("receiver", {}).get("plugin", ""))
    said = {"verdict": verdict, "receiver": receiver, "step": "", "reason": reason}
    return {**shown_key(route.key), **said, "messages": [], "faults": [], "steps": []}
