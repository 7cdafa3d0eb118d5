"""The receive queues as consumers read them; both functions work in the caller's transaction.

A queue's head and its rows commit together, so every position from the queue's tail to a head that was read is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads
from trunkline.queues.kinds import Kind, message_id

# What a reader holds at once: the first page is small, because an entry may have 1 MiB; the next as its entries allow.
_FIRST_PAGE, _LARGEST_PAGE = 100, 5_000
_PAGE_BYTES = 4 << 20

_READ = """
SELECT position, type, seq, index, request, headers::text, payload FROM queues.receive
 WHERE queue = %s AND position > %s AND position <= %s ORDER BY position LIMIT %s
"""


class Received(msgspec.Struct, frozen=True):
    remote: str
    position: int
    kind: Kind
    seq: int
    index: int
    request: UUID | None
    headers: dict[str, str]
    payload: bytes

    @property
    def source(self) -> str:
        return self.remote

    @property
    def message_id(self) -> str:
        """The same however often it is delivered."""
        return message_id(self.remote, self.seq, self.index, None if self.request is None else str(self.request))


def heads(conn: psycopg.Connection[Any], client: str) -> dict[str, int]:
    """The client's queues by name, each with its last position."""
    return dict(conn.execute("SELECT name, head FROM queues.queue WHERE client = %s", (client,)).fetchall())


def read(conn: psycopg.Connection[Any], queue_name: str, after: int, upto: int) -> Iterator[Received]:
    """Positions after + 1 to upto, in order, page by page."""
    found = conn.execute("SELECT id, remote FROM queues.queue WHERE name = %s", (queue_name,)).fetchone()
    if found is None:
        raise Invalid(f"queue {queue_name}", "there is none of this name", "take a name from `heads`")
    queue, remote = found
    yield from read_queue(conn, queue, remote, after, upto)


def read_queue(conn: psycopg.Connection[Any], queue: int, remote: str, after: int, upto: int) -> Iterator[Received]:
    page = _FIRST_PAGE
    with conn.cursor(binary=True) as cursor:
        while after < upto:
            rows = cursor.execute(_READ, (queue, after, upto, page)).fetchall()
            for position, kind, seq, index, request, headers, payload in rows:
                yield Received(remote, position, KINDS[kind], seq, index, request, loads(headers) if headers else {}, payload)
            if len(rows) < page:
                return
            after = rows[-1][0]
            page = _next_page(page, sum([len(row[-1]) for row in rows]))


def _next_page(page: int, size: int) -> int:
    """As many entries like the last ones as are of a fair size together."""
    return max(1, min(_LARGEST_PAGE, 4 * page, page * _PAGE_BYTES // max(size, 1)))


KINDS = {int(kind): kind for kind in Kind}
