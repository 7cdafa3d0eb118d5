"""The origin's log as the trunk reads it: rounds of `queues.stamp`, and the rows of the send queue they speak of.

A stamp row lists its transactions in log order with their number of entries; adding these up gives every transaction's
last seq, and its rows by id give the seqs between. So a read is two statements: which transactions, and their rows.

Bounds of a read, each so that no call holds a connection or memory for long:
  L1  whole transactions only; about `limit` entries
  L2  no more than `size` bytes of payload, except for a first transaction that alone is larger
  L3  where nothing matches, SCAN_ENTRIES are looked at before the caller gets its `upto`
  L4  the cost does not depend on how long the log is: every scan begins at a key of `stamp`
  L5  a slot that is emptied looks empty to everybody at once, also in an older snapshot. So the last statement asks how far the
      log was trimmed meanwhile: a read that began below that is given only when nothing trimmed was for its destinations
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, NamedTuple

import psycopg
from psycopg.types.numeric import Int8BinaryLoader
from psycopg_pool import ConnectionPool

from trunkline.core.errors import Terminal
from trunkline.core.ids import START, Position
from trunkline.core.jsoncodec import loads
from trunkline.queues.backlog import Backlog
from trunkline.queues.destinations import Destinations
from trunkline.queues.stamper import read_log_id
from trunkline.trunk.log import Chunk, Entry, messages_in

CHUNK_BYTES = 1 << 20
SCAN_ENTRIES = 10_000
ROUNDS = 200  # read at once
REFRESH_ROUNDS = 5_000
XID8 = 5069  # the type's number; on the wire it is as a bigint

_ROUNDS = """
SELECT first_seq, mark, slots, sets, xids::text[]::bigint[], counts, bytes, last_seq
  FROM queues.stamp WHERE last_seq > %s AND first_seq <= %s ORDER BY last_seq LIMIT %s
"""
_ROWS = """
SELECT xid, id, client, destination_set, destinations, headers::text, ends,
       CASE WHEN destination_set = ANY(%(sets)s::int[]) OR destinations && %(wanted)s::text[] THEN payload END
  FROM queues.send_log WHERE slot = ANY(%(slots)s::smallint[]) AND xid = ANY(%(xids)s::xid8[])
"""
# Until the pipeline's end. Nobody counts rows that only come and go, and a guess would read a whole slot for a few of them.
_BY_INDEX = "SELECT set_config('enable_seqscan', 'off', true)"
_LOWEST = "SELECT lowest, lowest_mark FROM queues.stamper"
_HEAD = "SELECT last_seq, mark FROM queues.stamp ORDER BY first_seq DESC LIMIT 1"
_MARK_AT = """
SELECT CASE WHEN lowest = %(seq)s THEN lowest_mark
            WHEN lowest < %(seq)s THEN (SELECT mark FROM (SELECT mark, first_seq FROM queues.stamp WHERE last_seq >= %(seq)s
                                                           ORDER BY last_seq LIMIT 1) AS r WHERE first_seq <= %(seq)s) END
  FROM queues.stamper
"""
_NEWER = """
SELECT last_seq, mark, slots, extract(epoch FROM stamped_at)::float8, sets, set_clients, set_counts, set_bytes, set_lasts
  FROM queues.stamp WHERE first_seq > %s ORDER BY first_seq LIMIT %s
"""
# Retention marks whom it no longer waits for; what it acknowledged is of this log, whatever it says later of what is gone.
_MARKED = """
SELECT n.client, coalesce(a.seq, 0) FROM queues.needs_snapshot n
  LEFT JOIN queues.acknowledged a ON (a.destination, a.client) = (n.destination, n.client) WHERE n.destination = %s
