"""How operators look into a database: one short transaction each, and what it answers instead of an answer says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row

from trunkline.core.errors import Retryable, Terminal, TrunklineError
from trunkline.db.away import AWAY, in_one_line

Shown = dict[str, Any]
"""Plain values, ready for JSON."""
Connect = Callable[[], AbstractContextManager[psycopg.Connection[Any]]]
Missing = Callable[[str], TrunklineError]
"""What to raise where the part's tables are not there, or not as they must be; the argument is what the database said."""
ANSWER_MS = 10_000
_ABSENT = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedColumn)


@contextmanager
def told(what: str, missing: Missing) -> Iterator[None]:
    """What a database may answer instead, with the next step."""
    try:
        yield
    except _ABSENT as error:
        raise missing(in_one_line(error)) from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise Terminal(what, in_one_line(error), "ask as a role that may") from None
    except AWAY as error:
        raise Retryable(what, in_one_line(error), "see that it runs, then ask again") from None


@contextmanager
def operated(connect: Connect, what: str, missing: Missing, most_ms: int = ANSWER_MS) -> Iterator[psycopg.Connection[Any]]:
    with told(what, missing), connect() as conn, conn.transaction():
        conn.execute(f"SET LOCAL statement_timeout = {most_ms}")
        yield conn


def rows_of(conn: psycopg.Connection[Any], query: str, args: Mapping[str, Any] | None = None) -> list[Shown]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query.encode(), args).fetchall()
