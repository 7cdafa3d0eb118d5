"""The receive queues as consumers read them; both functions work in the caller's transaction.

A queue's head and its rows commit together, so every position from 1 to a head that was read is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads

_PAGE = 100  # of at most 1 MiB each: what a reader holds at once

_READ = """
SELECT position, seq, headers::text, payload FROM queues.receive
 WHERE queue = %s AND position > %s AND position <= %s ORDER BY position LIMIT %s
"""


class Received(msgspec.Struct, frozen=True):
    remote: str
    position: int
    seq: int
    headers: dict[str, str]
    payload: bytes


def heads(conn: psycopg.Connection[Any], client: str) -> dict[str, int]:
    """The client's queues by name, each with its last position."""
    return dict(conn.execute("SELECT name, head FROM queues.queue WHERE client = %s", (client,)).fetchall())


def read(conn: psycopg.Connection[Any], queue_name: str, after: int, upto: int) -> Iterator[Received]:
    """Positions after + 1 to upto, in order, page by page."""
    found = conn.execute("SELECT id, remote FROM queues.queue WHERE name = %s", (queue_name,)).fetchone()
    if found is None:
        raise Invalid(f"queue {queue_name}", "there is none of this name", "take a name from `heads`")
    queue, remote = found
    while after < upto:
        with conn.cursor(binary=True) as cursor:
            rows = cursor.execute(_READ, (queue, after, upto, _PAGE)).fetchall()
        if not rows:
            return
        for position, seq, headers, payload in rows:
            yield Received(remote, position, seq, loads(headers), payload)
        after = rows[-1][0]
