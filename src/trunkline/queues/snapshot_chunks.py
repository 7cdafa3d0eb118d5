"""Records of a snapshot become chunks, each in a transaction of its own.

C1  A chunk's number comes from the request's row, which its transaction locks: numbers are dense whatever happens.
C2  The same statement proves that the request is still this provider's to fill. When it is not, nothing is written and
    `SnapshotCancelled` rises.
C3  A provider that says anything is seen to work: what it has is written now and then, also where it fills no chunk.
C4  After any failure no chunk is written and no end marker either, even where the caller goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import psycopg

from trunkline.core.errors import Invalid, Terminal
from trunkline.queues.messages import RECORDS, Records

# As of a message of the log; a chunk of one such record stays far below the largest frame.
CHUNK_BYTES = 1 << 20
PAYLOAD_BYTES = 1 << 20
HEADERS_BYTES = 16 << 10
_RECORD_BYTES = 16
# Far below what the leader waits for a provider's next word (`Patience.providing`).
WORD_SECONDS = 30.0

_PUT = """
WITH numbered AS (
    UPDATE queues.request
       SET chunks = chunks + 1, records = records + %(records)s, bytes = bytes + %(bytes)s,
           progress = coalesce(%(progress)s, progress), updated_at = now()
     WHERE id = %(request)s AND state = 'providing' AND provider = %(owner)s
    RETURNING id, chunks - 1 AS chunk
)
INSERT INTO queues.send_snapshot (request, chunk, records, body) SELECT id, chunk, %(records)s, %(body)s FROM numbered
"""
_WORKS = """
UPDATE queues.request SET progress = coalesce(%(progress)s, progress), updated_at = now()
 WHERE id = %(request)s AND state = 'providing' AND provider = %(owner)s
"""
_COMPLETE = """
UPDATE queues.request SET state = 'complete', progress = 100, error = NULL, reapplied_to = %s, updated_at = now()
 WHERE id = %s AND state = 'providing' AND provider = %s
"""


class SnapshotCancelled(Terminal):
    """The request is superseded, cancelled or over: stop providing. What was sent does not count."""


class ChunkWriter:
    """`conn` is in autocommit."""

    def __init__(
        self, conn: psycopg.Connection[Any], request: UUID, owner: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._conn, self._request, self._owner, self._clock = conn, request, owner, clock
        self._said_at = clock()
        self._records: Records = []
        self._bytes = 0
        self._progress: int | None = None
        self._failed = False

    def add(self, payload: bytes, headers: Mapping[str, str], progress: int | None = None) -> None:
        size = _checked_size(payload, headers)
        self._note(progress)
        if self._records and self._bytes + size > CHUNK_BYTES:
            self._flush()
        self._records.append((dict(headers), payload))
        self._bytes += size
        self._speak()

    def working(self, progress: int | None) -> None:
        """A sign of life between two records."""
        self._note(progress)
        self._speak()

    def complete(self, reapplied_to: int = 0) -> None:
        """The end marker."""
        if self._records:
            self._flush()
        self._write(_COMPLETE, (reapplied_to, self._request, self._owner))

    def fail(self) -> None:
        """From now on nothing is written any more."""
        self._failed = True

    def _note(self, progress: int | None) -> None:
        if progress is not None and not 0 <= progress <= 100:
            raise Invalid("snapshot record", f"its progress is {progress}", "say how many of 100 are done")
        self._progress = progress if progress is not None else self._progress

    def _speak(self) -> None:
        if self._clock() - self._said_at < WORD_SECONDS:
            return
        if self._records:
            self._flush()
        else:
            self._write(_WORKS, {"request": self._request, "owner": self._owner, "progress": self._progress})

    def _flush(self) -> None:
        body = RECORDS.encode(self._records)
        chunk = {"request": self._request, "owner": self._owner, "records": len(self._records), "bytes": self._bytes}
        self._write(_PUT, {**chunk, "progress": self._progress, "body": body})
        self._records, self._bytes = [], 0

    def _write(self, statement: str, args: Any) -> None:
        done, self._said_at = 0, self._clock()
        try:
            if not self._failed:
                done = self._conn.execute(statement.encode(), args).rowcount
        finally:
            self._failed = done != 1
        if self._failed:
            raise cancelled(self._request)


def cancelled(request: UUID) -> SnapshotCancelled:
    return SnapshotCancelled(f"snapshot {request}", "it is no longer wanted", "stop; a newer request follows if one is needed")


def _checked_size(payload: bytes, headers: Mapping[str, str]) -> int:
    of_headers = sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())
    for what, size, most in (("payload", len(payload), PAYLOAD_BYTES), ("headers", of_headers, HEADERS_BYTES)):
        if size > most:
            raise Invalid("snapshot record", f"its {what} of {size} bytes are over {most}", "split it, or send a reference")
    return len(payload) + of_headers + _RECORD_BYTES
