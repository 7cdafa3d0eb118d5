"""Resyncs that are wanted: rows that stay until what they want is applied, and are asked for again until then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psycopg

from trunkline.bridge.types import Types
from trunkline.core.bundle import Mode

# A wish that holds something counts from the newest loss: what came before that does not make up for it. The time is that of
# the statement, for what a transaction drops may have come after it began.
_WISH = """
INSERT INTO bridge.resync AS r (site, type, holds, reason, wanted_at)
SELECT DISTINCT ON (site, type) *, clock_timestamp()
  FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]) AS w (site, type, holds, reason)
 ORDER BY site, type, holds NULLS LAST
ON CONFLICT (site, type) DO UPDATE
   SET holds = coalesce(r.holds, excluded.holds), reason = excluded.reason, wanted_at = excluded.wanted_at
 WHERE excluded.holds IS NOT NULL
"""


@dataclass(frozen=True)
class Wish:
    """All a site has of `type`; `holds`: what waits for it."""

    site: str
    type: str
    holds: str | None
    reason: str


def to_ask(types: Types, name: str) -> str | None:
    """The type to ask for so that `name` comes right: a delta's base; none for what is only appended."""
    declared = types[name]
    return {Mode.DELTA: declared.depends_on, Mode.APPEND: None}.get(declared.mode, name)


def wish_for(types: Types, site: str, lost: str, reason: str) -> Wish | None:
    """What to wish for when a bundle of type `lost` will never come; what follows it is held, if it was one of a row (H37)."""
    asked = to_ask(types, lost)
    return Wish(site, asked, lost if types[lost].mode.is_ordered else None, reason) if asked else None


def wish(conn: psycopg.Connection[Any], wishes: Iterable[Wish]) -> None:
    """In the caller's transaction, after what is lost has gone. One that is open and holds nothing stays as it is."""
    rows = [(one.site, one.type, one.holds, one.reason) for one in wishes]
    if rows:
        conn.execute(_WISH, [list(column) for column in zip(*rows, strict=True)])
