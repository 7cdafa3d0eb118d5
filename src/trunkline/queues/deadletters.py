"""What a consumer refused for good: kept until it is tried again and accepted, or dropped. All in the caller's transaction.

A letter that is replayed comes alone and out of its place: everything behind it was processed long ago.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from trunkline.core.jsoncodec import dumps, loads
from trunkline.queues.reader import KINDS, Received

_REFUSE = """
INSERT INTO queues.dead_letter
       (client, consumer, remote, position, type, seq, index, request, message_id, headers, payload, tries, reason)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s, %s, %s)
"""
_LETTERS = """
SELECT id, consumer, tries, reason, refused_at, replay_at IS NOT NULL, remote, position, type, seq, index, request,
       headers::text, payload
  FROM queues.dead_letter WHERE client = %(client)s AND (%(consumer)s::text IS NULL OR consumer = %(consumer)s)
"""
_ALL = f"{_LETTERS} AND id > %(after)s ORDER BY id LIMIT %(most)s"
_WANTED = f"{_LETTERS} AND replay_at IS NOT NULL ORDER BY id LIMIT 1"
_REPLAY = """
UPDATE queues.dead_letter SET replay_at = coalesce(replay_at, now())
 WHERE client = %(client)s AND (%(consumer)s::text IS NULL OR consumer = %(consumer)s)
   AND (%(ids)s::bigint[] IS NULL OR id = ANY (%(ids)s))
RETURNING id
"""
_ACCEPTED = "DELETE FROM queues.dead_letter WHERE id = %s"
_REFUSED_AGAIN = """
UPDATE queues.dead_letter SET replay_at = NULL, tries = tries + 1, reason = %s, refused_at = now() WHERE id = %s
"""


@dataclass(frozen=True)
class DeadLetter:
    id: int
    consumer: str
    tries: int
    reason: str
    refused_at: datetime
    waits: bool
    """For its consumer to try it again."""
    message: Received


def refuse(conn: psycopg.Connection[Any], client: str, consumer: str, message: Received, tries: int, reason: str) -> None:
    m = message
    identity = (client, consumer, m.remote, m.position, int(m.kind), m.seq, m.index, m.request, m.message_id)
    conn.execute(_REFUSE, (*identity, dumps(m.headers).decode(), m.payload, tries, reason))


def letters(
    conn: psycopg.Connection[Any], client: str, consumer: str | None = None, after: int = 0, most: int = 100
) -> list[DeadLetter]:
    asked = {"client": client, "consumer": consumer, "after": after, "most": most}
    return [_letter(row) for row in conn.execute(_ALL, asked).fetchall()]


def replay(
    conn: psycopg.Connection[Any], client: str, consumer: str | None = None, ids: Sequence[int] | None = None
) -> list[int]:
    """These letters, or all, are offered to their consumer again when it next looks."""
    asked = {"client": client, "consumer": consumer, "ids": None if ids is None else list(ids)}
    return sorted(id for (id,) in conn.execute(_REPLAY, asked).fetchall())


def next_wanted(conn: psycopg.Connection[Any], client: str, consumer: str) -> DeadLetter | None:
    row = conn.execute(_WANTED, {"client": client, "consumer": consumer}).fetchone()
    return None if row is None else _letter(row)


def accepted(conn: psycopg.Connection[Any], letter: DeadLetter) -> None:
    conn.execute(_ACCEPTED, (letter.id,))


def refused_again(conn: psycopg.Connection[Any], letter: DeadLetter, reason: str) -> None:
    conn.execute(_REFUSED_AGAIN, (reason, letter.id))


def _letter(row: Sequence[Any]) -> DeadLetter:
    id, consumer, tries, reason, refused_at, waits, remote, position, kind, seq, index, request, headers, payload = row
    message = Received(remote, position, KINDS[kind], seq, index, request, loads(headers) if headers else {}, payload)
    return DeadLetter(id, consumer, tries, reason, refused_at, waits, message)
