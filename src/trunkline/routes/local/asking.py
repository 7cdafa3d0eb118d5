"""One way to ask the site's database: `Retryable` while it is away, and no waiting without an end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, LiteralString

import psycopg

from trunkline.core.errors import Retryable, Terminal
from trunkline.db.away import AWAY, in_one_line
from trunkline.routes.ends import Pool

SECONDS = 10.0


class Asking:
    def __init__(self, pool: Pool, what: str) -> None:
        self._pool, self._what = pool, what

    async def rows(self, statement: LiteralString, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """In a transaction of its own."""
        try:
            async with asyncio.timeout(SECONDS), self._pool.connection(timeout=SECONDS) as conn:
                cursor = await conn.execute(statement, values)
                return await cursor.fetchall() if cursor.description else []
        except (*AWAY, psycopg.errors.QueryCanceled, TimeoutError) as error:
            raise Retryable(self._what, in_one_line(error), "see that the database runs") from None
        except psycopg.Error as error:
            raise Terminal(self._what, in_one_line(error), "report this defect") from None

    async def value(self, statement: LiteralString, values: Sequence[Any] = ()) -> Any:
        rows = await self.rows(statement, values)
        return rows[0][0] if rows else None


def plain(text: str) -> str:
    """As a column takes it: no NUL, and nothing that is no character."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
