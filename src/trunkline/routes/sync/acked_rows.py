"""The acks that Postgres keeps for a day, read by whoever wants to show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg
from psycopg_pool import AsyncConnectionPool

from trunkline.core.errors import Retryable
from trunkline.db.away import AWAY, in_one_line
from trunkline.routes.acked import Word
from trunkline.routes.keys import RouteKey, Tenant

Pool = AsyncConnectionPool[psycopg.AsyncConnection[Any]]

_WORDS: LiteralString = """
SELECT DISTINCT ON (org, app, id, instance)
       org, app, id, instance, revision, reason, extract(epoch FROM at)::float8
  FROM routes.ack JOIN unnest(%s::text[], %s::text[], %s::text[]) AS wanted (org, app, id) USING (org, app, id)
 WHERE item = 'route' ORDER BY org, app, id, instance, at DESC
"""


class PostgresAcks:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def words(self, keys: Sequence[RouteKey]) -> dict[RouteKey, dict[str, Word]]:
        columns = [[key.tenant.org for key in keys], [key.tenant.app for key in keys], [key.id for key in keys]]
        try:
            async with self._pool.connection() as conn:
                rows = await (await conn.execute(_WORDS, columns)).fetchall()
        except AWAY as error:
            raise Retryable("acks of routes", in_one_line(error), "see that the database runs") from None
        found: dict[RouteKey, dict[str, Word]] = {}
        for org, app, id, instance, *word in rows:
            found.setdefault(RouteKey(Tenant(org, app), id), {})[instance] = Word(instance, *word)
        return found
