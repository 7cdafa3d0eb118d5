"""The origin's log as the trunk reads it: rounds of `queues.stamp`, joined with the rows of the send queue.

A stamp row lists its transactions in log order with their number of entries; adding these up gives every
transaction's last seq, and its rows by id give the seqs between. A read is one statement, hence one snapshot.

Bounds of a read, each so that no call holds a connection or memory for long:
  L1  whole transactions only; about `limit` entries
  L2  no more than CHUNK_BYTES of payload, except for a first transaction that alone is larger
  L3  where nothing matches, SCAN_ENTRIES are looked at before the caller gets its `upto`
  L4  the cost does not depend on how long the log is: both bounds of the scan are on the key of `stamp`
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import args_row
from psycopg_pool import ConnectionPool

from trunkline.core.ids import ALL_SITES, Position
from trunkline.core.jsoncodec import loads
from trunkline.queues.stamper import read_log_id
from trunkline.trunk.log import Chunk, Entry

CHUNK_BYTES = 1 << 20
SCAN_ENTRIES = 10_000

_READ = """
WITH numbered AS (
    SELECT r.mark, t.xid, t.entries,
           r.first_seq - 1 + sum(t.entries) OVER (PARTITION BY r.first_seq ORDER BY t.place) AS last_seq
      FROM queues.stamp r, unnest(r.xids, r.counts) WITH ORDINALITY AS t(xid, entries, place)
     WHERE r.first_seq >= (SELECT first_seq FROM queues.stamp WHERE last_seq > %(after)s ORDER BY last_seq LIMIT 1)
       AND r.first_seq <= %(until)s
), scanned AS MATERIALIZED (
    SELECT * FROM numbered WHERE last_seq > %(after)s AND last_seq - entries < %(until)s
), matched AS (
    SELECT s.last_seq, s.mark, s.last_seq - s.entries + e.nth AS seq, e.client, e.destinations, e.headers,
           CASE WHEN dense_rank() OVER so_far = 1 OR sum(octet_length(e.payload)) OVER so_far <= %(bytes)s
                THEN e.payload END AS payload
      FROM scanned s CROSS JOIN LATERAL (
            SELECT row_number() OVER (ORDER BY id) AS nth, client, destinations, headers::text, payload
              FROM queues.send_log l WHERE l.xid = s.xid
           ) AS e
     WHERE e.destinations && %(wanted)s::text[] AND s.last_seq - s.entries + e.nth > %(after)s
    WINDOW so_far AS (ORDER BY s.last_seq)
)
SELECT scan.last_seq AS scanned_to, scan.mark AS scanned_mark, m.last_seq AS transaction_end, m.mark,
       m.seq, m.client, m.destinations, m.headers, m.payload
  FROM (SELECT last_seq, mark FROM scanned ORDER BY last_seq DESC LIMIT 1) AS scan LEFT JOIN matched m ON true
 ORDER BY m.last_seq, m.seq
"""
# Without a round the log begins behind its head: all of it was trimmed.
_LOWEST = "SELECT coalesce((SELECT min(first_seq) - 1 FROM queues.stamp), head) FROM queues.stamper"
_MARK_AT = "SELECT mark, first_seq FROM queues.stamp WHERE last_seq >= %s ORDER BY last_seq LIMIT 1"


class Row(NamedTuple):
    """One entry, with where its transaction and the whole scan end; without entries, one row with the scan alone."""

    scanned_to: int
    scanned_mark: int
    transaction_end: int | None
    mark: int | None
    seq: int | None
    client: str
    destinations: list[str]
    headers: str
    payload: bytes | None


_row = args_row(Row)


class PostgresLog:
    def __init__(self, pool: ConnectionPool[psycopg.Connection[Any]]) -> None:
        self._pool = pool
        with pool.connection() as conn:
            self._log_id = read_log_id(conn)

    @property
    def log_id(self) -> str:
        return self._log_id

    def head(self) -> Position:
        with self._pool.connection() as conn:
            row = conn.execute("SELECT head, mark FROM queues.stamper").fetchone()
        assert row is not None
        return Position(*row)

    def lowest(self) -> Position:
        with self._pool.connection() as conn:
            row = conn.execute(_LOWEST).fetchone()
        assert row is not None
        return Position(row[0], 0)

    def mark_at(self, seq: int) -> int | None:
        if seq == 0:
            return 0
        with self._pool.connection() as conn:
            row = conn.execute(_MARK_AT, (seq,)).fetchone()
        return row[0] if row and 0 < row[1] <= seq else None

    def clients(self) -> Mapping[str, int]:
        with self._pool.connection() as conn:
            return dict(conn.execute("SELECT name, first_seq FROM queues.client").fetchall())

    def read(self, after: int, limit: int, destinations: Set[str]) -> Chunk:
        wanted = [*destinations, ALL_SITES]
        at, window = after, limit
        while True:
            chunk = self._scan(at, window, limit, wanted)
            if chunk is None:
                return Chunk((), Position(at, self.mark_at(at) or 0))
            if chunk.entries or chunk.upto.seq - after >= SCAN_ENTRIES:
                return chunk
            at, window = chunk.upto.seq, min(4 * window, SCAN_ENTRIES)

    def _scan(self, after: int, window: int, limit: int, wanted: list[str]) -> Chunk | None:
        asked = {"after": after, "until": after + window, "bytes": CHUNK_BYTES, "wanted": wanted}
        with self._pool.connection() as conn, conn.cursor(row_factory=_row, binary=True) as cursor:
            rows = cursor.execute(_READ, asked).fetchall()
        return _chunk(rows, limit) if rows else None


def _chunk(rows: list[Row], limit: int) -> Chunk:
    """The rows as a chunk, cut at a transaction's end where bytes or `limit` are exceeded."""
    entries: list[Entry] = []
    end: Position | None = None
    for row in rows:
        if row.seq is None or row.transaction_end is None or row.mark is None:
            break
        another = end is None or row.transaction_end != end.seq
        if end is not None and another and (row.payload is None or len(entries) >= limit):
            return Chunk(tuple(entries), end)
        if another:
            end = Position(row.transaction_end, row.mark)
        entries.append(_entry(row.seq, row))
    return Chunk(tuple(entries), Position(rows[0].scanned_to, rows[0].scanned_mark))


def _entry(seq: int, row: Row) -> Entry:
    assert row.payload is not None
    headers = loads(row.headers) if row.headers != "{}" else {}
    return Entry(seq, row.client, tuple(row.destinations), headers, row.payload)
