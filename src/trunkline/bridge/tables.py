"""Rows as they come, of many sites at once: COPY into a temporary table, then only what differs, set by set.

Rendering is done by columns, for it is most of what Python has to do here, and while COPY runs: so the server never takes a
long bundle for a sleeping client, and both work at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from types import NoneType
from typing import Any

import psycopg
from psycopg import sql

from trunkline.bridge.handler import Work, Written
from trunkline.bridge.types import BundleType, Missing
from trunkline.core.bundle import Mode
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads

Statement = sql.Composed
Rows = Sequence[tuple[Any, ...]]

_SPECIAL = "\\\t\n\r"
_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_RENDER: dict[type, Callable[[Any], str]] = {
    str: lambda value: str(value).translate(_ESCAPED),
    int: str,
    float: repr,
    bool: lambda value: "t" if value else "f",
    NoneType: lambda _: "\\N",
}


@dataclass(frozen=True)
class _Statements:
    """The last three take the sites and give (site, rows)."""

    stage: Statement
    copy: Statement
    write: Statement
    count: Statement
    delete: Statement


def _names(names: Sequence[str], prefix: str = "") -> Statement:
    return sql.SQL(", ").join(sql.Identifier(*([prefix] if prefix else []), name) for name in names)


# Sorting text to join it costs far more than hashing it, and the planner does not know how much was just staged.
_STAGE = """
SET LOCAL enable_mergejoin = off; SET LOCAL work_mem = '64MB';
CREATE TEMPORARY TABLE IF NOT EXISTS {stage} (site text, {typed}) ON COMMIT DELETE ROWS
"""
_COPY = "COPY {stage} (site, {columns}) FROM STDIN"
_MERGE = """
WITH written AS (
    MERGE INTO {table} AS t USING {stage} AS i
       ON t.site = i.site AND ({table_key}) = ({stage_key}) AND t.site = ANY(%(sites)s)
     {matched}
     WHEN NOT MATCHED THEN INSERT (site, {columns}, updated_at) VALUES (i.site, {stage_columns}, clock_timestamp())
    RETURNING t.site)
SELECT site, count(*) FROM written GROUP BY site
"""
_MATCHED = """
WHEN MATCHED AND ({table_values}) IS DISTINCT FROM ({stage_values}) THEN UPDATE SET {changes}, updated_at = clock_timestamp()
"""
_INSERT = """
WITH written AS (
    INSERT INTO {table} (site, {columns}, updated_at) SELECT site, {columns}, clock_timestamp() FROM {stage}
    ON CONFLICT (site, {key}) DO NOTHING RETURNING site)
SELECT site, count(*) FROM written GROUP BY site
"""
_COUNT = "SELECT site, count(*) FROM {table} WHERE site = ANY(%(sites)s) GROUP BY site"
_DELETE = """
WITH written AS (
    DELETE FROM {table} AS t WHERE t.site = ANY(%(sites)s)
       AND NOT EXISTS (SELECT FROM {stage} AS i WHERE i.site = t.site AND ({table_key}) = ({stage_key}))
    RETURNING t.site)
SELECT site, count(*) FROM written GROUP BY site
"""


@cache
def _statements(declared: BundleType) -> _Statements:
    values = [name for name in declared.names if name not in declared.key]
    parts: dict[str, sql.Composable] = {
        "table": sql.Identifier(*declared.table.split(".")),
        "stage": sql.Identifier(f"rows_{declared.name}"),
        "typed": sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(c), sql.SQL(t)) for c, t in declared.columns),
        "columns": _names(declared.names),
        "key": _names(declared.key),
        "table_key": _names(declared.key, "t"),
        "stage_key": _names(declared.key, "i"),
        "stage_columns": _names(declared.names, "i"),
        "table_values": _names(values, "t"),
        "stage_values": _names(values, "i"),
        "changes": sql.SQL(", ").join(sql.SQL("{0} = i.{0}").format(sql.Identifier(c)) for c in values),
    }
    parts["matched"] = sql.SQL(_MATCHED).format(**parts) if values else sql.SQL("")
    write = _INSERT if declared.mode is Mode.APPEND else _MERGE
    return _Statements(*(sql.SQL(text).format(**parts) for text in (_STAGE, _COPY, write, _COUNT, _DELETE)))


class RowsHandler:
    """A bundle is a list of rows. A complete one states each key once; of the others the last of a delta counts, and a row
    that was appended stays as it is."""

    def write(self, conn: psycopg.Connection[Any], declared: BundleType, work: Sequence[Work]) -> Mapping[str, Written]:
        statements, sites = _statements(declared), [one.site for one in work]
        received: Counter[str] = Counter()
        with conn.cursor() as cursor:
            cursor.execute(statements.stage)
            with cursor.copy(statements.copy) as copy:
                for one in work:
                    rows = _rows(declared, one)
                    received[one.site] = len(rows)
                    for text in _rendered(declared, one.site, _folded(declared, rows)):
                        copy.write(text)
            written = Counter(_by_site(cursor, statements.write, sites))
            if declared.mode is Mode.COMPLETE and declared.missing is Missing.GONE:
                have = _by_site(cursor, statements.count, sites)
                if extra := [site for site, rows_there in have.items() if rows_there > received[site]]:
                    written.update(_by_site(cursor, statements.delete, extra))
        return {site: Written(received[site], written[site]) for site in sites}


def _by_site(cursor: psycopg.Cursor[Any], statement: Statement, sites: list[str]) -> dict[str, int]:
    return dict(cursor.execute(statement, {"sites": sites}).fetchall())


def _rows(declared: BundleType, work: Work) -> list[tuple[Any, ...]]:
    return [row for part in work.parts for row in _read(declared, part.data)]


def _read(declared: BundleType, data: bytes) -> Rows:
    document = loads(data, f"data of {declared.name}")
    pick = itemgetter(*declared.names)
    try:
        if isinstance(document, list):
            return list(map(pick, document)) if len(declared.names) > 1 else [(pick(item),) for item in document]
    except (KeyError, TypeError):
        pass
    return declared.rows(data)  # it says what is wrong


def _folded(declared: BundleType, rows: list[tuple[Any, ...]]) -> Rows:
    if declared.mode is Mode.APPEND:
        return rows
    key = itemgetter(*(declared.names.index(name) for name in declared.key))
    try:
        by_key = dict(zip(map(key, rows), rows, strict=True))
    except TypeError:  # a key that is a list or an object: rendering says so
        return rows
    if declared.mode is Mode.COMPLETE and len(by_key) != len(rows):
        raise Invalid(f"data of {declared.name}", f"the same {', '.join(declared.key)} comes twice", "send each row once")
    return tuple(by_key.values())


def _rendered(declared: BundleType, site: str, rows: Rows) -> Iterator[bytes]:
    if rows:
        columns = [_column(declared, values) for values in zip(*rows, strict=True)]
        lines = map("\t".join, zip([site.translate(_ESCAPED)] * len(rows), *columns, strict=True))
        yield ("\n".join(lines) + "\n").encode()


def _column(declared: BundleType, values: tuple[Any, ...]) -> Iterable[str]:
    kinds = set(map(type, values))
    if kinds == {str}:
        text = "".join(values)
        return [value.translate(_ESCAPED) for value in values] if any(c in text for c in _SPECIAL) else values
    if not kinds <= _RENDER.keys():
        raise Invalid(f"data of {declared.name}", "a column holds an object or a list", "send plain values")
    return [_RENDER[type(value)](value) for value in values]
