"""Whose a route is, and its name among theirs."""

from __future__ import annotations

import msgspec


class Tenant(msgspec.Struct, frozen=True, order=True, gc=False):
    """Routes, plugins, secrets and quotas of one tenant are never another's."""

    org: str
    app: str

    def __str__(self) -> str:
        return f"{self.org}/{self.app}"


class RouteKey(msgspec.Struct, frozen=True, order=True, gc=False):
    tenant: Tenant
    id: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.id}"


HOUSE = Tenant("trunkline", "trunkline")
"""The tenant of routes that name none: those of a site's own files and commands."""
