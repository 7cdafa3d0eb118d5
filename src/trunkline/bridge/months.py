"""Partitions by month: made when a month is needed, dropped when it is old, never the reason that a row is refused.

P1  Every table by month has a default partition, so a row of any date has a place.
P2  A month is made by itself only around today (`BEHIND`, `AHEAD`): a wrong clock at a site makes no tables.
P3  Rows of that month that lie in the default partition move into the new one, in the same transaction.
P4  One makes months at a time; who needs one meanwhile waits for that, and then finds it.
P5  Making a month waits for its locks no longer than `PATIENCE`, for whoever comes meanwhile stands behind it; if they do not
    come the rows go to the default partition, and it is tried again with the next ones. Dropping one does the same: then it
    goes the next time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import psycopg
from psycopg import sql

BEHIND = 24
AHEAD = 2
PATIENCE = "500ms"
_MAKING = 0x6D6F6E746873  # the advisory lock of P4


@dataclass(frozen=True)
class ByMonth:
    """A table that is partitioned by the month of `column`, in UTC."""

    table: str
    column: str

    def partition(self, month: date) -> str:
        return f"{self.table}_{month:%Y_%m}"

    @property
    def rest(self) -> str:
        return f"{self.table}_other"


BY_MONTH = {
    one.table: one
    for one in (
        ByMonth("fleet.cluster_event", "created_at"),
        ByMonth("fleet.root_policy_event", "created_at"),
        ByMonth("fleet.policy_event", "created_at"),
        ByMonth("fleet.compliance_history", "day"),
    )
}

# Bounds carry their zone, so that they mean the same in every session; a column of dates ignores it.
_MAKE = """
CREATE TABLE {partition} (LIKE {table} INCLUDING DEFAULTS);
WITH moved AS (DELETE FROM {rest} WHERE {column} >= {first} AND {column} < {next} RETURNING *)
INSERT INTO {partition} SELECT * FROM moved;
ALTER TABLE {table} ATTACH PARTITION {partition} FOR VALUES FROM ({first}) TO ({next})
"""
_PARTITIONS = """
SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = %s::regclass
"""


def month_of(day: date) -> date:
    return date(day.year, day.month, 1)


def shifted(month: date, by: int) -> date:
    count = month.year * 12 + month.month - 1 + by
    return date(count // 12, count % 12 + 1, 1)


def _today() -> date:
    return datetime.now(UTC).date()


def _identifier(name: str) -> sql.Identifier:
    return sql.Identifier(*name.split("."))


def _present(conn: psycopg.Connection[Any], table: str) -> set[str]:
    schema = table.split(".")[0]
    return {f"{schema}.{name}" for (name,) in conn.execute(_PARTITIONS, (table,)).fetchall()}


def ensure_months(conn: psycopg.Connection[Any], table: str, days: Iterable[date], today: date | None = None) -> list[str]:
    """The partitions made for rows of these days; the transaction stays open."""
    by_month, now = BY_MONTH[table], month_of(today or _today())
    near = {month for month in map(month_of, days) if shifted(now, -BEHIND) <= month <= shifted(now, AHEAD)}
    if not _missing(conn, by_month, near):
        return []
    conn.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
    missing = _missing(conn, by_month, near)
    return [by_month.partition(month) for month in missing if _make(conn, by_month, month)]


def _missing(conn: psycopg.Connection[Any], by_month: ByMonth, months: set[date]) -> list[date]:
    present = _present(conn, by_month.table) if months else set()
    return sorted(month for month in months if by_month.partition(month) not in present)


def ensure_partitions(conn: psycopg.Connection[Any], months: int = 1, today: date | None = None) -> list[str]:
    """Of every table: this month, and so many before and after it. The partitions made; the transaction stays open."""
    now = month_of(today or _today())
    wanted = [shifted(now, by) for by in range(-months, months + 1)]
    return [name for table in BY_MONTH for name in ensure_months(conn, table, wanted, now)]


def _make(conn: psycopg.Connection[Any], by_month: ByMonth, month: date) -> bool:
    zone = "" if by_month.column == "day" else " 00:00:00+00"
    statement = sql.SQL(_MAKE).format(
        partition=_identifier(by_month.partition(month)),
        table=_identifier(by_month.table),
        rest=_identifier(by_month.rest),
        column=sql.Identifier(by_month.column),
        first=sql.Literal(f"{month}{zone}"),
        next=sql.Literal(f"{shifted(month, 1)}{zone}"),
    )
    return _done_soon(conn, statement)


def _done_soon(conn: psycopg.Connection[Any], statement: sql.Composed) -> bool:
    """False, and nothing done, if its locks were not to be had."""
    before = conn.execute("SELECT current_setting('lock_timeout')").fetchone()
    try:
        with conn.transaction():
            conn.execute("SELECT set_config('lock_timeout', %s, true)", (PATIENCE,))
            conn.execute(statement)
            conn.execute("SELECT set_config('lock_timeout', %s, true)", before)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
        return False
    return True


def drop_old(conn: psycopg.Connection[Any], months: int, today: date | None = None) -> list[str]:
    """Drops what is older than `months` whole months before this one. The partitions dropped; the transaction stays open, and
    should not stay so for long."""
    first = shifted(month_of(today or _today()), -months)
    old = [name for by_month in BY_MONTH.values() for name in _before(conn, by_month, first)]
    return [name for name in old if _done_soon(conn, sql.SQL("DROP TABLE {}").format(_identifier(name)))]


def _before(conn: psycopg.Connection[Any], by_month: ByMonth, first: date) -> list[str]:
    oldest = by_month.partition(first)
    return sorted(name for name in _present(conn, by_month.table) if name != by_month.rest and name < oldest)


def delete_old(conn: psycopg.Connection[Any], months: int, today: date | None = None) -> int:
    """The same for rows of the default partitions, whose number is returned."""
    first = sql.Literal(f"{shifted(month_of(today or _today()), -months)} 00:00:00+00")
    deleted = 0
    for by_month in BY_MONTH.values():
        rest, column = _identifier(by_month.rest), sql.Identifier(by_month.column)
        deleted += conn.execute(sql.SQL("DELETE FROM {} WHERE {} < {}").format(rest, column, first)).rowcount
    return deleted
