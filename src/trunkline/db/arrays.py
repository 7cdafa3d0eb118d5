"""Lists as arrays of Postgres, quickly: psycopg renders them element by element, in Python.

A list of plain texts or of plain whole numbers is rendered by two calls; all others go the usual way.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.adapt import Dumper, PyFormat
from psycopg.pq import Format
from psycopg.types.array import ListDumper

_INT8_ARRAY = 1016


class _Texts(Dumper):
    """Of unknown type, as psycopg has it: so it fits where a varchar or a name is wanted."""

    format = Format.TEXT
    oid = 0

    def dump(self, obj: list[str]) -> bytes:
        text = "".join(obj)
        if "\x00" in text:
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        if '"' in text or "\\" in text:
            obj = [value.replace("\\", "\\\\").replace('"', '\\"') for value in obj]
        return ('{"' + '","'.join(obj) + '"}').encode()


class _Numbers(Dumper):
    format = Format.TEXT
    oid = _INT8_ARRAY

    def dump(self, obj: list[int]) -> bytes:
        return b"{%b}" % ",".join(map(str, obj)).encode()


_MOST = 2**63
_QUICK: dict[type, type[Dumper]] = {str: _Texts, int: _Numbers}


class QuickListDumper(ListDumper):
    def get_key(self, obj: list[Any], format: PyFormat) -> Any:
        """A key of its own for what is quick: psycopg has one for lists of texts too, which may also hold nulls."""
        kind = _kind(obj)
        return (list, _QUICK[kind]) if kind else super().get_key(obj, format)

    def upgrade(self, obj: list[Any], format: PyFormat) -> Any:
        kind = _kind(obj)
        return _QUICK[kind](list, self.connection) if kind else super().upgrade(obj, format)


def _kind(obj: list[Any]) -> type | None:
    kinds = set(map(type, obj))
    kind: type | None = kinds.pop() if len(kinds) == 1 else None
    if kind is int:
        return kind if max(obj) < _MOST and min(obj) >= -_MOST else None
    return kind if kind is str else None


def use_quick_arrays(conn: psycopg.Connection[Any]) -> None:
    conn.adapters.register_dumper(list, QuickListDumper)
