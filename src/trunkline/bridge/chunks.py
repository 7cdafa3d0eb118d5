"""Bundles in chunks: their parts wait in a table until the bundle is whole, so that offsets can move on.

K1  Parts belong together by site, type, version, value, dependency and size: their ids may all differ.
K2  A part is told by where it ends. The same part again is ignored, whatever came between; so every bundle is made once.
K3  A bundle is whole when its parts, from the last one back, leave nothing out. It becomes a bundle, and its parts leave the
    table, in the transaction that brought the last one. It has the id of its first part and the place of the last to come.
K4  Parts whose rest never comes are no part of this: they expire (`trunkline.bridge.expiry`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from trunkline.bridge.batch import Arrived
from trunkline.core.bundle import Bundle, parse_bundle
from trunkline.core.jsoncodec import dumps

LARGEST_WHOLE = 256 * 2**20  # a row of Postgres holds 1 GB; a worker has several in memory while it writes one

Message = tuple[str, str, str, int]
"""(site, type, message, size)"""

_STAGE = """
CREATE TEMPORARY TABLE IF NOT EXISTS parts (
    site text, type text, message text, size bigint, end_byte bigint, body bytea, headers jsonb, queue text, position bigint
) ON COMMIT DELETE ROWS
"""
_COLUMNS = "site, type, message, size, end_byte, body, headers, queue, position"
_TYPES = ("text", "text", "text", "int8", "int8", "bytea", "jsonb", "text", "int8")
_COPY = f"COPY parts ({_COLUMNS}) FROM STDIN (FORMAT BINARY)"
_KEEP = f"""
INSERT INTO bridge.chunk ({_COLUMNS})
SELECT {_COLUMNS} FROM parts ORDER BY site, type, message, size, end_byte, position
ON CONFLICT DO NOTHING RETURNING site
"""
_EMPTY_STAGE = "DELETE FROM parts"
_EXTENTS = """
SELECT site, type, message, size, end_byte, length(body)
  FROM bridge.chunk
  JOIN unnest(%s::text[], %s::text[], %s::text[], %s::bigint[]) AS m (site, type, message, size)
 USING (site, type, message, size)
"""
_TAKE = """
DELETE FROM bridge.chunk USING unnest(%s::text[], %s::text[], %s::text[], %s::bigint[]) AS m (site, type, message, size)
 WHERE (chunk.site, chunk.type, chunk.message, chunk.size) = (m.site, m.type, m.message, m.size)
RETURNING chunk.site, chunk.type, chunk.message, chunk.size, end_byte, body, headers
"""


@dataclass(frozen=True)
class Joined:
    """Bundles that became whole; and by site: parts that were new, and parts that left."""

    wholes: list[Arrived] = field(default_factory=list)
    kept: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)


def flaw(bundle: Bundle) -> str | None:
    """Why this part cannot be one."""
    if bundle.chunk is None:
        return None
    if bundle.chunk.size > LARGEST_WHOLE:
        return f"chunk {bundle.chunk}: its bundle is larger than {LARGEST_WHOLE} bytes; send fewer rows in one"
    if not 0 < len(bundle.data) <= bundle.chunk.end:
        return f"chunk {bundle.chunk}: it has {len(bundle.data)} bytes, which do not end there; say where the part ends"
    return None


def chain(lengths: Mapping[int, int], size: int) -> list[int] | None:
    """The ends of the parts that are the whole, in order; none while one is missing. `lengths`: of each part, by its end."""
    ends: list[int] = []
    at = size
    while at > 0:
        if at not in lengths:
            return None
        ends.append(at)
        at -= lengths[at]
    return ends[::-1] if at == 0 else None


def message_of(bundle: Bundle) -> Message:
    assert bundle.chunk is not None, "only parts belong together"
    value = "" if bundle.value is None else bundle.value
    text = f"{bundle.version} {value} {bundle.dependency or ''}".rstrip()
    return bundle.source, bundle.type, text, bundle.chunk.size


def join_chunks(conn: psycopg.Connection[Any], parts: Sequence[Arrived]) -> Joined:
    """Takes parts in, in the caller's transaction."""
    if not parts:
        return Joined()
    last = {message_of(a.bundle): a for a in sorted(parts, key=lambda a: a.position)}
    kept = _keep(conn, parts)
    whole = _whole(conn, last)
    if not whole:
        return Joined(kept=kept)
    bodies: dict[Message, dict[int, tuple[bytes, dict[str, str]]]] = {}
    for *message, end, body, headers in conn.execute(_TAKE, _columns(whole)):
        bodies.setdefault(tuple(message), {})[end] = (body, headers)
    wholes = [_joined(last[message], bodies[message], ends) for message, ends in whole.items()]
    taken = Counter(message[0] for message, found in bodies.items() for _ in found)
    return Joined(wholes, kept, taken)


def _keep(conn: psycopg.Connection[Any], parts: Iterable[Arrived]) -> Counter[str]:
    conn.execute(_STAGE)
    with conn.cursor() as cursor:
        with cursor.copy(_COPY) as copy:
            copy.set_types(_TYPES)
            for part in parts:
                copy.write_row(_row(part))
        kept = Counter(site for (site,) in cursor.execute(_KEEP))
        cursor.execute(_EMPTY_STAGE)
    return kept


def _row(part: Arrived) -> tuple[object, ...]:
    bundle = part.bundle
    assert bundle.chunk is not None, "only parts are kept"
    headers = Jsonb(bundle.headers(), dumps)
    return *message_of(bundle), bundle.chunk.end, bundle.data, headers, part.queue, part.position


def _whole(conn: psycopg.Connection[Any], messages: Iterable[Message]) -> dict[Message, list[int]]:
    """The messages all of whose parts are there, and where those end."""
    lengths: dict[Message, dict[int, int]] = {}
    for site, type_, message, size, end, length in conn.execute(_EXTENTS, _columns(messages)):
        lengths.setdefault((site, type_, message, size), {})[end] = length
    chains = {message: chain(found, message[3]) for message, found in lengths.items()}
    return {message: ends for message, ends in chains.items() if ends is not None}


def _joined(last: Arrived, found: Mapping[int, tuple[bytes, dict[str, str]]], ends: Sequence[int]) -> Arrived:
    headers = {name: value for name, value in found[ends[0]][1].items() if name != "ce_chunk"}
    data = b"".join(found[end][0] for end in ends)
    return Arrived(parse_bundle(headers, data, last.bundle.source), last.queue, last.position, last.at)


def _columns(messages: Iterable[Message]) -> list[list[Any]]:
    return [list(column) for column in zip(*messages, strict=True)]