"""
_TRIMMED = "SELECT destination_set, client, last_seq FROM queues.trimmed"

Connection = psycopg.Connection[Any]


class Round(NamedTuple):
    first: int
    mark: int
    slots: list[int]
    sets: list[int]
    xids: list[int]
    counts: list[int]
    bytes: list[int]
    last: int


class Taken(NamedTuple):
    """A transaction of the log, with the seq before it."""

    xid: int
    after: int
    entries: int
    mark: int


class Most(NamedTuple):
    """Of one read, but for whole transactions."""

    entries: int
    bytes: int


class Row(NamedTuple):
    xid: int
    id: int
    client: str
    set: int | None
    destinations: list[str] | None
    headers: str | None
    ends: list[int] | None
    """Of a pack: where each message ends in the payload."""
    payload: bytes | None
    """None: it is for others."""


class PostgresLog:
    """Any thread may call."""

    def __init__(self, pool: ConnectionPool[Connection]) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._destinations = Destinations()
        self._backlog = Backlog(self._destinations)
        self._trimmed_to = 0
        with pool.connection() as conn:
            self._log_id = read_log_id(conn)

    @property
    def log_id(self) -> str:
        return self._log_id

    def head(self) -> Position:
        with self._reading() as conn:
            row = conn.execute(_HEAD).fetchone()
        return Position(*row) if row else START

    def lowest(self) -> Position:
        with self._reading() as conn:
            return _lowest(conn)

    def mark_at(self, seq: int) -> int | None:
        if seq == 0:
            return 0
        with self._reading() as conn:
            row = conn.execute(_MARK_AT, {"seq": seq}).fetchone()
        assert row is not None
        mark: int | None = row[0]
        return mark

    def clients(self) -> Mapping[str, int]:
        with self._reading() as conn:
            return dict(conn.execute("SELECT name, first_seq FROM queues.client").fetchall())

    def last_for(self, site: str) -> Mapping[str, int]:
        """Per client, the last seq of any entry for this site, by its name or as one of all (H17)."""
        with self.backlog() as backlog:
            return backlog.last_for(site)

    def trimmed_for(self, site: str) -> Mapping[str, int]:
        with self.backlog() as backlog:
            return backlog.trimmed_for(site)

    def missed_by(self, site: str) -> Set[str]:
        with self._reading() as conn:
            marked: dict[str, int] = dict(conn.execute(_MARKED, (site,)).fetchall())
        trimmed = self.trimmed_for(site) if marked else {}
        return frozenset(client for client, acknowledged in marked.items() if acknowledged < trimmed.get(client, 0))

    @contextmanager
    def backlog(self) -> Iterator[Backlog]:
        """As of now; nobody else has it meanwhile."""
        with self._lock:
            with self._reading() as conn:
                backlog = self._refreshed(conn)
            yield backlog  # without a connection: whoever has it may need one

    def read(self, after: int, limit: int, destinations: Set[str], size: int = CHUNK_BYTES) -> Chunk:
        with self._reading() as conn:
            chunk, lowest = self._scan(conn, after, Most(limit, size), destinations)
        if lowest.seq <= after or self._none_trimmed(after, destinations):
            return chunk
        return Chunk((), Position(after, self.mark_at(after) or 0))

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Each statement for itself: none of them waits for a transaction's begin and end."""
        with self._pool.connection() as conn:
            conn.autocommit = True
            try:
                yield conn
            finally:
                if not conn.closed:
                    conn.autocommit = False

    def _none_trimmed(self, after: int, destinations: Set[str]) -> bool:
        return all(last <= after for site in destinations for last in self.trimmed_for(site).values())

    def _scan(self, conn: Connection, after: int, most: Most, destinations: Set[str]) -> tuple[Chunk, Position]:
        """Until something matches, the log ends, or SCAN_ENTRIES were looked at."""
        at, mark, window = after, None, most.entries
        while at - after < SCAN_ENTRIES:
            found = [Round(*row) for row in conn.execute(_ROUNDS, (at, at + window, ROUNDS), binary=True)]
            if not found:
                break
            self._learn(conn, found)
            wanted = self._destinations.meeting(destinations)
            taken, slots, at, mark = _choose(found, at, Most(window, most.bytes), wanted, after + SCAN_ENTRIES)
            rows, lowest = _rows(conn, taken, slots, wanted, destinations)
            entries, cut = self._entries(rows, taken, after, most.entries, lowest.seq)
            if entries:
                return Chunk(tuple(entries), cut or Position(at, mark)), lowest
            window = min(4 * window, SCAN_ENTRIES)
        end = Position(at, mark if mark is not None else self.mark_at(at) or 0)
        return Chunk((), end), _lowest(conn)

    def _learn(self, conn: Connection, rounds: list[Round]) -> None:
        if not all(self._destinations.knows(r.sets) for r in rounds):
            self._destinations.refresh(conn)

    def _entries(
        self, rows: list[Row], taken: list[Taken], after: int, limit: int, lowest: int
    ) -> tuple[list[Entry], Position | None]:
        """In the log's order, nothing of a transaction that was trimmed meanwhile; and where `limit` cut them, if it did."""
        by_xid: dict[int, list[Row]] = {t.xid: [] for t in taken}
        for row in rows:
            by_xid[row[0]].append(row)
        entries: list[Entry] = []
        found = 0
        for nth, t in enumerate(taken):
            if found >= limit:
                return entries, Position(t.after, taken[nth - 1].mark)
            mine = by_xid[t.xid]
            there = sum([len(row[6]) if row[6] else 1 for row in mine])
            if there != t.entries:
                _check_trimmed(t, there, lowest)
                continue
            mine.sort(key=itemgetter(1))
            more = self._of_transaction(mine, t.after, after)
            entries += more
            found += messages_in(more)
        return entries, None

    def _of_transaction(self, rows: list[Row], before: int, after: int) -> list[Entry]:
        sites, entries, seq = self._destinations.sites, list[Entry](), before
        for _, _, client, number, inline, headers, ends, payload in rows:
            seq += len(ends) if ends else 1
            if payload is None or seq <= after:
                continue
            to = tuple(inline or ()) if number is None else sites(number)
            entries.append(Entry(seq, client, to, loads(headers) if headers else {}, payload, tuple(ends or ())))
        return entries

    def _refreshed(self, conn: Connection) -> Backlog:
        self._destinations.refresh(conn)
        lowest = _lowest(conn).seq
        if lowest != self._trimmed_to:
            for number, client, last in conn.execute(_TRIMMED):
                self._backlog.trimmed(number, client, last)
            self._trimmed_to = lowest
        while rows := conn.execute(_NEWER, (self._backlog.head, REFRESH_ROUNDS), binary=True).fetchall():
            self._destinations.refresh(conn)
            for last, mark, slots, at, *brought in rows:
                for number, client, entries, size, its_last in zip(*brought, strict=True):
                    self._backlog.add(its_last, number, client, entries, size)
                self._backlog.stamped(Position(last, mark), slots, at)
        return self._backlog


