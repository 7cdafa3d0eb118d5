"""Rows on their way into a table: of many sites at once, by COPY into a temporary table of the connection."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import psycopg
from psycopg import sql

from trunkline.core.errors import Invalid

NULL = "\\N"
_AT_ONCE = 32 << 10  # characters; rendering goes on while Postgres reads what was written
_SPECIAL = re.compile(r"[\\\t\n\r\x00]")
_EMPTY = "CREATE TEMPORARY TABLE IF NOT EXISTS {name} ({typed}) ON COMMIT DELETE ROWS; TRUNCATE {there}"
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
    def _empty(self) -> bytes:
        typed = sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(c), sql.SQL(t)) for c, t in self.columns)
        parts = {"name": sql.Identifier(self.name), "there": sql.Identifier("pg_temp", self.name), "typed": typed}
        return sql.SQL(_EMPTY).format(**parts).as_bytes(None)

    @cached_property
    def _copy(self) -> bytes:
        return sql.SQL("COPY {} FROM STDIN").format(sql.Identifier("pg_temp", self.name)).as_bytes(None)

    def empty(self, conn: psycopg.Connection[Any]) -> None:
        conn.execute(self._empty)

    def fill(self, conn: psycopg.Connection[Any], blocks: Iterable[str]) -> None:
        """`blocks` are whole lines of COPY, with their ends."""
        self.empty(conn)
        with conn.cursor() as cursor, cursor.copy(self._copy) as copy:
            for text in _gathered(blocks):
                copy.write(text)


def _gathered(blocks: Iterable[str]) -> Iterator[str]:
    """Small blocks together: a write costs more than a few lines do."""
    some: list[str] = []
    size = 0
    for block in blocks:
        some.append(block)
        size += len(block)
        if size >= _AT_ONCE:
            yield "".join(some)
            some, size = [], 0
    yield "".join(some)


@cache
def _counting(statement: str) -> bytes:
    return f"WITH written AS ({statement}) SELECT site, count(*) FROM written GROUP BY site".encode()


def counted(conn: psycopg.Connection[Any], statement: str, values: Mapping[str, object] | Sequence[object]) -> Counter[str]:
    """Runs a statement that returns the column `site` of every row it wrote: how many there were of each."""
    return Counter(dict(conn.execute(_counting(statement), values).fetchall()))
