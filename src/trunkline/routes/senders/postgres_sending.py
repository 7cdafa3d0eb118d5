"""Rows of a table: one statement for all consecutive messages that have the same columns.

The database itself makes a row of the JSON, by the types that its table has (`jsonb_populate_recordset`). A column that a
message does not name gets its default. With a key, of several rows of one key in a statement the last is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from trunkline.routes.ends import Place, Pool, Sendable, Undelivered
from trunkline.routes.secrets import scrubbed
from trunkline.routes.senders.once import MadeOnce, Once
from trunkline.routes.senders.postgres import PostgresSenderConfig, Row
from trunkline.routes.senders.transactions import Transactions

MOST_ROWS = 5_000  # of a transaction: so long others wait for the keys that it writes
MOST_CONNECTIONS = 4  # to a database of the route's own
_GIVE_UP_SECONDS = 2.0  # a connection that cannot be made is asked for anew by the next call, not later and later
_MOST_SHAPES = 256  # sets of columns whose statements are kept: events decide how many there are
_GUARD = "trunkline_sent"

_INSERT = sql.SQL("INSERT INTO {table} ({columns}) SELECT {columns} FROM jsonb_populate_recordset(NULL::{table}, %s::jsonb)")
_UPSERT = sql.SQL("{insert} ORDER BY {key} ON CONFLICT ({key}) DO {update}")


class PostgresSending:
    def __init__(self, config: PostgresSenderConfig, place: Place, own: Pool | None) -> None:
        self._own, self._key = own, config.key
        self._table = sql.Identifier(*config.table.split("."))
        guard = sql.Identifier(*config.table.split(".")[:-1], _GUARD)
        once = Once() if own is None else MadeOnce(guard, place.clock)
        self._statement = lru_cache(_MOST_SHAPES)(self._statement_of)
        self._transactions = Transactions(own or place.pool, self._write, once, lambda reason: scrubbed(reason, config))

    @classmethod
    async def open(cls, config: PostgresSenderConfig, place: Place) -> PostgresSending:
        own = None if config.database is None else _pool(config.database.reveal())
        if own is not None:
            await own.open()
        return cls(config, place, own)

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        answers: list[Undelivered | None] = []
        for begin in range(0, len(messages), MOST_ROWS):
            answers += await self._transactions.send(messages[begin : begin + MOST_ROWS])
        return answers

    async def close(self) -> None:
        if self._own is not None:
            await self._own.close()

    async def _write(self, conn: psycopg.AsyncConnection[Any], messages: Sequence[Sendable]) -> None:
        rows: list[Row] = [one.message for one in messages]
        for columns, run in groupby(rows, key=lambda row: row.columns):
            await conn.execute(self._statement(columns), (f"[{','.join(self._texts(list(run)))}]",))

    def _texts(self, rows: list[Row]) -> list[str]:
        return list({row.key: row.row for row in rows}.values()) if self._key else [row.row for row in rows]

    def _statement_of(self, columns: tuple[str, ...]) -> sql.Composed:
        insert = _INSERT.format(table=self._table, columns=_names(columns))
        if not self._key:
            return insert
        others = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in columns if name not in self._key]
        update = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(others)) if others else sql.SQL("NOTHING")
        return _UPSERT.format(insert=insert, key=_names(self._key), update=update)


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _pool(dsn: str) -> Pool:
    return AsyncConnectionPool(
        dsn,
        min_size=0,
        max_size=MOST_CONNECTIONS,
        name="route-postgres",
        open=False,
        reconnect_timeout=_GIVE_UP_SECONDS,
        kwargs={
            "application_name": "trunkline-route",
            "connect_timeout": 10,
            "tcp_user_timeout": 10_000,  # a database that is gone without a word is noticed
        },
    )
