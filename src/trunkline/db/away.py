"""A database that is away: which errors pass without anybody changing anything, and what they say in one line."""

from __future__ import annotations

import psycopg

# A lost connection, a deadlock, a standby that is about to be promoted; and that this process slept in a transaction.
AWAY = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
)


def in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
