"""Messages into receive queues as the trunk would leave them there: for load, and for trying out consumers.

What is fed has no session and no position of an origin's log; so feed only under names that no site of the fleet has. Many
queues are fed at once: a statement for each would cost more than the messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from trunkline.core.ids import check_name
from trunkline.core.jsoncodec import dumps
from trunkline.queues.kinds import Kind

Fed = tuple[Mapping[str, str], bytes]
"""headers, payload"""

_CREATE = """
INSERT INTO queues.queue (client, remote)
SELECT %s, remote FROM unnest(%s::text[]) AS n (remote)
 WHERE NOT EXISTS (SELECT FROM queues.queue q WHERE q.client = %s AND q.remote = n.remote) ORDER BY 2
ON CONFLICT DO NOTHING
"""
_GIVE = """
UPDATE queues.queue q SET head = q.head + n.entries, received_bytes = q.received_bytes + n.bytes
  FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) AS n (remote, entries, bytes)
 WHERE q.client = %s AND q.remote = n.remote
RETURNING q.remote, (SELECT slot FROM queues.receiver), q.id, q.head - n.entries, q.received_bytes - n.bytes
"""
_COPY = "COPY queues.receive (slot, queue, position, type, seq, index, total, headers, payload) FROM STDIN"


def feed(conn: psycopg.Connection[Any], client: str, messages: Mapping[str, Sequence[Fed]]) -> None:
    """By the site they come from, each in this order; in the caller's transaction."""
    remotes = sorted(check_name("site", remote) for remote, some in messages.items() if some)
    conn.execute(_CREATE, (client, remotes, client))
    counts, sizes = zip(*(_counted(messages[remote]) for remote in remotes), strict=True) if remotes else ((), ())
    places = conn.execute(_GIVE, (remotes, list(counts), list(sizes), client)).fetchall()
    with conn.cursor() as cursor, cursor.copy(_COPY) as copy:
        for remote, slot, queue, position, total in places:
            for headers, payload in messages[remote]:
                position, total = position + 1, total + len(payload)
                row = (
                    slot,
                    queue,
                    position,
                    int(Kind.LOG_ENTRY),
                    position,
                    0,
                    total,
                    Jsonb(dict(headers), dumps=dumps),
                    payload,
                )
                copy.write_row(row)


def _counted(some: Sequence[Fed]) -> tuple[int, int]:
    return len(some), sum(len(payload) for _, payload in some)