def _lowest(conn: Connection) -> Position:
    row = conn.execute(_LOWEST).fetchone()
    assert row is not None
    return Position(*row)


def _choose(
    rounds: list[Round], after: int, most: Most, wanted: frozenset[int], until: int
) -> tuple[list[Taken], set[int], int, int]:
    """Transactions of rounds that may hold something, up to the bounds of a read; their slots, and where this ends."""
    taken: list[Taken] = []
    slots: set[int] = set()
    at, mark, entries, size = after, 0, 0, 0
    for r in rounds:
        if wanted.isdisjoint(r.sets):
            at, mark = r.last, r.mark
            if at >= until:
                break
            continue
        before = r.first - 1
        for xid, n, its_size in zip(r.xids, r.counts, r.bytes, strict=True):
            if before + n > after:
                if taken and (entries >= most.entries or size + its_size > most.bytes):
                    return taken, slots, at, mark
                taken.append(Taken(xid, before, n, r.mark))
                slots.update(r.slots)
                at, mark, entries, size = before + n, r.mark, entries + n, size + its_size
            before += n
    return taken, slots, at, mark


def _rows(
    conn: Connection, taken: list[Taken], slots: set[int], wanted: frozenset[int], destinations: Set[str]
) -> tuple[list[Row], Position]:
    """Their rows and, by a later statement, how far the log was trimmed (L5)."""
    if not taken:
        return [], START
    asked = {"sets": list(wanted), "wanted": [*destinations, "*"], "slots": list(slots), "xids": [str(t.xid) for t in taken]}
    cursor = conn.cursor(binary=True)
    cursor.adapters.register_loader(XID8, Int8BinaryLoader)
    with conn.pipeline():
        conn.execute(_BY_INDEX)
        rows = cursor.execute(_ROWS, asked)
        lowest = conn.execute(_LOWEST)
    trimmed = lowest.fetchone()
    assert trimmed is not None
    return rows.fetchall(), Position(*trimmed)


def _check_trimmed(taken: Taken, rows: int, lowest: int) -> None:
    if taken.after + taken.entries > lowest:
        raise Terminal(
            f"entries {taken.after + 1} to {taken.after + taken.entries} of the log",
            f"{taken.entries} were stamped and {rows} are there",
            "see what else is amiss: trunkline queues verify",
        )
