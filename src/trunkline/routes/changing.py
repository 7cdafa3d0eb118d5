"""Routes of tenants: looked at, added, updated, removed, switched, reloaded, and many changed as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from trunkline.core.errors import Invalid
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.manager import Changed, RoutingTableManager
from trunkline.routes.redaction import ModelOf
from trunkline.routes.shown import shown_key, shown_mistake, shown_outcome, shown_route, shown_status
from trunkline.routes.storage.base import Change, Put, Remove, RouteConfig, Storage
from trunkline.routes.storage.written import conflict
from trunkline.routes.tenancy import NoSuchTenant, Tenancy
from trunkline.routes.writing import Prepared, Writing, all_mistakes


class Wish(msgspec.Struct, frozen=True):
    """One part of a bulk change. `put`: a route as it is written; none: remove the route of this id. `revision`: the one that
    it must be at, 0 if it must not be there, None: whatever."""

    tenant: Tenant
    id: str = ""
    put: Mapping[str, Any] | None = None
    revision: int | None = None


class Changing:
    def __init__(
        self, manager: RoutingTableManager, storage: Storage, tenancy: Tenancy, writing: Writing, model_of: ModelOf
    ) -> None:
        self._manager, self._storage, self._tenancy = manager, storage, tenancy
        self._writing, self._models = writing, model_of

    async def listed(self, tenant: Tenant, after: str = "", most: int = 1000) -> tuple[list[dict[str, Any]], str | None]:
        """Routes in the order of their ids, and the id after which the rest comes."""
        await self._tenancy.check(tenant)
        found = await self._storage.of_tenant(tenant, after, most + 1)
        return [self._shown(route) for route in found[:most]], found[most - 1].key.id if len(found) > most else None

    async def all_listed(self, after: RouteKey | None = None, most: int = 1000) -> tuple[list[dict[str, Any]], str | None]:
        """Of all tenants, in their order."""
        keys = sorted(route.key for route in (await self._storage.scan()).routes)
        rest = [key for key in keys if after is None or key > after]
        found = await self._storage.read(rest[:most])
        return [self._shown(found[key]) for key in rest[:most] if key in found], str(rest[most - 1]) if len(
            rest
        ) > most else None

    async def show(self, key: RouteKey) -> dict[str, Any]:
        return self._shown(await self.stored(key))

    async def stored(self, key: RouteKey) -> RouteConfig:
        await self._tenancy.check(key.tenant)
        return await self._writing.stored(key)

    async def add(
        self, tenant: Tenant, body: Any, id: str = "", expect: int | None = None, seconds: float = 0.0
    ) -> dict[str, Any]:
        """`seconds`: how long the acks of the other instances are waited for."""
        await self._tenancy.check(tenant)
        prepared = await self._writing.prepared(tenant, body, id, expect)
        changed = await self._manager.change([prepared.change])
        return await self._one(prepared.change.key, changed, seconds, prepared)

    async def remove(self, key: RouteKey, expect: int | None = None, seconds: float = 0.0) -> dict[str, Any]:
        await self._tenancy.check(key.tenant)
        changed = await self._manager.remove(key, expect)
        return {"item": key.id, "change": await self._acks(changed, seconds)}

    async def toggle(self, key: RouteKey, seconds: float = 0.0) -> dict[str, Any]:
        await self._tenancy.check(key.tenant)
        return await self._one(key, await self._manager.toggle(key), seconds)

    async def reload(self, key: RouteKey, seconds: float = 0.0) -> dict[str, Any]:
        await self._tenancy.check(key.tenant)
        return await self._one(key, await self._manager.reload([key]), seconds)

    async def reload_all(self, seconds: float = 0.0) -> dict[str, Any]:
        """Routes that came or went meanwhile are as new as can be anyway."""
        keys = sorted(route.key for route in (await self._storage.scan()).routes)
        there = list(await self._storage.read(keys))
        changed = await self._manager.reload(there)
        return {"items": [str(key) for key in there], "change": await self._acks(changed, seconds)}

    async def apply(self, wishes: Sequence[Wish], dry_run: bool, seconds: float = 0.0) -> dict[str, Any]:
        """All of them as one change of the table, or none; `dry_run`: everything is checked and nothing is changed."""
        parts = await self._prepared(wishes)
        _check_expected(parts)
        changed = None if dry_run else await self._manager.change([part.change for part in parts])
        return {
            "dry_run": dry_run,
            "routes": [_done(part, changed) for part in parts],
            "change": await self._acks(changed, seconds) if changed else None,
        }

    async def _prepared(self, wishes: Sequence[Wish]) -> list[Prepared]:
        parts: list[Prepared] = []
        wrong: list[tuple[str, Exception]] = []
        for n, wish in enumerate(wishes):
            try:
                parts.append(await self._part(wish))
            except Invalid as error:
                wrong.append((f"changes[{n}]" + (".put" if wish.put is not None else ""), error))
            except NoSuchTenant as error:
                wrong.append((f"changes[{n}].tenant", Invalid(error.what, error.why, error.next_step)))
        if wrong:
            raise all_mistakes("changes", wrong)
        return parts

    async def _part(self, wish: Wish) -> Prepared:
        await self._tenancy.check(wish.tenant)
        if wish.put is not None:
            return await self._writing.prepared(wish.tenant, wish.put, wish.id, wish.revision)
        key = RouteKey(wish.tenant, wish.id)
        return Prepared(Remove(key, wish.revision), (), (await self._storage.read([key])).get(key))

    async def _one(self, key: RouteKey, changed: Changed, seconds: float, prepared: Prepared | None = None) -> dict[str, Any]:
        warnings = [shown_mistake(one) for one in prepared.warnings] if prepared else []
        acks = await self._acks(changed, seconds)
        return {
            "item": self._shown(changed.routes[key]),
            "warnings": warnings,
            "here": shown_status(changed.here[key]),
            "change": acks,
        }

    async def _acks(self, changed: Changed, seconds: float) -> dict[str, Any]:
        outcome = await self._manager.everywhere(changed.session, seconds)
        return shown_outcome(changed.session, outcome)

    def _shown(self, route: RouteConfig) -> dict[str, Any]:
        return shown_route(route, self._models)


def _done(part: Prepared, changed: Changed | None) -> dict[str, Any]:
    """What became of one part; without a change, what would."""
    key, before = part.change.key, part.before
    now = changed.routes.get(key) if changed else before
    return {
        **shown_key(key),
        "what": _what(part.change, before, now if changed else None),
        "hash": part.change.hash if isinstance(part.change, Put) else "",
        "revision": now.revision if now else 0,
        "here": shown_status(changed.here[key]) if changed else None,
        "warnings": [shown_mistake(one) for one in part.warnings],
    }


def _what(change: Change, before: RouteConfig | None, now: RouteConfig | None) -> str:
    if not isinstance(change, Put):
        return "removed" if before else "absent"
    if before is None:
        return "added"
    if now is not None:
        return "unchanged" if now.revision == before.revision else "changed"
    same = (before.hash, dict(before.notes)) == (change.hash, dict(change.notes))
    return "unchanged" if same else "changed"


def _check_expected(parts: Sequence[Prepared]) -> None:
    """So that a dry run says what the storage would; the storage decides."""
    for part in parts:
        found = part.before.revision if part.before else 0
        if part.change.expect is not None and part.change.expect != found:
            raise conflict(part.change.key, part.change.expect, found)
