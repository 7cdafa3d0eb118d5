"""How each instance's table is beside the stored one, as it says itself, with its heartbeat (`trunkline.routes.instances`).

Acks say what became of one change, for a day, and only if somebody told of it. This says what is: also long after, also of what
an instance found by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, LiteralString, Protocol

import msgspec
import psycopg
from psycopg_pool import AsyncConnectionPool

from trunkline.core.errors import Retryable
from trunkline.core.jsoncodec import dumps
from trunkline.db.away import AWAY, in_one_line
from trunkline.routes.keys import RouteKey
from trunkline.routes.table import Table

MOST_REFUSED = 1_000
"""Some hundred kilobytes in one row. Who refuses more says nothing, and only its acks are known."""
_MOST_REASON = 300

_TELL: LiteralString = "UPDATE site.instance SET looked = %s, refused = %s::jsonb WHERE id = %s"
_TOLD: LiteralString = "SELECT id, looked, refused FROM site.instance WHERE looked IS NOT NULL"


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """`has`: the revision that runs on; 0: none."""

    revision: int
    has: int
    reason: str


class Told(msgspec.Struct, frozen=True):
    """It has all that is not newer than `looked` as it is stored, but for `refused`."""

    looked: int
    refused: dict[str, Refusal]

    def of(self, key: RouteKey) -> Refusal | None:
        return self.refused.get(str(key))


Tells = Callable[[], Told | None]


class ToldRows(Protocol):
    async def told(self) -> dict[str, Told]:
        """By instance."""


def told_of(table: Table, looked: int) -> Told | None:
    if len(table.refused) > MOST_REFUSED:
        return None
    return Told(looked, {str(key): _refusal(table, key) for key in table.refused})


def _refusal(table: Table, key: RouteKey) -> Refusal:
    known, refused = table.ids.get(key), table.refused[key]
    reason = refused.reason.replace("\x00", "\N{SYMBOL FOR NULL}")
    return Refusal(refused.revision, known.revision if known else 0, reason[:_MOST_REASON])


async def tell(conn: psycopg.AsyncConnection[Any], id: str, told: Told | None) -> None:
    looked, refused = (told.looked, dumps(msgspec.to_builtins(told.refused)).decode()) if told is not None else (None, None)
    await conn.execute(_TELL, (looked, refused, id))


class PostgresTold:
    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def told(self) -> dict[str, Told]:
        try:
            async with self._pool.connection() as conn:
                rows = await (await conn.execute(_TOLD)).fetchall()
        except AWAY as error:
            raise Retryable("instances of routes", in_one_line(error), "see that the database runs") from None
        return {id: msgspec.convert({"looked": looked, "refused": refused or {}}, Told) for id, looked, refused in rows}
