"""Fragments of tenants as they are kept: a plugin with a name, checked as if it stood in a route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from trunkline.core.layers import Loose
from trunkline.core.mistakes import Mistake, Mistakes, printable
from trunkline.routes.fields import Label, RouteModel
from trunkline.routes.keys import Tenant
from trunkline.routes.model import Part
from trunkline.routes.redaction import filled
from trunkline.routes.registry import Kind, Registry
from trunkline.routes.shown import models_of, shown_fragment
from trunkline.routes.storage.base import Body, Fragment, Storage
from trunkline.routes.tenancy import Tenancy
from trunkline.routes.writing import NoSuchFragment

ONLY_SHOWN = ("tenant", "modified")
_PLACES = {Kind.RECEIVER: "receiver", Kind.SENDER: "sender", Kind.FILTER: "filterChain"}


class FragmentWritten(RouteModel):
    """A plugin that routes name by `fragmentName`."""

    name: Label = Field(min_length=1, description="what routes call it")
    plugin: str = Field(min_length=1, examples=["debug"], description="a receiver, filter or sender")
    config: Any = Field(default=None, description="what it is told; its keys are the plugin's")


class Fragments:
    def __init__(self, storage: Storage, tenancy: Tenancy, plugins: Registry) -> None:
        self._storage, self._tenancy, self._plugins = storage, tenancy, plugins
        self._models = models_of(plugins)

    async def listed(self, tenant: Tenant) -> list[dict[str, Any]]:
        await self._tenancy.check(tenant)
        return [self._shown(fragment) for fragment in await self._storage.fragments(tenant)]

    async def all_listed(self) -> list[dict[str, Any]]:
        found = [config["tenant"] for config in await self._tenancy.listed()]
        tenants = [Tenant(at["orgId"], at["appId"]) for at in found]
        return [self._shown(one) for tenant in tenants for one in await self._storage.fragments(tenant)]

    async def show(self, tenant: Tenant, name: str) -> dict[str, Any]:
        await self._tenancy.check(tenant)
        found = await self._storage.fragment(tenant, name)
        if found is None:
            raise NoSuchFragment(tenant, name)
        return self._shown(found)

    async def put(self, tenant: Tenant, body: Any, name: str = "") -> dict[str, Any]:
        """`name`: as the address has it; that of the body must be the same, or none."""
        await self._tenancy.check(tenant)
        raw = _named(body, name)
        before = await self._storage.fragment(tenant, raw["name"]) if isinstance(raw.get("name"), str) else None
        if before is not None:
            raw = self._filled(raw, before.body)
        self._check(raw)
        return self._shown(await self._storage.put_fragment(Fragment(tenant, raw["name"], raw)))

    async def remove(self, tenant: Tenant, name: str) -> str:
        """Whether it was there or not; routes that were made with it stay as they are."""
        await self._tenancy.check(tenant)
        await self._storage.remove_fragment(tenant, name)
        return name

    def _shown(self, fragment: Fragment) -> dict[str, Any]:
        return shown_fragment(fragment, self._models, self._fitting(fragment.body))

    def _fitting(self, body: Body) -> list[Kind]:
        return [kind for kind in Kind if self._mistakes(kind, body) == []]

    def _mistakes(self, kind: Kind, body: Body) -> list[Mistake] | None:
        """None: there is no such plugin of this kind."""
        plugin = self._plugins.find(kind, str(body.get("plugin", "")))
        if plugin is None:
            return None
        config = body.get("config")
        whole = {**body, "config": {} if config is None else config}
        return Part(Loose(whole), ("config",), whole["config"]).examine(plugin.config)[1]

    def _check(self, raw: Body) -> None:
        mistakes = Part(Loose(raw), (), raw).examine(FragmentWritten)[1]
        found = [wrong for kind in Kind if (wrong := self._mistakes(kind, raw)) is not None]
        if not mistakes and not found:
            known = sorted({name for kind in Kind for name in self._plugins.names(kind)})
            reason = f"{printable(str(raw['plugin']))!r} is not known"
            mistakes = [Mistake("", None, "plugin", reason, f"known: {', '.join(known)}")]
        if mistakes or [] not in found:
            raise Mistakes("fragment", mistakes or found[0] or [], "mend these fields")

    def _filled(self, raw: Body, before: Body) -> dict[str, Any]:
        kind = next(iter(self._fitting(before)), Kind.FILTER)
        place = _PLACES[kind]
        return dict(filled({place: raw}, {place: before}, self._models)[place])


def _named(body: Any, name: str) -> dict[str, Any]:
    if not isinstance(body, Mapping):
        raise Mistakes("fragment", [Mistake("", None, "", "a map is wanted", "write plugin: and config:")], "mend it")
    raw = {key: value for key, value in body.items() if key not in ONLY_SHOWN}
    if name and raw.get("name") not in (None, "", name):
        reason = f"{printable(str(raw['name']))!r} is not the name of the address, {printable(name)!r}"
        raise Mistakes("fragment", [Mistake("", None, "name", reason, "leave it out, or write the same")], "mend it")
    return {**raw, "name": name} if name else raw
