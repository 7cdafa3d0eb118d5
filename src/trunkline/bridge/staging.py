"""Rows on their way into a table: of many sites at once, by COPY into a temporary table of the connection."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psycopg
from psycopg import sql

from trunkline.core.errors import Invalid

NULL = "\\N"
_SPECIAL = re.compile(r"[\\\t\n\r\x00]")
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def plain(text: str) -> str:
    """A text as COPY reads it."""
    if not _SPECIAL.search(text):
        return text
    if "\x00" in text:
        raise Invalid(f"text {text[:60]!r}", "it holds a NUL character, which Postgres cannot keep", "send text without it")
    return text.translate(_ESCAPES)


@dataclass(frozen=True)
class Stage:
    """`columns`: (name, SQL type). It is empty at the start of every transaction, and before it is filled again."""

    name: str
    columns: tuple[tuple[str, str], ...]

    @cached_property
    def _statements(self) -> tuple[sql.Composed, sql.Composed, sql.Composed]:
        name = sql.Identifier("pg_temp", self.name)
        typed = sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(c), sql.SQL(t)) for c, t in self.columns)
        return (
            sql.SQL("CREATE TEMPORARY TABLE IF NOT EXISTS {} ({}) ON COMMIT DELETE ROWS").format(
                sql.Identifier(self.name), typed
            ),
            sql.SQL("TRUNCATE {}").format(name),
            sql.SQL("COPY {} FROM STDIN").format(name),
        )

    def empty(self, conn: psycopg.Connection[Any]) -> None:
        for statement in self._statements[:2]:
            conn.execute(statement)

    def fill(self, conn: psycopg.Connection[Any], blocks: Iterable[str]) -> None:
        """`blocks` are whole lines of COPY, with their ends."""
        self.empty(conn)
        with conn.cursor() as cursor, cursor.copy(self._statements[2]) as copy:
            for block in blocks:
                copy.write(block)


def counted(
    conn: psycopg.Connection[Any], statement: sql.Composable | str, values: Mapping[str, object] | Sequence[object]
) -> Counter[str]:
    """Runs a statement that returns the column `site` of every row it wrote: how many there were of each."""
    text = sql.SQL(statement) if isinstance(statement, str) else statement
    query = sql.SQL("WITH written AS ({}) SELECT site, count(*) FROM written GROUP BY site").format(text)
    return Counter(dict(conn.execute(query, values).fetchall()))
