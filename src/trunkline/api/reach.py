"""How far a token reaches among tenants.

1. A token that is bound to `org` reaches all applications of that organisation, one bound to `org/app` that application only.
2. A tenant whose configuration names clients lets only tokens of these names, and admins, change its routes and fragments.
3. A tenant may open its events: then they may be sent without a token, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from trunkline.api.problem import FORBIDDEN, Refused
from trunkline.api.tokens import Caller
from trunkline.api.visit import Visit
from trunkline.core.config import Role
from trunkline.routes.keys import Tenant
from trunkline.routes.storage.base import TenantConfig

Known = Callable[[Tenant], TenantConfig | None]


def reaches(bound: str | None, tenant: Tenant) -> bool:
    return bound in (None, tenant.org, str(tenant))


def is_open(visit: Visit, known: Known) -> bool:
    """Whether anybody may send this event."""
    if not visit.access.opens or visit.tenant is None:
        return False
    config = known(visit.tenant)
    return config is not None and config.open_events


def check_reach(visit: Visit, tenant: Tenant, known: Known, changes: bool = False) -> None:
    """`changes`: whether the tenant's routes or fragments are to be changed."""
    caller = visit.caller
    if caller is None:
        return
    if not reaches(caller.tenant, tenant):
        why = f"it is about {tenant}, and the token {caller.name!r} is bound to {caller.tenant!r}"
        raise Refused(FORBIDDEN, visit.asked, why, "use a token of that tenant, or one without a tenant")
    config = known(tenant) if changes else None
    if config is not None and config.clients and not _is_client(caller, config):
        why = f"{tenant} names who may change its routes, and the token {caller.name!r} is not among them"
        raise Refused(FORBIDDEN, visit.asked, why, "use one of those tokens, or let an admin add it to clientIds")


def _is_client(caller: Caller, config: TenantConfig) -> bool:
    return caller.may(Role.ADMIN) or caller.name in config.clients
