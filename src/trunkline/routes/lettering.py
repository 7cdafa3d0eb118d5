"""Dead letters of routes, for people: what no route could bring to its end, to look at, to try again, or to drop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from trunkline.core.errors import Retryable, Terminal
from trunkline.routes.keys import Tenant


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
    def __init__(self, letters: Letters | None) -> None:
        self._letters = letters

    async def listed(self, tenant: Tenant | None, route: str, after: int, most: int) -> dict[str, Any]:
        found = await self._there().list(tenant, route or None, after, most + 1)
        rows = [_shown(row) for row in found[:most]]
        return {"letters": rows, "next": rows[-1]["id"] if len(found) > most else None}

    async def tenant(self, id: int) -> Tenant:
        """Whose letter it is."""
        found = await self._there().list(None, None, id - 1, 1)
        if not found or found[0].id != id:
            raise NoSuchLetter(id)
        return Tenant(found[0].org, found[0].app)

    async def show(self, id: int) -> dict[str, Any]:
        row, content = await self._there().show(id)
        return {**_shown(row), "content": content}

    async def replay(self, id: int) -> dict[str, Any]:
        return {"id": id, "tried_again": bool(await self._there().replay([id]))}

    async def drop(self, id: int) -> dict[str, Any]:
        return {"id": id, "dropped": bool(await self._there().drop([id]))}

    def _there(self) -> Letters:
        if self._letters is None:
            raise Retryable("dead letters", "this instance keeps none", "ask a node of the site")
        return self._letters


def _shown(row: LetterRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "tenant": {"orgId": row.org, "appId": row.app},
        "route": row.route,
        "sender": row.plugin,
        "step": row.step,
        "reason": row.reason,
        "tries": row.tries,
        "came": row.came,
        "at": row.at,
    }
