"""Who may do what: one row per endpoint. What has no row here needs an admin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from trunkline.core.config import Role
from trunkline.routes.keys import Tenant

UNMATCHED = "(none)"  # the label of every address that is not one of ours


@dataclass(frozen=True)
class Access:
    """`role` none: open, also without a token. `tenants`: whether a token bound to a tenant may use it; where the address names
    one, only for that. `changes`: it changes a tenant's routes or fragments. `opens`: a tenant may open it to everybody."""

    role: Role | None
    tenants: bool = False
    changes: bool = False
    opens: bool = False


_LOOK, _CHANGE = Access(Role.READ, tenants=True), Access(Role.WRITE, tenants=True, changes=True)
_SEND = Access(Role.WRITE, tenants=True, opens=True)
OF_TENANT = "/v1/orgs/{org}/applications/{app}"

# What the routing table offers. Where a tenant is named in a query or a body, the endpoint itself asks `reach`.
_ROUTES: dict[tuple[str, str], Access] = {
    ("GET", "/v1/routes"): Access(Role.READ),
    ("PUT", "/v1/routes"): Access(Role.ADMIN),
    ("GET", "/v1/routes/status"): _LOOK,
    ("GET", "/v1/routes/top"): _LOOK,
    ("GET", f"{OF_TENANT}/top"): _LOOK,
    ("GET", "/v1/routes/changes/{session}"): Access(Role.READ),
    ("GET", "/v1/routes/repair"): Access(Role.READ),
    ("POST", "/v1/routes/repair"): Access(Role.WRITE),
    ("POST", "/v1/routes/apply"): Access(Role.WRITE, tenants=True),
    ("POST", "/v1/routes/explain"): _LOOK,
    ("POST", "/v1/routes/test"): _LOOK,
    ("GET", "/v1/deadletters"): _LOOK,
    ("GET", "/v1/deadletters/{id}"): _LOOK,
    ("POST", "/v1/deadletters/{id}"): Access(Role.WRITE, tenants=True),
    ("DELETE", "/v1/deadletters/{id}"): Access(Role.WRITE, tenants=True),
    ("GET", "/v1/tenants"): Access(Role.READ),
    ("GET", "/v1/fragments"): Access(Role.READ),
    ("GET", "/v1/receivers"): Access(Role.READ),
    ("GET", "/v1/filters"): Access(Role.READ),
    ("GET", "/v1/senders"): Access(Role.READ),
    ("GET", "/v1/plugins"): _LOOK,
    ("GET", "/v1/plugins/{kind}/{name}"): _LOOK,
    **{
        (method, OF_TENANT + end): _LOOK if method == "GET" else Access(Role.ADMIN)
        for end in ("", "/config")
        for method in ("GET", "PUT", "POST", "DELETE")
    },
    ("GET", f"{OF_TENANT}/routes"): _LOOK,
    ("POST", f"{OF_TENANT}/routes"): _CHANGE,
    ("GET", f"{OF_TENANT}/routes/{{id}}"): _LOOK,
    ("PUT", f"{OF_TENANT}/routes/{{id}}"): _CHANGE,
    ("DELETE", f"{OF_TENANT}/routes/{{id}}"): _CHANGE,
    ("PUT", f"{OF_TENANT}/routes/{{id}}/reload"): _CHANGE,
    ("PUT", f"{OF_TENANT}/routes/{{id}}/toggleEnable"): _CHANGE,
    ("POST", f"{OF_TENANT}/routes/{{id}}/event"): _SEND,
    **{(method, OF_TENANT + end): _SEND for end in ("/event", "/event/{path}") for method in ("POST", "PUT", "GET", "DELETE")},
    ("GET", f"{OF_TENANT}/fragments"): _LOOK,
    ("POST", f"{OF_TENANT}/fragments"): _CHANGE,
    ("GET", f"{OF_TENANT}/fragments/{{name}}"): _LOOK,
    ("PUT", f"{OF_TENANT}/fragments/{{name}}"): _CHANGE,
    ("DELETE", f"{OF_TENANT}/fragments/{{name}}"): _CHANGE,
    **{("GET", f"{OF_TENANT}/{kind}{end}"): _LOOK for kind in ("receivers", "filters", "senders") for end in ("", "/{name}")},
}

