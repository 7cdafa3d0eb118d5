"""Writing a bundle's rows: COPY into a temporary table, then only what differs, set by set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg
from psycopg import sql

from trunkline.bridge.types import BundleType, Missing
from trunkline.core.bundle import Mode

Statement = sql.Composed


@dataclass(frozen=True)
class _Statements:
    """`stage` and `copy` take no parameters, the others the site."""

    stage: Statement
    copy: Statement
    upsert: Statement
    delete: Statement | None


def _names(names: Sequence[str], prefix: str = "") -> Statement:
    return sql.SQL(", ").join(sql.Identifier(*([prefix] if prefix else []), name) for name in names)


def _upsert_tail(declared: BundleType) -> Statement:
    """What becomes of a row that is there already and differs."""
    values = [*(c for c in declared.names if c not in declared.key), "updated_at"]
    changes = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(c)) for c in values)
    return sql.SQL("DO UPDATE SET {}").format(changes)


def _ignore_tail(_: BundleType) -> Statement:
    return sql.Composed([sql.SQL("DO NOTHING")])


# A complete bundle states each key once, so a second row with it is an error; an append bundle may repeat itself.
_ON_CONFLICT: dict[Mode, Callable[[BundleType], Statement]] = {Mode.COMPLETE: _upsert_tail, Mode.APPEND: _ignore_tail}
_STAGE_KEY = {Mode.COMPLETE: "UNIQUE ({})", Mode.APPEND: "CHECK (({}) IS NOT NULL)"}

_STAGE = "CREATE TEMPORARY TABLE IF NOT EXISTS {stage} ({columns}, {key}) ON COMMIT DELETE ROWS"
_COPY = "COPY {stage} ({columns}) FROM STDIN"
_UPSERT = """
INSERT INTO {table} (site, {columns}, updated_at)
SELECT %(site)s, {columns}, clock_timestamp() FROM {stage} AS i
 WHERE NOT EXISTS (SELECT 1 FROM {table} AS t
                    WHERE t.site = %(site)s AND ({table_key}) = ({stage_key})
                      AND ({table_columns}) IS NOT DISTINCT FROM ({stage_columns}))
 ORDER BY {stage_key}
ON CONFLICT (site, {key}) {tail}
"""
_DELETE = """
DELETE FROM {table} AS t
 WHERE t.site = %(site)s AND NOT EXISTS (SELECT 1 FROM {stage} AS i WHERE ({table_key}) = ({stage_key}))
"""


@cache
def _statements(declared: BundleType) -> _Statements:
    parts: dict[str, sql.Composable] = {
        "table": sql.Identifier(*declared.table.split(".")),
        "stage": sql.Identifier(f"rows_{declared.name}"),
        "columns": _names(declared.names),
        "key": _names(declared.key),
        "table_key": _names(declared.key, "t"),
        "stage_key": _names(declared.key, "i"),
        "table_columns": _names(declared.names, "t"),
        "stage_columns": _names(declared.names, "i"),
        "tail": _ON_CONFLICT[declared.mode](declared),
    }
    typed = sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(c), sql.SQL(t)) for c, t in declared.columns)
    key = sql.SQL(_STAGE_KEY[declared.mode]).format(_names(declared.key))
    return _Statements(
        stage=sql.SQL(_STAGE).format(stage=parts["stage"], columns=typed, key=key),
        copy=sql.SQL(_COPY).format(**parts),
        upsert=sql.SQL(_UPSERT).format(**parts),
        delete=sql.SQL(_DELETE).format(**parts) if declared.missing is Missing.GONE else None,
    )


def write_rows(conn: psycopg.Connection[Any], declared: BundleType, site: str, rows: Sequence[tuple[object, ...]]) -> int:
    """How many rows were inserted, changed or deleted; the transaction stays open."""
    statements = _statements(declared)
    with conn.cursor() as cursor:
        cursor.execute(statements.stage)
        with cursor.copy(statements.copy) as copy:
            for row in rows:
                copy.write_row(row)
        written = cursor.execute(statements.upsert, {"site": site}).rowcount
        if statements.delete is not None:
            written += cursor.execute(statements.delete, {"site": site}).rowcount
    return written
