"""A site's routing table, as the commands ask one of its nodes for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

import httpx

from trunkline.cli.kv.client import TIMEOUT, Client, Refusal
from trunkline.routes.keys import HOUSE, RouteKey, Tenant

Shown = dict[str, Any]

IN_ANSWERS = ("status", "created", "modified", "hash", "revision")
"""What a node says of a route, and nobody writes."""

SECONDS = 60.0  # longer than a node lets a change of routes take, beside what it is told to wait


def table_client(url: str | None, token: str | None, wait: float = 0.0) -> Client:
    return Client(url, token, httpx.Timeout(SECONDS + wait, connect=TIMEOUT.connect))


def address(tenant: Tenant, *parts: str) -> str:
    """Dots are encoded, too: `..` would be taken for a step up."""
    words = ("orgs", tenant.org, "applications", tenant.app, *parts)
    return "/".join(("/v1", *(quote(word, safe="").replace(".", "%2E") for word in words)))


def key_of(shown: Shown) -> RouteKey:
    return RouteKey(Tenant(shown["tenant"]["orgId"], shown["tenant"]["appId"]), shown["id"])


def paged(client: Client, path: str, name: str, **params: Any) -> Iterator[Shown]:
    after: str | None = ""
    while after is not None:
        page = client.ask("GET", path, params={**params, "after": after})
        yield from page[name]
        after = page["next"]


def routes_of(client: Client, tenants: Iterable[Tenant]) -> dict[RouteKey, Shown]:
    """Of a tenant that is not there: none; adding to it says more."""
    found: dict[RouteKey, Shown] = {}
    for tenant in tenants:
        try:
            found |= {key_of(one): one for one in paged(client, address(tenant, "routes"), "items")}
        except Refusal as refusal:
            if refusal.slug != "no-such-tenant":
                raise
    return found


def as_written(shown: Shown) -> Shown:
    """Without what only a node says: it can be applied again. The house tenant need not be named."""
    kept = {key: value for key, value in shown.items() if key not in IN_ANSWERS}
    if not kept.get("inactive"):
        kept.pop("inactive", None)
    if key_of(shown).tenant == HOUSE:
        kept.pop("tenant", None)
    order = ("id", "tenant", "userId", "name", "desc")
    last = ("receiver", "filterChain", "sender")
    middle = [key for key in kept if key not in order + last]
    return {key: kept[key] for key in (*order, *middle, *last) if key in kept}
