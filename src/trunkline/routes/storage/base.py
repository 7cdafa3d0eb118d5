"""Where routes, tenants and fragments are kept: the source of truth of one site's routing table.

    S1  Every change has a revision of its own, greater than all before it; a change of several routes is one.
    S2  A change is made as a whole or not at all; with `expect` only if the route is still as it was read (compare-and-set).
    S3  A configuration that several ids share is kept once, and goes with the last of them.
    S4  A scan is one moment's table and says which revision that was. A removal is remembered, with its revision, for as long
        as somebody may still hold the route (H40): for `REMEMBER` seconds, and until a scan after them has told it. A route
        that was put again is not removed.
    S5  What was acknowledged survives the process (not in memory, which says so).
    S6  What cannot be kept everywhere alike is `Invalid` everywhere: a NUL character, what is not JSON, a key named twice.
        Who asks for such a name finds nothing, or is told the same.
    S7  A storage that cannot be reached raises `Retryable`. Whether a change that was under way was made is then not known;
        whoever asks again with the same `expect` meets a `Conflict` if it was, and without one changes nothing twice.
    S8  A tenant that is removed has no routes: not even one that is added meanwhile, if it asks for its tenant
        (`Put.asks_tenant`).

Every storage passes tests/route_storage_suite.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from trunkline.core.errors import Terminal
from trunkline.routes.keys import RouteKey, Tenant

Body = Mapping[str, Any]
"""JSON"""
NONE_KNOWN: Mapping[str, Body] = MappingProxyType({})
REMEMBER = 3600.0
"""Many times the pause between two repairs: an instance that slept longer loads the whole table anyway."""


class RouteConfig(msgspec.Struct, frozen=True, gc=False):
    """A route as it is stored. `body`: all that changes what it does, as JSON, without id and tenant; its hash is `hash`.
    `notes`: the rest (desc, origin, routeType, debug). `created`, `modified`: unix seconds, by the storage's clock."""

    key: RouteKey
    hash: str
    body: Body
    notes: Body
    revision: int
    created: float
    modified: float


class Put(msgspec.Struct, frozen=True, gc=False):
    """`expect`: the revision it replaces, 0 if there must be none; None: whatever is there. `asks_tenant`: whether its tenant
    must be there; the house always is."""

    key: RouteKey
    hash: str
    body: Body
    notes: Body = {}
    expect: int | None = None
    asks_tenant: bool = False


class Remove(msgspec.Struct, frozen=True, gc=False):
    key: RouteKey
    expect: int | None = None


Change = Put | Remove


class Listed(msgspec.Struct, frozen=True, gc=False):
    """A line of a scan: enough to see whether a live route is the right one."""

    key: RouteKey
    hash: str
    revision: int


class Scan(msgspec.Struct, frozen=True):
    """The table at `revision`; `removed`: keys that are not there, with the revision they were removed at, as far back as is
    remembered."""

    revision: int
    routes: list[Listed]
    removed: dict[RouteKey, int]


class TenantConfig(msgspec.Struct, frozen=True):
    """`events_per_second`: its quota; 0 means none may pass, None that there is no quota. `clients`: who may change its routes
    beside administrators. `open_events`: whether events may be sent without a token."""

    tenant: Tenant
    events_per_second: float | None = None
    clients: tuple[str, ...] = ()
    open_events: bool = False
    modified: float = 0.0


class Fragment(msgspec.Struct, frozen=True):
    """A named plugin of a tenant: {plugin, name, config}."""

    tenant: Tenant
    name: str
    body: Body
    modified: float = 0.0


class Conflict(Terminal):
    """Somebody else changed it since it was read; nothing was changed."""


class NoSuchTenant(Terminal):
    def __init__(self, tenant: Tenant) -> None:
        super().__init__(f"tenant {tenant}", "there is none of this name", "see GET /v1/tenants, or make it first")


class Storage(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def read(self, keys: Sequence[RouteKey], known: Mapping[str, Body] = NONE_KNOWN) -> dict[RouteKey, RouteConfig]:
        """Those of them that exist. `known`: configurations by their hash that need not be read again."""

    async def bodies(self, hashes: Sequence[str]) -> dict[str, Body]:
        """Configurations by their hash."""

    async def of_tenant(self, tenant: Tenant, after: str = "", most: int | None = None) -> list[RouteConfig]:
        """In the order of their ids: of their code points, as everywhere here. `after`, `most`: a part of them."""

    async def scan(self) -> Scan: ...

    async def newer(self, revision: int) -> Scan:
        """Of a scan only what is newer than that revision: cheap while nothing is, for it is asked every few seconds (H41)."""

    async def change(self, changes: Sequence[Change]) -> dict[RouteKey, RouteConfig]:
        """All of them or, raising `Conflict` or `NoSuchTenant`, none. Gives the routes as they are now; of removed ones
        nothing. A `Put` that changes nothing keeps its revision, and a `Remove` of what is not there does nothing."""

    async def tenants(self) -> list[TenantConfig]: ...

    async def tenant(self, tenant: Tenant) -> TenantConfig | None: ...

    async def put_tenant(self, config: TenantConfig) -> TenantConfig: ...

    async def remove_tenant(self, tenant: Tenant) -> bool:
        """Whether it was there; its fragments go with it. Raises `Conflict` while it has routes."""

    async def fragments(self, tenant: Tenant) -> list[Fragment]: ...

    async def fragment(self, tenant: Tenant, name: str) -> Fragment | None: ...

    async def put_fragment(self, fragment: Fragment) -> Fragment: ...

    async def remove_fragment(self, tenant: Tenant, name: str) -> bool: ...
