"""Which files were read, in Postgres: written by the driver, and followed by the process that plans."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from trunkline.core.errors import Terminal
from trunkline.pipeline.jobs.feed import Connection
from trunkline.pipeline.jobs.feeds.folders import Listing, Version

KEEP_DAYS = 7
"""How long a file is remembered that is not listed any more: a folder may be away for a while, and come back."""

_NEW = """
SELECT receiver, path, size, modified, number FROM pipeline.file_seen WHERE reader_group = %s AND number > %s ORDER BY number
"""
_ADD = """
INSERT INTO pipeline.file_seen AS s (reader_group, receiver, path, size, modified)
SELECT %s, u.receiver, u.path, u.size, u.modified
  FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[]) AS u (receiver, path, size, modified)
ON CONFLICT (reader_group, receiver, path) DO UPDATE
   SET size = excluded.size, modified = excluded.modified, number = excluded.number, missed_at = NULL
 WHERE (s.size, s.modified) <> (excluded.size, excluded.modified)
"""
_MENDED = """
DELETE FROM pipeline.file_failed f
 USING unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[]) AS u (receiver, path, size, modified)
 WHERE f.reader_group = %s AND (f.receiver, f.path) = (u.receiver, u.path) AND (f.size, f.modified) <> (u.size, u.modified)
"""
_FAIL = """
INSERT INTO pipeline.file_failed (reader_group, receiver, path, size, modified, reason) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (reader_group, receiver, path) DO UPDATE
   SET size = excluded.size, modified = excluded.modified, reason = excluded.reason, at = excluded.at
"""
_MISS = """
UPDATE pipeline.file_seen SET missed_at = clock_timestamp()
 WHERE reader_group = %s AND receiver = %s AND missed_at IS NULL AND path = ANY (%s)
"""
_FOUND = """
UPDATE pipeline.file_seen SET missed_at = NULL
 WHERE reader_group = %s AND receiver = %s AND missed_at IS NOT NULL AND path <> ALL (%s)
"""
_LEFT = """
UPDATE pipeline.file_seen SET missed_at = clock_timestamp()
 WHERE reader_group = %s AND missed_at IS NULL AND receiver <> ALL (%s)
"""
_FORGET = """
WITH gone AS (
    DELETE FROM pipeline.file_seen
     WHERE reader_group = %s AND missed_at < clock_timestamp() - make_interval(days => %s) RETURNING receiver, path),
failed AS (
    DELETE FROM pipeline.file_failed f USING gone g WHERE f.reader_group = %s AND (f.receiver, f.path) = (g.receiver, g.path))
SELECT receiver, path FROM gone
"""


class PlannedFile(msgspec.Struct, frozen=True):
    """A version of a file, for the receivers that read it."""

    receiver: str
    path: str
    size: int
    modified: int

    @property
    def version(self) -> Version:
        return Version(self.size, self.modified)


class Seen:
    """All that was read, in memory: a look costs what was read since the last one."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._number = 0
        self._of: dict[str, Listing] = {}

    def follow(self, conn: Connection) -> None:
        for receiver, path, size, modified, number in conn.execute(_NEW, (self._group, self._number)):
            self._of.setdefault(receiver, {})[path] = Version(size, modified)
            self._number = number

    def of(self, receiver: str) -> Mapping[str, Version]:
        return self._of.get(receiver, {})

    def forget(self, conn: Connection, listings: Mapping[str, Listing], present: Collection[str]) -> None:
        """`listings`: of the receivers whose folders could be listed. `present`: all that there are."""
        for receiver, listing in listings.items():
            gone = list(self.of(receiver).keys() - listing.keys())
            conn.execute(_MISS, (self._group, receiver, gone))
            conn.execute(_FOUND, (self._group, receiver, gone))
        conn.execute(_LEFT, (self._group, list(present)))
        for receiver, path in conn.execute(_FORGET, (self._group, KEEP_DAYS, self._group)):
            self._of.get(receiver, {}).pop(path, None)


def store_seen(conn: Connection, group: str, files: Sequence[PlannedFile]) -> None:
    """For the transaction that ends their batch."""
    columns = [list(column) for column in zip(*((f.receiver, f.path, f.size, f.modified) for f in files), strict=True)]
    if not columns:
        return
    if conn.execute(_ADD, (group, *columns)).rowcount != len(files):
        why = "some of its files were read before: the group does not stand where it begins"
        raise Terminal(f"batch of {group}", why, "start the query anew from where the group stands")
    conn.execute(_MENDED, (*columns, group))


def store_failed(conn: Connection, group: str, file: PlannedFile, reason: str) -> None:
    conn.execute(_FAIL, (group, file.receiver, file.path, file.size, file.modified, reason))
