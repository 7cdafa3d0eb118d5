"""A database that is away: how soon that is noticed, which errors pass without anybody changing anything, and what they say in
one line."""

from __future__ import annotations

from contextlib import suppress
from os import dup
from socket import SHUT_RDWR, socket
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

# A lost connection, a deadlock, a standby that is about to be promoted; and that this process slept in a transaction.
AWAY = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
)

# A host that is gone without a word is noticed after 10 s or so: by what it does not acknowledge and, while an answer is
# awaited, by what it does not echo. The kernel's own times are a quarter of an hour and two hours.
_NOTICED = {
    "connect_timeout": 5, "tcp_user_timeout": 10_000, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3,
}  # fmt: skip
_CANCEL_SECONDS = 2.0


def attentive(dsn: str) -> str:
    """With the times after which a host is gone, but for those that it says itself."""
    return make_conninfo("", **{**_NOTICED, **conninfo_to_dict(dsn)})


def cancel(conn: psycopg.Connection[Any]) -> None:
    """Asks the server to end the statement that another thread waits for. Whether it does, is not known."""
    with suppress(psycopg.Error, OSError):
        conn.cancel_safe(timeout=_CANCEL_SECONDS)


def cut(conn: psycopg.Connection[Any]) -> None:
    """Another thread's statement fails at once, whatever the server does."""
    with suppress(psycopg.Error, OSError), socket(fileno=dup(conn.fileno())) as wire:
        wire.shutdown(SHUT_RDWR)


def in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
