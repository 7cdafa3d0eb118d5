"""Words for following one record: what is looked for, and each place where it was found, or where it should be.

No trail is written for records. Whoever follows one looks into the tables of each part, among the newest rows only: each part
says so where a record may be older than what it looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, LiteralString

import msgspec
import psycopg

MESSAGE_ID: LiteralString = "trunkline-id"
"""The header that names a message of a route: it is the same when the message comes twice."""
MOST_FOUND = 20
"""Places of one kind: an event may become many messages."""


class State(StrEnum):
    DONE = "done"
    WAITS = "waits"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Step(msgspec.Struct, frozen=True):
    """`place`: which part of a site. `at`: unix seconds, where that is known. `details`: plain values."""

    place: str
    state: State
    why: str
    at: float | None = None
    details: dict[str, Any] = {}


class Wanted(msgspec.Struct, frozen=True):
    """`ids`: of messages or bundles, as headers have them; `source`: of the event that messages were made of, if it is known
    only by that."""

    ids: tuple[str, ...]
    source: str = ""

    def args(self, **more: Any) -> dict[str, Any]:
        return {"ids": list(self.ids), "prefix": f"{self.source}:" if self.source else "", "found": MOST_FOUND, **more}


def matches(headers: LiteralString) -> LiteralString:
    """A condition with `Wanted.args`."""
    return f"""({headers} ->> '{MESSAGE_ID}' = ANY (%(ids)s) OR {headers} ->> 'ce_id' = ANY (%(ids)s)
            OR (%(prefix)s <> '' AND starts_with({headers} ->> '{MESSAGE_ID}', %(prefix)s)))"""


def is_there(conn: psycopg.Connection[Any], tables: Sequence[str]) -> bool:
    """Whether the database has a part."""
    row = conn.execute("SELECT bool_and(to_regclass(t) IS NOT NULL) FROM unnest(%s::text[]) AS t", (list(tables),)).fetchone()
    return bool(row and row[0])
