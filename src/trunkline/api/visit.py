"""What is known of one request while it runs; the middlewares add to it, the endpoints and the log read it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from starlette.types import Scope

from trunkline.api.access import Access
from trunkline.api.tokens import Caller
from trunkline.routes.keys import Tenant

_KEY = "trunkline.visit"


@dataclass
class Visit:
    request_id: str
    method: str
    path: str
    route: str
    access: Access
    address: str
    tenant: Tenant | None = None
    caller: Caller | None = None

    @property
    def asked(self) -> str:
        return f"{self.method} {self.path}"


def begin_visit(scope: Scope, request_id: str, route: str, access: Access, tenant: Tenant | None) -> Visit:
    visit = Visit(request_id, scope["method"], scope["path"], route, access, address_of(scope), tenant)
    scope[_KEY] = visit
    return visit


def visit_of(scope: Scope) -> Visit:
    visit: Visit = scope[_KEY]
    return visit


def address_of(scope: Scope) -> str:
    """Who is at the other end, as far as limits go: in IPv6 a network of 64 bits, which one subscriber has to himself."""
    host = scope["client"][0] if scope.get("client") else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
