"""From what somebody sent to a change of the table: read, filled in, checked and compiled, or all its mistakes at once.

O1  Fragments are filled in first; then what was shown with stars means what is stored (`redaction.filled`).
O2  Every mistake says the field, the reason, and what would be right. Of several routes all mistakes come together.
O3  What is only in answers (`status`, `hash`, `revision`) is overlooked, so that what was shown can be sent back.
O4  Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from trunkline.core.errors import Invalid, Terminal
from trunkline.core.mistakes import Mistake, Mistakes, printable
from trunkline.routes.fragments import fragment_names, inflate
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.live import RELOADED
from trunkline.routes.manager import NoSuchRoute
from trunkline.routes.model import ReadRoute, RouteReader, read_route
from trunkline.routes.redaction import filled
from trunkline.routes.registry import Kind
from trunkline.routes.route import notes_of
from trunkline.routes.shown import models_of
from trunkline.routes.storage.base import Body, Change, Put, RouteConfig, Storage
from trunkline.routes.workshop import Workshop

ONLY_SHOWN = ("hash", "revision", "state", "reason")


class NoSuchFragment(Terminal):
    def __init__(self, tenant: Tenant, name: str) -> None:
        super().__init__(f"fragment {printable(name)}", f"{tenant} has none of this name", "look at the tenant's fragments")


class Prepared(msgspec.Struct, frozen=True):
    """A change that is right as far as can be said. `before`: what is stored."""

    change: Change
    warnings: tuple[Mistake, ...]
    before: RouteConfig | None


class Writing:
    def __init__(self, storage: Storage, workshop: Workshop) -> None:
        self._storage, self._workshop = storage, workshop
        self._reader = RouteReader(workshop.plugins, user_required=True)
        self._models = models_of(workshop.plugins)

    async def prepared(self, tenant: Tenant, body: Any, id: str = "", expect: int | None = None) -> Prepared:
        """`id`: as the address has it; that of the body must be the same, or none."""
        raw = _named(body, id)
        before = await self._before(tenant, raw)
        inflated = await self._inflated(tenant, raw)
        one, warnings = await self._read(tenant, filled(inflated, before.body if before else {}, self._models))
        return await self._prepared(tenant, one, warnings, before, expect)

    async def tried(self, tenant: Tenant, body: Any, id: str = "") -> Prepared:
        """For trying it out, with all that it makes to be seen: stars stay stars, for its filters could tell what they hide."""
        one, warnings = await self._read(tenant, await self._inflated(tenant, _named(body, id)))
        return await self._prepared(tenant, one, warnings, None, None)

    async def _prepared(
        self, tenant: Tenant, one: ReadRoute, warnings: tuple[Mistake, ...], before: RouteConfig | None, expect: int | None
    ) -> Prepared:
        if before is None or one.key != before.key:
            before = await self._before(tenant, {"id": one.key.id})
        return Prepared(Put(one.key, one.hash, one.configuration.body, _notes(one, before), expect, True), warnings, before)

    async def stored(self, key: RouteKey) -> RouteConfig:
        found = (await self._storage.read([key])).get(key)
        if found is None:
            raise NoSuchRoute(key)
        return found

    async def _before(self, tenant: Tenant, raw: Body) -> RouteConfig | None:
        id = raw.get("id")
        if not isinstance(id, str) or not id:
            return None
        key = RouteKey(tenant, id)
        return (await self._storage.read([key])).get(key)

    async def _inflated(self, tenant: Tenant, raw: Body) -> Body:
        names = fragment_names(raw)
        if not names:
            return raw
        found = {one.name: one.body for one in await self._storage.fragments(tenant)}
        plugins = {kind.value: self._workshop.plugins.names(kind) for kind in Kind}
        return inflate(raw, found, plugins).body

    async def _read(self, tenant: Tenant, raw: Body) -> tuple[ReadRoute, tuple[Mistake, ...]]:
        return await self._workshop.compiling.do(raw, lambda: self._read_here(tenant, raw))

    def _read_here(self, tenant: Tenant, raw: Body) -> tuple[ReadRoute, tuple[Mistake, ...]]:
        reading = read_route(raw, self._reader, tenant)
        if reading.mistakes:
            raise Mistakes("route", reading.mistakes, "mend these fields")
        one = reading.routes[0]
        self._workshop.compiled(one.route)
        return one, reading.warnings


def _named(body: Any, id: str) -> dict[str, Any]:
    """The body with the id that the address has."""
    if not isinstance(body, Mapping):
        raise _wrong("", "a map is wanted", "write a route: receiver, filterChain, sender")
    raw = {key: value for key, value in body.items() if key not in ONLY_SHOWN}
    if not id:
        return raw
    if raw.get("id") not in (None, "", id):
        reason = f"{printable(str(raw['id']))!r} is not the id of the address, {printable(id)!r}"
        raise _wrong("id", reason, "leave it out, or write the same")
    return {**raw, "id": id}


def _wrong(key: str, reason: str, next_step: str) -> Mistakes:
    return Mistakes("route", [Mistake("", None, key, reason, next_step)], "mend these fields")


def _notes(one: ReadRoute, before: RouteConfig | None) -> dict[str, Any]:
    """A route that is written again is not built anew for it."""
    kept = {RELOADED: before.notes[RELOADED]} if before and RELOADED in before.notes else {}
    return {**notes_of(one.notes), **kept}


def all_mistakes(what: str, found: Sequence[tuple[str, Exception]]) -> Mistakes:
    """Of several parts of one request, each with where it stands."""
    return Mistakes(
        what, [mistake for at, error in found for mistake in mistakes_of(at, error)], "mend these; nothing was changed"
    )


def mistakes_of(at: str, error: Exception) -> list[Mistake]:
    if isinstance(error, Mistakes):
        return [replace(one, key=f"{at}.{one.key}" if one.key else at) for one in error.mistakes]
    if isinstance(error, Invalid):
        return [Mistake("", None, at, f"{error.what}: {error.why}", error.next_step)]
    raise error
