"""How each route is at each instance, repairs, and what became of a change.

Of this instance the table says it. Another says it with its heartbeat (`trunkline.routes.told`); of what is newer than that
its last ack does: as it was heard here, or where acks are kept for all (Postgres) as it stands there. One that started after a
route was last changed has loaded it, and acked nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from trunkline.core.errors import Terminal
from trunkline.routes.acked import Word
from trunkline.routes.instances import Instance
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.manager import RoutingTableManager
from trunkline.routes.repair import Repaired
from trunkline.routes.shown import shown_key, shown_outcome, shown_status
from trunkline.routes.storage.base import RouteConfig, Storage
from trunkline.routes.tenancy import Tenancy
from trunkline.routes.told import Told, ToldRows


class AckedRows(Protocol):
    async def words(self, keys: Sequence[RouteKey]) -> dict[RouteKey, dict[str, Word]]:
        """The last word of each instance on these routes."""


class NoSuchChange(Terminal):
    def __init__(self, session: str) -> None:
        why = "this instance published no such change, or more than ten seconds ago"
        super().__init__(f"change {session}", why, "see GET /v1/routes/status for how its routes are")


class Standing:
    def __init__(
        self, manager: RoutingTableManager, storage: Storage, tenancy: Tenancy, others: Callable[[], Sequence[Instance]],
        rows: AckedRows | None, told: ToldRows | None = None,
    ) -> None:  # fmt: skip
        self._manager, self._storage, self._tenancy, self._others, self._rows = manager, storage, tenancy, others, rows
        self._told = told

    async def status(
        self, tenant: Tenant | None, id: str = "", after: RouteKey | None = None, most: int = 1000
    ) -> dict[str, Any]:
        """Of all routes, of a tenant's, or of one."""
        if tenant is not None:
            await self._tenancy.check(tenant)
        keys = await self._keys(tenant, id)
        page = [key for key in keys if after is None or key > after][: most + 1]
        told = await self._told.told() if self._told is not None else {}
        stored, words, others = await self._storage.read(page[:most]), await self._words(page[:most]), self._others()
        return {
            "instance": self._manager.instance,
            "instances": [self._manager.instance, *(other.id for other in others)],
            "ready": self._manager.ready,
            "routes": [self._route(key, stored.get(key), words.get(key, {}), others, told) for key in page[:most]],
            "next": str(page[most - 1]) if len(page) > most else None,
        }

    async def change(self, session: str, seconds: float) -> dict[str, Any]:
        """What the others made of a change that was published here; waits for them, at most so long."""
        outcome = await self._manager.everywhere(session, seconds)
        if outcome is None:
            raise NoSuchChange(session)
        return shown_outcome(session, outcome)

    async def repair(self) -> dict[str, Any]:
        return _shown_repair(await self._manager.repair())

    async def repairs(self) -> list[dict[str, Any]]:
        """Those that found something, the newest first."""
        return [_shown_repair(one) for one in reversed(self._manager.repairs.reports)]

    async def _keys(self, tenant: Tenant | None, id: str) -> list[RouteKey]:
        """Stored ones, and those that are still here."""
        stored = {route.key for route in (await self._storage.scan()).routes}
        here = self._manager.table.ids.keys() | self._manager.table.refused.keys()
        return sorted(key for key in stored | here if tenant in (None, key.tenant) and id in ("", key.id))

    async def _words(self, keys: Sequence[RouteKey]) -> dict[RouteKey, dict[str, Word]]:
        if self._rows is not None:
            return await self._rows.words(keys)
        names = [other.id for other in self._others()]
        return {key: self._manager.acked.words(key, names) for key in keys}

    def _route(
        self, key: RouteKey, stored: RouteConfig | None, words: dict[str, Word], others: Sequence[Instance],
        told: Mapping[str, Told],
    ) -> dict[str, Any]:  # fmt: skip
        revision = stored.revision if stored else 0
        here = {"instance": self._manager.instance, **shown_status(self._manager.status(key)), "at": None}
        elsewhere = [_other(other, words.get(other.id), stored, told.get(other.id)) for other in others]
        return {**shown_key(key), "revision": revision, "instances": [here, *elsewhere]}


def _other(instance: Instance, word: Word | None, stored: RouteConfig | None, told: Told | None) -> dict[str, Any]:
    if stored is not None and told is not None and told.looked >= stored.revision:
        return _as_told(instance, word, stored, told)
    loaded = stored is not None and instance.started > stored.modified
    if word is None or (loaded and word.at < instance.started):
        return _said(instance, "loaded" if loaded else "unknown", stored.revision if stored and loaded else 0)
    if word.reason:
        return _said(instance, "refused", word.revision, stored.revision if stored else 0, word)
    current = word.revision == (stored.revision if stored else 0)
    return _said(instance, "acked" if current else "behind", word.revision, 0, word)


def _as_told(instance: Instance, word: Word | None, stored: RouteConfig, told: Told) -> dict[str, Any]:
    if refused := told.of(stored.key):
        why = Word(instance.id, refused.has, refused.reason, word.at if word and word.reason else instance.heartbeat)
        return _said(instance, "refused", refused.has, refused.revision, why)
    if word is not None and word.revision == stored.revision and not word.reason:
        return _said(instance, "acked", stored.revision, 0, word)
    return _said(instance, "loaded", stored.revision)


def _said(instance: Instance, state: str, revision: int, refused: int = 0, word: Word | None = None) -> dict[str, Any]:
    reason, at = (word.reason, word.at) if word else ("", None)
    return {"instance": instance.id, "state": state, "revision": revision, "refused": refused, "reason": reason, "at": at}


def _shown_repair(one: Repaired) -> dict[str, Any]:
    return {
        "at": one.at,
        "revision": one.revision,
        "repaired": [{**shown_key(key), "what": kind.value} for key, kind in one.routes.items()],
        "refused": [{**shown_key(key), "reason": reason} for key, reason in one.refused.items()],
    }
