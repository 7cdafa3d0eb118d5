"""Tenants as they are kept: made, changed, removed; a new quota counts at every instance within a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from trunkline.core.errors import Terminal
from trunkline.core.layers import Loose
from trunkline.core.mistakes import Mistake, Mistakes, printable
from trunkline.core.scalars import Number
from trunkline.routes.fields import RouteModel
from trunkline.routes.keys import HOUSE, Tenant
from trunkline.routes.manager import RoutingTableManager
from trunkline.routes.model import Part
from trunkline.routes.route import RouteTenant
from trunkline.routes.shown import shown_mistake, shown_tenant, shown_tenant_config
from trunkline.routes.storage.base import NoSuchTenant as NoSuchTenant
from trunkline.routes.storage.base import Storage, TenantConfig
from trunkline.routes.tenants import Tenants


class Exists(Terminal):
    """It is there already; nothing was changed."""


class QuotaWritten(RouteModel):
    """How many events may come in, over all instances."""

    events_per_sec: Number | None = Field(
        default=None, ge=0, le=1e9, examples=[100], description="events a second; 0 lets nothing pass, none everything"
    )


class TenantWritten(RouteModel):
    """What is said about a tenant."""

    tenant: RouteTenant = Field(default=RouteTenant(), description="as the address has it")
    quota: QuotaWritten = Field(default=QuotaWritten(), description="how many events may come in")
    client_ids: tuple[str, ...] = Field(
        default=(), max_length=1000, description="names of the tokens that may change its routes; none: all with the role write"
    )
    open_event_api: bool = Field(default=False, description="whether events may be sent without a token")


_KNOWN = ("quota", "clientIds", "openEventApi")
_ONLY_SHOWN = ("tenant", "modified")


def read_tenant(tenant: Tenant, body: Any) -> tuple[TenantConfig, list[Mistake]]:
    """What was sent, and warnings of what of it nobody knows."""
    if not isinstance(body, Mapping):
        raise Mistakes("tenant", [Mistake("", None, "", "a map is wanted", "write quota: {eventsPerSec: 100}")], "mend it")
    strange = [key for key in body if key not in _KNOWN and key not in _ONLY_SHOWN]
    step = f"leave it out; known: {', '.join(_KNOWN)}"
    warnings = [Mistake("", None, printable(str(key)), "there is no such key", step) for key in strange]
    raw = {key: value for key, value in body.items() if key in _KNOWN and value is not None}
    raw = {**raw, "tenant": shown_tenant(tenant)}
    written, mistakes = Part(Loose(raw), (), raw).examine(TenantWritten)
    if mistakes:
        raise Mistakes("tenant", mistakes, "mend these fields")
    return TenantConfig(tenant, written.quota.events_per_sec, written.client_ids, written.open_event_api), warnings


class Tenancy:
    def __init__(self, manager: RoutingTableManager, storage: Storage, tenants: Tenants) -> None:
        self._manager, self._storage, self._tenants = manager, storage, tenants

    async def check(self, tenant: Tenant) -> TenantConfig:
        """That it is there."""
        known = self._tenants.known.get(tenant) or await self._tenants.look(tenant)
        if known is None:
            raise NoSuchTenant(tenant)
        return known

    async def listed(self) -> list[dict[str, Any]]:
        await self._tenants.load()
        return [shown_tenant_config(config) for _, config in sorted(self._tenants.known.items())]

    async def show(self, tenant: Tenant) -> dict[str, Any]:
        found = await self._tenants.look(tenant)
        if found is None:
            raise NoSuchTenant(tenant)
        return shown_tenant_config(found)

    async def add(self, tenant: Tenant, body: Any) -> dict[str, Any]:
        read_tenant(tenant, body)
        if await self._storage.tenant(tenant) is not None:
            raise Exists(f"tenant {tenant}", "it is there already", "change it with PUT")
        return await self.put(tenant, body)

    async def put(self, tenant: Tenant, body: Any) -> dict[str, Any]:
        config, warnings = read_tenant(tenant, body)
        await self._storage.put_tenant(config)
        self._manager.tell_tenant(tenant)
        return {"item": await self.show(tenant), "warnings": [shown_mistake(one) for one in warnings]}

    async def remove(self, tenant: Tenant) -> dict[str, Any]:
        """Its fragments go with it; of the house only what was said about it. Refused while it has routes."""
        was = await self._storage.remove_tenant(tenant)
        if not was and tenant != HOUSE:
            raise NoSuchTenant(tenant)
        self._manager.tell_tenant(tenant, removed=True)
        await self._tenants.look(tenant)
        return shown_tenant(tenant)
