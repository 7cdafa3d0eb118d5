"""Dead letters of routes, for people: what no route could bring to its end, to look at, to try again, or to drop.

None is shown with a secret of its route, as the route is now (`trunkline.routes.hiding`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from trunkline.core.errors import Retryable, Terminal
from trunkline.routes.hiding import Hiding
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.redaction import shown_parts
from trunkline.routes.storage.base import RouteConfig, Storage
from trunkline.routes.workshop import Workshop


class LetterRow(Protocol):
    """`step`: the filter that could not process it, or where it failed behind the filters. `came`, `at`: when its event came in
    and when it was given up, in unix seconds."""

    id: int
    org: str
    app: str
    route: str
    plugin: str
    step: str
    reason: str
    came: float
    tries: int
    at: float


class Letters(Protocol):
    async def list(
        self, tenant: Tenant | None = None, route: str | None = None, after: int = 0, limit: int = 100
    ) -> Sequence[Any]:
        """`LetterRow`s, the oldest first, from the one behind `after` on."""

    async def show(self, id: int) -> tuple[Any, Any]:
        """With its content."""

    async def replay(self, ids: Sequence[int]) -> int: ...

    async def drop(self, ids: Sequence[int]) -> int: ...


class NoSuchLetter(Terminal):
    def __init__(self, id: int) -> None:
        super().__init__(f"dead letter {id}", "there is none", "see GET /v1/deadletters for their ids")


class Lettering:
    def __init__(self, letters: Letters | None, storage: Storage, workshop: Workshop) -> None:
        self._letters, self._storage, self._workshop = letters, storage, workshop

    async def listed(self, tenant: Tenant | None, route: str, after: int, most: int) -> dict[str, Any]:
        found = await self._there().list(tenant, route or None, after, most + 1)
        hidings = await self._hidings(found[:most])
        rows = [_shown(row, hidings.get(_route(row))) for row in found[:most]]
        return {"letters": rows, "next": rows[-1]["id"] if len(found) > most else None}

    async def tenant(self, id: int) -> Tenant:
        """Whose letter it is."""
        found = await self._there().list(None, None, id - 1, 1)
        if not found or found[0].id != id:
            raise NoSuchLetter(id)
        return Tenant(found[0].org, found[0].app)

    async def show(self, id: int) -> dict[str, Any]:
        row, content = await self._there().show(id)
        hiding = (await self._hidings([row])).get(_route(row))
        message = content if isinstance(content, Mapping) else {"payload": content}
        masked = hiding.message(message) if hiding else shown_parts(message)
        return {**_shown(row, hiding), "content": masked if message is content else masked["payload"]}

    async def replay(self, id: int) -> dict[str, Any]:
        return {"id": id, "tried_again": bool(await self._there().replay([id]))}

    async def drop(self, id: int) -> dict[str, Any]:
        return {"id": id, "dropped": bool(await self._there().drop([id]))}

    async def _hidings(self, rows: Sequence[LetterRow]) -> dict[RouteKey, Hiding]:
        """By route, of those that are still there."""
        stored = await self._storage.read(list({_route(row): None for row in rows}))
        return await asyncio.to_thread(self._hiding, stored)

    def _hiding(self, stored: Mapping[RouteKey, RouteConfig]) -> dict[RouteKey, Hiding]:
        found = {key: Hiding.stored(self._workshop, key, config.body) for key, config in stored.items()}
        return {key: hiding for key, hiding in found.items() if hiding is not None}

    def _there(self) -> Letters:
        if self._letters is None:
            raise Retryable("dead letters", "this instance keeps none", "ask a node of the site")
        return self._letters


def _route(row: LetterRow) -> RouteKey:
    return RouteKey(Tenant(row.org, row.app), row.route)


def _shown(row: LetterRow, hiding: Hiding | None) -> dict[str, Any]:
    return {
        "id": row.id,
        "tenant": {"orgId": row.org, "appId": row.app},
        "route": row.route,
        "sender": row.plugin,
        "step": row.step,
        "reason": hiding.text(row.reason) if hiding else row.reason,
        "tries": row.tries,
        "came": row.came,
        "at": row.at,
    }
