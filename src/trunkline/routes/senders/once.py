"""The ids of messages that are sent once, in the database that they are sent to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from trunkline.core.clock import Clock
from trunkline.core.errors import Terminal
from trunkline.db.away import AWAY
from trunkline.routes.ends import Sendable

Connection = psycopg.AsyncConnection[Any]

OF_SITE = sql.Identifier("routes", "sent")
KEEP_DAYS = 7
"""A message that is sent again later than this is sent twice; nobody tries for so long."""
_LOOK_SECONDS = 3600.0

# In order: two that send the same wait for each other, and do not lock each other out.
_NEW = sql.SQL("INSERT INTO {} (message_id, at) SELECT unnest(%s::text[]), now() ON CONFLICT DO NOTHING RETURNING message_id")
_MAKE = sql.SQL("CREATE TABLE IF NOT EXISTS {} (message_id text PRIMARY KEY, at timestamptz NOT NULL)")
_FORGET = sql.SQL("DELETE FROM {} WHERE at < now() - make_interval(days => %s)")


class Once:
    """In the site's own database: its table comes with the schema `routes`, which also looks after it."""

    def __init__(self, table: sql.Identifier = OF_SITE) -> None:
        self._table, self._new = table, _NEW.format(table)

    async def prepare(self, conn: Connection) -> None:
        """Before a transaction."""

    async def new_of(self, conn: Connection, messages: Sequence[Sendable]) -> Sequence[Sendable]:
        """Those that were not sent yet; their ids are kept if the transaction commits."""
        ids = sorted({message.id for message in messages if message.once})
        if not ids:
            return messages
        try:
            new = {id for (id,) in await (await conn.execute(self._new, (ids,))).fetchall()}
        except psycopg.errors.UndefinedTable:
            table = self._table.as_string()
            step = f"let its owner run: {_MAKE.format(self._table).as_string()}, and grant SELECT, INSERT, DELETE"
            raise Terminal(f"table {table}", "it is not there, and cannot be made", step) from None
        return [message for message in messages if not message.once or _taken(new, message.id)]


def _taken(new: set[str], id: str) -> bool:
    """True for the first that asks."""
    if id not in new:
        return False
    new.remove(id)
    return True


class MadeOnce(Once):
    """In a database of somebody else: the table is made where it is missing, and old ids are forgotten there."""

    def __init__(self, table: sql.Identifier, clock: Clock) -> None:
        super().__init__(table)
        self._clock = clock
        self._looked = float("-inf")

    async def prepare(self, conn: Connection) -> None:
        if self._clock.monotonic() - self._looked < _LOOK_SECONDS:
            return
        try:
            async with conn.transaction():
                await conn.execute(_MAKE.format(self._table))
                await conn.execute(_FORGET.format(self._table), (KEEP_DAYS,))
        except AWAY:
            raise
        except psycopg.Error:
            return  # whether it is there all the same, the first message tells
        self._looked = self._clock.monotonic()
