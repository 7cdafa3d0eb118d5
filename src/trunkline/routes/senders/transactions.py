"""Messages that are rows of a database: what is one transaction, what becomes of one that is refused, and what is sent once.

1.  All messages of a call are one transaction, in their order. If it is refused, its halves are tried, each in a transaction,
    and so on: what cannot be sent stays alone with its refusal, and everything else is there.
2.  The id of a message that is `once` is kept in the transaction that sends it. One whose id is there already counts as sent.
3.  A database that is away refuses nothing: another try may help. A commit whose answer was lost may have happened; only a
    message that is `once` is not doubled then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg

from trunkline.core.errors import Retryable, TrunklineError
from trunkline.db.away import AWAY, in_one_line
from trunkline.routes.ends import Pool, Sendable, Undelivered
from trunkline.routes.senders.once import Once

Connection = psycopg.AsyncConnection[Any]
Write = Callable[[Connection, Sequence[Sendable]], Awaitable[None]]
"""Writes them all, in their order, in the transaction that is open; or raises."""
Answers = list[Undelivered | None]

CONNECT_SECONDS = 3.0
SEND_SECONDS = 30.0
"""So long a call waits for locks and for what the database does."""

_OF_ALL = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.InvalidColumnReference,  # no unique index on the key
)
_AWAY = (*AWAY, TimeoutError)


class Transactions:
    """`told`: makes a reason fit to be shown."""

    def __init__(self, pool: Pool, write: Write, once: Once, told: Callable[[str], str], seconds: float = SEND_SECONDS) -> None:
        self._pool, self._write, self._once, self._told, self._seconds = pool, write, once, told, seconds

    async def send(self, messages: Sequence[Sendable]) -> Answers:
        try:
            async with asyncio.timeout(self._seconds), self._pool.connection(CONNECT_SECONDS) as conn:
                if any(message.once for message in messages):
                    await self._once.prepare(conn)
                return await self._tried(conn, messages)
        except _AWAY as error:
            return self._all(messages, error)

    async def _tried(self, conn: Connection, messages: Sequence[Sendable]) -> Answers:
        try:
            async with conn.transaction():
                await self._write(conn, await self._once.new_of(conn, messages))
        except (*AWAY, *_OF_ALL) as error:
            return self._all(messages, error)
        except (psycopg.Error, TrunklineError) as error:
            if len(messages) == 1:
                return self._all(messages, error)
            half = len(messages) // 2
            return [*await self._tried(conn, messages[:half]), *await self._tried(conn, messages[half:])]
        return [None] * len(messages)

    def _all(self, messages: Sequence[Sendable], error: Exception) -> Answers:
        return [Undelivered(self._told(_reason(error, self._seconds)), isinstance(error, (*_AWAY, Retryable)))] * len(messages)


def _reason(error: Exception, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"the database did not answer within {seconds:g} s"
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return error.diag.message_primary
    return in_one_line(error)
