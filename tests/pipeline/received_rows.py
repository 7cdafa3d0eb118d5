"""Entries as the trunk leaves them in receive queues, of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from trunkline.queues.kinds import Kind

CLIENT = "pol"
_QUEUE = "INSERT INTO queues.queue (client, remote) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_HEAD = "SELECT id, head FROM queues.queue WHERE client = %s AND remote = %s FOR UPDATE"
_COPY = "COPY queues.receive (slot, queue, position, type, seq, index, total, request, headers, payload) FROM STDIN"


def queue_of(remote: str, client: str = CLIENT) -> str:
    return f"LRQ_Recv_{client}_{remote}"


def put(
    dsn: str,
    remote: str,
    payloads: Sequence[bytes],
    kind: Kind = Kind.LOG_ENTRY,
    request: UUID | None = None,
    client: str = CLIENT,
) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(_QUEUE, (client, remote))
        row = conn.execute(_HEAD, (client, remote)).fetchone()
        assert row is not None
        queue, head = row
        with conn.cursor() as cursor, cursor.copy(_COPY) as copy:
            for nth, payload in enumerate(payloads):
                at = head + 1 + nth
                place = (at, 0) if request is None else (7, nth)
                copy.write_row((0, queue, at, int(kind), *place, at, request, Jsonb({"n": str(nth)}), payload))
        conn.execute("UPDATE queues.queue SET head = %s WHERE id = %s", (head + len(payloads), queue))
