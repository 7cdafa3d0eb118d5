"""Rows of the receive queues: positions are given, and the rows are written as one binary COPY.

The queue's row is locked from the moment its positions are given until the commit, so they are dense and in order of arrival.
COPY's rows are put together here: a general row writer takes as long as the server does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from trunkline.core.jsoncodec import dumps
from trunkline.queues.kinds import Kind
from trunkline.trunk.log import Entry


class Level(NamedTuple):
    """What waits in a queue: received, and not yet passed by every consumer."""

    entries: int
    bytes: int


EMPTY = Level(0, 0)


@dataclass(frozen=True)
class Record:
    """One of a session's own records: anything but a log entry."""

    kind: Kind
    seq: int
    index: int
    request: UUID | None
    headers: Mapping[str, str]
    payload: bytes = b""


class _Place(NamedTuple):
    """Where new rows go, and where their queue stood before: its id, last position and bytes received."""

    slot: int
    queue: int
    position: int
    total: int


_CREATE = """
INSERT INTO queues.queue (client, remote)
SELECT client, %(remote)s FROM unnest(%(clients)s::text[]) AS c(client)
 WHERE NOT EXISTS (SELECT FROM queues.queue q WHERE q.client = c.client AND q.remote = %(remote)s)
ON CONFLICT DO NOTHING
"""
_GIVE = """
UPDATE queues.queue q SET head = q.head + n.entries, received_bytes = q.received_bytes + n.bytes
  FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) AS n(client, entries, bytes)
 WHERE q.client = n.client AND q.remote = %s
RETURNING q.client, (SELECT slot FROM queues.receiver), q.id, q.head - n.entries, q.received_bytes - n.bytes,
          q.head - q.tail, q.received_bytes - q.passed_bytes
"""
_COPY = """
COPY queues.receive (slot, queue, position, type, seq, index, total, request, headers, payload) FROM STDIN (FORMAT BINARY)
"""
# Each field is its length and its value; a length of -1 is NULL. A plain row has neither request nor headers.
_PLAIN = Struct(">h ih ii iq ih iq ii iq i i i")
_LENGTH = Struct(">i")
_TO_REQUEST = _PLAIN.size - 3 * _LENGTH.size
_NULL = _LENGTH.pack(-1)
_HEAD, _END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_JSONB_VERSION = b"\x01"
_FIELDS = 10
_BLOCK = 250  # entries that are sent while the next ones are put together


def create_queues(conn: psycopg.Connection[Any], remote: str, clients: Sequence[str]) -> None:
    conn.execute(_CREATE, {"clients": clients, "remote": remote})


def store_entries(conn: psycopg.Connection[Any], remote: str, entries: Sequence[Entry]) -> dict[str, Level]:
    """Log entries of any clients, in order; how full the queues they went to are now."""
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for e in entries:
        counts[e.client] = counts.get(e.client, 0) + e.messages
        sizes[e.client] = sizes.get(e.client, 0) + len(e.payload)
    places, levels = _give(conn, remote, counts, sizes)
    _copy(conn, _entry_blocks(places, entries))
    return levels


def store_records(conn: psycopg.Connection[Any], remote: str, client: str, records: Sequence[Record]) -> Level:
    places, levels = _give(conn, remote, {client: len(records)}, {client: sum(len(r.payload) for r in records)})
    _copy(conn, [_record_fields(places[client], records)])
    return levels[client]


def _give(
    conn: psycopg.Connection[Any], remote: str, counts: Mapping[str, int], sizes: Mapping[str, int]
) -> tuple[dict[str, _Place], dict[str, Level]]:
    given = _advance(conn, remote, sorted(counts), counts, sizes)
    missing = sorted(counts.keys() - {row[0] for row in given})
    if missing:
        create_queues(conn, remote, missing)
        given += _advance(conn, remote, missing, counts, sizes)
    places = {client: _Place(*place) for client, *place, _, _ in given}
    return places, {client: Level(entries, size) for client, *_, entries, size in given}


def _advance(
    conn: psycopg.Connection[Any], remote: str, clients: list[str], counts: Mapping[str, int], sizes: Mapping[str, int]
) -> list[tuple[Any, ...]]:
    return conn.execute(_GIVE, (clients, [counts[c] for c in clients], [sizes[c] for c in clients], remote)).fetchall()


def _copy(conn: psycopg.Connection[Any], blocks: Iterable[list[bytes]]) -> None:
    with conn.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.write(_HEAD)
        for block in blocks:
            copy.write(b"".join(block))
        copy.write(_END)


def _entry_blocks(places: Mapping[str, _Place], entries: Sequence[Entry]) -> Iterator[list[bytes]]:
    at = {client: list(place) for client, place in places.items()}
    for first in range(0, len(entries), _BLOCK):
        yield _entry_fields(at, entries[first : first + _BLOCK])


def _entry_fields(at: Mapping[str, list[int]], entries: Sequence[Entry]) -> list[bytes]:
    pack, kind = _PLAIN.pack, int(Kind.LOG_ENTRY)
    fields: list[bytes] = []
    for e in entries:
        payload, ends, place = e.payload, e.ends or (len(e.payload),), at[e.client]
        slot, queue, position, before = place
        begin, seq = 0, e.seq - len(ends)
        for nth, end in enumerate(ends, 1):
            size = end - begin
            row = pack(
                _FIELDS, 2, slot, 4, queue, 8, position + nth, 2, kind, 8, seq + nth, 4, 0, 8, before + end, -1, -1, size
            )
            fields.append(_with_headers(row, e.headers) if e.headers else row)
            fields.append(payload[begin:end])
            begin = end
        place[2:] = position + len(ends), before + len(payload)
    return fields


def _record_fields(place: _Place, records: Sequence[Record]) -> list[bytes]:
    slot, queue, before, total = place
    fields: list[bytes] = []
    for position, r in enumerate(records, before + 1):
        total += len(r.payload)
        row = _PLAIN.pack(
            _FIELDS, 2, slot, 4, queue, 8, position, 2, r.kind, 8, r.seq, 4, r.index, 8, total, -1, -1, len(r.payload)
        )
        fields.append(_with_headers(row, r.headers, r.request))
        fields.append(r.payload)
    return fields


def _with_headers(row: bytes, headers: Mapping[str, str], request: UUID | None = None) -> bytes:
    """The two fields before the payload's length, which a plain row has as NULL."""
    named = _NULL if request is None else _LENGTH.pack(16) + request.bytes
    return b"".join((row[:_TO_REQUEST], named, _headers(headers) if headers else _NULL, row[-_LENGTH.size :]))


def _headers(headers: Mapping[str, str]) -> bytes:
    text = dumps(dict(headers))
    return _LENGTH.pack(len(text) + 1) + _JSONB_VERSION + text
