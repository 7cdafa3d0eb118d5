"""Handler of objects that become one row each, by a table of fields; a row that is there already in this form is not written.

Complete bundles replace what the site has (or add to it, where missing rows are kept), append bundles add rows that are not
there yet. Of rows with one key in one call the last counts for complete bundles, the first for append bundles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg
from psycopg import sql

from trunkline.bridge.handler import Part, Work, Written
from trunkline.bridge.payload import Field, objects
from trunkline.bridge.staging import Stage, counted, plain
from trunkline.bridge.types import BundleType, Missing
from trunkline.core.bundle import Mode
from trunkline.core.errors import Invalid
from trunkline.db.awake import awake

Values = tuple[str, ...]  # of one row, in the order of the declared columns, as COPY reads them

_REPLACE = """
INSERT INTO {table} AS t (site, {columns}, updated_at)
SELECT site, {columns}, clock_timestamp() FROM pg_temp.{stage} AS i
 WHERE NOT EXISTS (SELECT 1 FROM {table} AS t
                    WHERE t.site = ANY(%(sites)s) AND {same_key} AND ({t_columns}) IS NOT DISTINCT FROM ({i_columns}))
 ORDER BY {order}
ON CONFLICT ({key}) DO UPDATE SET {changes}
RETURNING t.site
"""
_ADD = """
INSERT INTO {table} AS t (site, {columns}, updated_at)
SELECT site, {columns}, clock_timestamp() FROM pg_temp.{stage} AS i ORDER BY {order}
ON CONFLICT ({key}) DO NOTHING
RETURNING t.site
"""
_DELETE = """
DELETE FROM {table} AS t
 WHERE t.site = ANY(%(sites)s) AND NOT EXISTS (SELECT 1 FROM pg_temp.{stage} AS i WHERE {same_key})
RETURNING t.site
"""


def stage_of(declared: BundleType) -> Stage:
    return Stage(f"staged_{declared.name}", (("site", "text"), *declared.columns))


def _names(names: Sequence[str], prefix: str = "") -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(*([prefix] if prefix else []), name) for name in names)


@cache
def _statement(declared: BundleType, text: str) -> str:
    key = ("site", *declared.key)
    values = [*(c for c in declared.names if c not in declared.key), "updated_at"]
    same = [sql.SQL("t.{0} = i.{0}").format(sql.Identifier(name)) for name in key]
    composed = sql.SQL(text).format(
        table=sql.Identifier(*declared.table.split(".")),
        stage=sql.Identifier(stage_of(declared).name),
        columns=_names(declared.names),
        t_columns=_names(declared.names, "t"),
        i_columns=_names(declared.names, "i"),
        key=_names(key),
        order=_names(key, "i"),
        same_key=sql.SQL(" AND ").join(same),
        changes=sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(c)) for c in values),
    )
    return composed.as_string(None)


def stage_rows(conn: psycopg.Connection[Any], declared: BundleType, rows: Mapping[str, Sequence[Values]]) -> None:
    stage_of(declared).fill(conn, ("".join(_lines(site, values)) for site, values in rows.items()))


def _lines(site: str, rows: Sequence[Values]) -> list[str]:
    begin = plain(site)
    return ["\t".join((begin, *row)) + "\n" for row in rows]


def write_rows(conn: psycopg.Connection[Any], declared: BundleType, rows: Mapping[str, Sequence[Values]]) -> dict[str, Written]:
    """`rows` of every site that has a bundle, also of those that have none; each key once for complete bundles."""
    stage_rows(conn, declared, rows)
    values = {"sites": list(rows)}
    written = counted(conn, _statement(declared, _ADD if declared.mode is Mode.APPEND else _REPLACE), values)
    if declared.missing is Missing.GONE:
        written += counted(conn, _statement(declared, _DELETE), values)
    return {site: Written(len(values), written[site]) for site, values in rows.items()}


@dataclass(frozen=True)
class MappedRows:
    """`fields`: one per declared column, in their order. Objects in which `needs` is missing or empty are left out."""

    fields: tuple[Field, ...]
    needs: str = ""

    def write(self, conn: psycopg.Connection[Any], declared: BundleType, work: Sequence[Work]) -> Mapping[str, Written]:
        return write_rows(conn, declared, {one.site: self.rows(conn, declared, one) for one in awake(conn, work)})

    def rows(self, conn: psycopg.Connection[Any], declared: BundleType, work: Work) -> list[Values]:
        if declared.mode is Mode.APPEND:
            return list(awake(conn, (row for part in work.parts for row in self._of(declared, part))))
        places = [declared.names.index(name) for name in declared.key]
        rows = awake(conn, self._of(declared, work.parts[-1]))
        return list({tuple(row[place] for place in places): row for row in rows}.values())

    def _of(self, declared: BundleType, part: Part) -> Iterator[Values]:
        items = objects(part.data, declared.name)
        wanted = enumerate(items) if not self.needs else ((n, one) for n, one in enumerate(items) if one.get(self.needs))
        return (self._row(declared, number, item) for number, item in wanted)

    def _row(self, declared: BundleType, number: int, item: Mapping[str, Any]) -> Values:
        try:
            return tuple(field.read(item, sql_type) for field, (_, sql_type) in zip(self.fields, declared.columns, strict=True))
        except Invalid as error:
            raise Invalid(f"{error.what} of row {number} of {declared.name}", error.why, error.next_step) from None
