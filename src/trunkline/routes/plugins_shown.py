"""Plugins as people see them: those that run here, in the shape EARS users know, and all that a route may name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from trunkline.core.errors import Terminal
from trunkline.core.mistakes import printable
from trunkline.routes.canonical import content_hash, plain
from trunkline.routes.keys import Tenant
from trunkline.routes.live import LiveRoute
from trunkline.routes.manager import RoutingTableManager
from trunkline.routes.plugin import FilterPlugin
from trunkline.routes.redaction import redacted_plugin
from trunkline.routes.registry import Kind, Registry
from trunkline.routes.route import PluginUse, Route
from trunkline.routes.shown import models_of, shown_tenant
from trunkline.routes.tenancy import Tenancy


class PluginId(msgspec.Struct, frozen=True):
    """Uses with equal ids are one plugin; filters are one per live route all the same, and are shown together."""

    kind: Kind
    tenant: Tenant
    plugin: str
    name: str
    hash: str


Counts = Mapping[str, float]
RunningCounts = Callable[[PluginId], Counts]
"""What the runner counted for a plugin: success, error, filtered, last (unix seconds); what it does not know is left out."""


def no_counts(plugin: PluginId) -> Counts:
    return {}


class NoSuchPlugin(Terminal):
    def __init__(self, kind: str, name: str, known: list[str]) -> None:
        super().__init__(f"{kind} {printable(name)}", "there is none of this name", f"known: {', '.join(known) or 'none'}")


class Plugins:
    def __init__(self, manager: RoutingTableManager, tenancy: Tenancy, plugins: Registry, counts: RunningCounts) -> None:
        self._manager, self._tenancy, self._plugins, self._counts = manager, tenancy, plugins, counts
        self._models = models_of(plugins)

    async def running(self, kind: Kind, tenant: Tenant | None = None) -> list[dict[str, Any]]:
        """Of all tenants, or of one."""
        if tenant is not None:
            await self._tenancy.check(tenant)
        found: dict[PluginId, list[PluginUse]] = {}
        for route in self._manager.live():
            for id, use in _uses(route, kind):
                found.setdefault(id, []).append(use)
        wanted = [(id, uses) for id, uses in found.items() if tenant in (None, id.tenant)]
        return [
            self._running(id, uses) for id, uses in sorted(wanted, key=lambda one: (one[0].tenant, one[0].plugin, one[0].name))
        ]

    async def one_running(self, kind: Kind, tenant: Tenant, name: str) -> dict[str, Any]:
        """By the name it was given, or that of its plugin where it has none."""
        found = await self.running(kind, tenant)
        for shown in found:
            if shown["name"] == name:
                return shown
        raise NoSuchPlugin(kind.value, name, [shown["name"] for shown in found])

    async def declared(self) -> list[dict[str, Any]]:
        return [self._declared(kind, name) for kind in Kind for name in self._plugins.names(kind)]

    async def declaration(self, kind: str, name: str) -> dict[str, Any]:
        """With the JSON Schema of what it may be told."""
        known = Kind(kind) if kind in list(Kind) else None
        plugin = self._plugins.find(known, name) if known else None
        if known is None or plugin is None:
            raise NoSuchPlugin(kind, name, self._plugins.names(known) if known else [])
        return {**self._declared(known, name), "schema": plugin.config.model_json_schema(by_alias=True)}

    def _running(self, id: PluginId, uses: list[PluginUse]) -> dict[str, Any]:
        use, counts = uses[0], self._counts(id)
        written = {"plugin": use.plugin, "config": plain(use.config)}
        return {
            "name": id.name or id.plugin,
            "plugin": id.plugin,
            "config": redacted_plugin(id.kind.value, written, self._models)["config"],
            "referenceCount": len(uses),
            "successCount": _whole(counts, "success"),
            "errorCount": _whole(counts, "error"),
            "filterCount": _whole(counts, "filtered"),
            "lastEventTs": _whole(counts, "last"),
            "tenant": shown_tenant(id.tenant),
        }

    def _declared(self, kind: Kind, name: str) -> dict[str, Any]:
        plugin = self._plugins.find(kind, name)
        assert plugin is not None
        return {
            "kind": kind.value,
            "name": name,
            "about": " ".join((plugin.config.__doc__ or "").split()),
            "runs": "both" if isinstance(plugin, FilterPlugin) else plugin.runs.value,
            "package": self._plugins.package(kind, name),
        }


def _whole(counts: Counts, name: str) -> int | None:
    return int(counts[name]) if name in counts else None


def _uses(live: LiveRoute, kind: Kind) -> Iterator[tuple[PluginId, PluginUse]]:
    route: Route = live.compiled.config
    places: dict[Kind, list[PluginUse]] = {
        Kind.RECEIVER: [route.receiver],
        Kind.SENDER: [route.sender],
        Kind.FILTER: list(route.filter_chain),
    }
    tenant = live.config.key.tenant
    for use in places[kind]:
        yield PluginId(kind, tenant, use.plugin, use.name, content_hash(use.config)), use