# A tenant's token may put events in, which are marked with the tenant, and reaches its own routes. A view shows all tenants at
# once, so it sees none.
ACCESS: dict[tuple[str, str], Access] = {
    ("GET", "/livez"): Access(None, tenants=True),
    ("GET", "/readyz"): Access(None, tenants=True),
    ("GET", "/metrics"): Access(Role.READ),
    ("GET", "/docs"): Access(Role.READ, tenants=True),
    ("GET", "/openapi.json"): Access(Role.READ, tenants=True),
    ("POST", "/v1/event"): Access(Role.WRITE, tenants=True),
    ("GET", "/v1/status"): Access(Role.READ),
    ("GET", "/v1/topology"): Access(Role.READ),
    ("GET", "/v1/topology/table"): Access(Role.READ),
    ("GET", "/v1/topology/why/{site}"): Access(Role.READ),
    ("GET", "/v1/trunk"): Access(Role.READ),
    ("GET", "/v1/queues"): Access(Role.READ),
    ("GET", "/v1/queues/status"): Access(Role.READ),
    ("GET", "/v1/queues/{name}/entries"): Access(Role.READ),
    ("POST", "/v1/queues/sync"): Access(Role.ADMIN),
    ("GET", "/v1/bridge/status"): Access(Role.READ),
    ("GET", "/v1/bridge/types"): Access(Role.READ),
    ("GET", "/v1/bridge/offsets"): Access(Role.READ),
    ("GET", "/v1/bridge/sites/{site}"): Access(Role.READ),
    ("DELETE", "/v1/bridge/sites/{site}"): Access(Role.ADMIN),
    ("GET", "/v1/bridge/quarantine"): Access(Role.READ),
    ("GET", "/v1/bridge/quarantine/{id}"): Access(Role.READ),
    ("POST", "/v1/bridge/quarantine/{id}"): Access(Role.WRITE),
    ("DELETE", "/v1/bridge/quarantine/{id}"): Access(Role.ADMIN),
    ("POST", "/v1/bridge/resync"): Access(Role.WRITE),
    ("GET", "/v1/store"): Access(Role.READ),
    ("GET", "/v1/store/*"): Access(Role.READ),
    ("GET", "/v1/store/{area}"): Access(Role.READ),
    ("GET", "/v1/store/{area}/keys/{key}"): Access(Role.READ),
    ("PUT", "/v1/store/{area}/keys/{key}"): Access(Role.WRITE),
    ("DELETE", "/v1/store/{area}/keys/{key}"): Access(Role.WRITE),
    ("POST", "/v1/store/{area}/keys"): Access(Role.WRITE),
    ("POST", "/v1/store/{area}/refresh"): Access(Role.WRITE),
    ("POST", "/v1/store/{area}/clear"): Access(Role.WRITE),
    ("GET", "/v1/store/{area}/hashes"): Access(Role.READ),
    ("GET", "/v1/store/{area}/own"): Access(Role.READ),
    ("GET", "/v1/store/{area}/summary"): Access(Role.READ),
    ("GET", "/v1/store/{area}/signature"): Access(Role.READ),
    ("GET", "/v1/store/{area}/watch"): Access(Role.READ),
    ("GET", "/v1/store/{area}/peers"): Access(Role.READ),
    ("PUT", "/v1/store/{area}/peers/{site}/{node}"): Access(Role.ADMIN),
    ("DELETE", "/v1/store/{area}/peers/{site}/{node}"): Access(Role.ADMIN),
    **_ROUTES,
}
LIVENESS = "/livez"  # answered whatever else happens: no limit and no token stands before it
PROBES = frozenset({LIVENESS, "/readyz"})
STREAMS = frozenset({"/v1/store/{area}/watch"})  # answers that go on until somebody ends them
_NOTHING_TO_GUARD = Access(Role.READ, tenants=True)  # 404 and 405
_UNLISTED = Access(Role.ADMIN)


def place(routes: Iterable[BaseRoute], scope: Scope) -> tuple[str, Access, Tenant | None]:
    """The template of the address that a request goes to, who may, and the tenant that the address names."""
    partial = UNMATCHED
    for route in routes:
        match, inner = route.matches(scope)
        if not isinstance(route, Route) or match is Match.NONE:
            continue
        if match is Match.FULL:
            method, found = "GET" if scope["method"] == "HEAD" else scope["method"], inner["path_params"]
            tenant = Tenant(found["org"], found["app"]) if "org" in found and "app" in found else None
            return route.path_format, ACCESS.get((method, route.path_format), _UNLISTED), tenant
        partial = route.path_format if partial is UNMATCHED else partial
    return partial, _NOTHING_TO_GUARD, None
