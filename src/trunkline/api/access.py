"""Who may do what: one row per endpoint. What has no row here needs an admin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from trunkline.core.config import Role

UNMATCHED = "(none)"  # the label of every address that is not one of ours


@dataclass(frozen=True)
class Access:
    """`role` none: open, also without a token. `tenants`: whether a token bound to a tenant may use it."""

    role: Role | None
    tenants: bool = False


# A tenant's token may put events in, which are marked with the tenant. A view shows all tenants at once, so it sees none.
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
}
LIVENESS = "/livez"  # answered whatever else happens: no limit and no token stands before it
PROBES = frozenset({LIVENESS, "/readyz"})
STREAMS = frozenset({"/v1/store/{area}/watch"})  # answers that go on until somebody ends them
_NOTHING_TO_GUARD = Access(Role.READ, tenants=True)  # 404 and 405
_UNLISTED = Access(Role.ADMIN)


def place(routes: Iterable[BaseRoute], scope: Scope) -> tuple[str, Access]:
    """The template of the address that a request goes to, and who may."""
    partial = UNMATCHED
    for route in routes:
        match, _ = route.matches(scope)
        if not isinstance(route, Route) or match is Match.NONE:
            continue
        if match is Match.FULL:
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            return route.path_format, ACCESS.get((method, route.path_format), _UNLISTED)
        partial = route.path_format if partial is UNMATCHED else partial
    return partial, _NOTHING_TO_GUARD
