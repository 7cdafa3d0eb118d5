"""Counters per site, kept in the transactions that they count."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
import psycopg


class Tally(msgspec.Struct, frozen=True):
    """Each is a column of bridge.counter."""

    received: int = 0
    conflated: int = 0
    rejected: int = 0
    stale: int = 0
    applied: int = 0
    quarantined: int = 0
    discarded: int = 0
    joined: int = 0
    expired: int = 0
    rows_received: int = 0
    rows_written: int = 0


@cache
def _add(names: tuple[str, ...]) -> str:
    return f"""
INSERT INTO bridge.counter AS c (site, {", ".join(names)})
SELECT * FROM unnest(%s::text[]{", %s::bigint[]" * len(names)}) AS n (site)
ORDER BY n.site
ON CONFLICT (site) DO UPDATE SET {", ".join(f"{name} = c.{name} + excluded.{name}" for name in names)}
"""


def count(conn: psycopg.Connection[Any], tallies: Mapping[str, Tally]) -> None:
    """Adds to the sites' counters. Always after the inbox rows of the transaction: one order of locks for everybody."""
    columns = zip(*map(msgspec.structs.astuple, tallies.values()), strict=True)
    counted = {name: list(column) for name, column in zip(Tally.__struct_fields__, columns, strict=False) if any(column)}
    if counted:
        conn.execute(_add(tuple(counted)), (list(tallies), *counted.values()))
