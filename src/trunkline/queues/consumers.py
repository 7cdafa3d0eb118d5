"""Named consumers of a client's receive queues, each with positions of its own; all in the caller's transaction.

Invariants:
  C1  an entry is kept until every attached consumer of its client has passed it; without any consumer it is kept
  C2  a position moves from where its consumer read, and by one reader: whoever finds it elsewhere has not done that work
  C3  a consumer begins where nothing is missing: at the tail of the queues that are there, at 0 of those that come later. Where
      the tail is in the midst of a snapshot it begins behind that, and the snapshot comes anew: of half a snapshot, the end
      would say that what was in the other half is gone
  C4  one that is idle too long is detached, and is told so when it returns (H23)

Attaching, detaching and moving the tails exclude each other, so that no tail passes a consumer that is just arriving.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from trunkline.core.errors import Invalid, Retryable, Terminal
from trunkline.core.ids import check_name
from trunkline.queues.kinds import Kind
from trunkline.queues.negotiation import RESYNC

_LOCK = 0x74726B63  # a word of our own, for the advisory lock of "exclude each other"


class Detached(Terminal):
    """It was idle too long; what came since may be gone."""


class Overtaken(Retryable):
    """Another reader moved the position meanwhile; nothing of this transaction may count."""


@dataclass(frozen=True)
class Place:
    """Where a consumer stands in one queue."""

    queue: int
    name: str
    remote: str
    head: int
    position: int
    tries: int


_CLAIM = "SELECT detached_at FROM queues.consumer WHERE client = %(client)s AND name = %(name)s"
_ATTACH = "INSERT INTO queues.consumer (client, name) VALUES (%(client)s, %(name)s)"
_SEEN = "UPDATE queues.consumer SET seen_at = now() WHERE client = %(client)s AND name = %(name)s AND detached_at IS NULL"
_REATTACH = """
UPDATE queues.consumer SET attached_at = now(), seen_at = now(), detached_at = NULL
 WHERE client = %(client)s AND name = %(name)s AND detached_at IS NOT NULL
"""
# Sessions are locked before queues, as whoever writes into them does.
_SESSIONS = "SELECT origin, state FROM queues.session WHERE client = %(client)s ORDER BY origin FOR NO KEY UPDATE"
# The first thing after the tail that begins or ends a snapshot says whether the tail is in the midst of one.
_QUEUES = """
SELECT q.id, q.remote, q.tail, q.head, m.position, m.type
  FROM queues.queue q
  LEFT JOIN LATERAL (SELECT r.position, r.type FROM queues.receive r
                      WHERE r.queue = q.id AND r.position > q.tail AND r.type = ANY(%(ends)s)
                      ORDER BY r.position LIMIT 1) m ON true
 WHERE q.client = %(client)s
"""
_BEGIN_AT = """
INSERT INTO queues.consumed AS c (client, consumer, queue, position)
SELECT %(client)s, %(name)s, * FROM unnest(%(queues)s::int[], %(positions)s::bigint[])
ON CONFLICT (client, consumer, queue) DO UPDATE SET position = excluded.position, tries = 0, updated_at = now()
"""
# Of one in mid snapshot the log does not follow whatever happens ('resume'), and its snapshot begins with START again.
_RESYNC = """
UPDATE queues.session
   SET state = 'new', request = CASE state WHEN 'snapshot' THEN NULL ELSE request END, updated_at = now(),
       reason = CASE WHEN state = 'snapshot' THEN 'resume' WHEN state = 'log' OR reason = 'gap' THEN %(reason)s ELSE reason END
 WHERE client = %(client)s AND origin = ANY(%(origins)s)
"""
_FORGET = (
    "DELETE FROM queues.consumed WHERE client = %(client)s AND consumer = %(name)s",
    "DELETE FROM queues.consumer WHERE client = %(client)s AND name = %(name)s",
)
_DETACH_IDLE = """
UPDATE queues.consumer SET detached_at = now()
 WHERE detached_at IS NULL AND seen_at < now() - make_interval(secs => %s) RETURNING client, name
"""
_PLACES = """
SELECT q.id, q.name, q.remote, q.head, coalesce(c.position, 0), coalesce(c.tries, 0)
  FROM queues.queue q LEFT JOIN queues.consumed c ON c.client = q.client AND c.consumer = %(name)s AND c.queue = q.id
 WHERE q.client = %(client)s ORDER BY q.id
"""
_ADVANCE = """
INSERT INTO queues.consumed AS c (client, consumer, queue, position)
SELECT client, name, %(queue)s, %(position)s FROM queues.consumer k
 WHERE k.client = %(client)s AND k.name = %(name)s AND k.detached_at IS NULL
   AND (%(after)s::bigint IS NULL OR %(after)s::bigint = coalesce(
       (SELECT d.position FROM queues.consumed d WHERE (d.client, d.consumer, d.queue) = (k.client, k.name, %(queue)s)), 0))
ON CONFLICT (client, consumer, queue) DO UPDATE SET position = excluded.position, tries = 0, updated_at = now()
 WHERE c.position = coalesce(%(after)s::bigint, least(c.position, excluded.position))
"""
_REFUSED = """
INSERT INTO queues.consumed AS c (client, consumer, queue, position, tries)
VALUES (%(client)s, %(name)s, %(queue)s, %(after)s, 1)
ON CONFLICT (client, consumer, queue) DO UPDATE SET tries = c.tries + 1, updated_at = now() WHERE c.position = %(after)s
"""
# A registered consumer without a row in a queue has read nothing of it.
_TAILS = """
SELECT q.id, q.tail, min(coalesce(d.position, 0)) FROM queues.queue q
  JOIN queues.consumer c ON c.client = q.client AND c.detached_at IS NULL
  LEFT JOIN queues.consumed d ON d.client = c.client AND d.consumer = c.name AND d.queue = q.id
 GROUP BY q.id HAVING min(coalesce(d.position, 0)) > q.tail
"""
# Not a join: the planner, which knows nothing of rows that come and go, would read the whole queue for it.
_MOVE_TAIL = """
UPDATE queues.queue q SET tail = n.tail, passed_bytes = n.total
  FROM (SELECT p.queue, p.tail,
               (SELECT r.total FROM queues.receive r WHERE r.queue = p.queue AND r.position = p.tail LIMIT 1) AS total
          FROM unnest(%s::int[], %s::bigint[]) AS p(queue, tail)) AS n
 WHERE q.id = n.queue AND q.tail < n.tail AND n.total IS NOT NULL
"""


def attach(conn: psycopg.Connection[Any], client: str, name: str) -> None:
    """A new consumer begins at the tails; one that was there goes on. `Detached` when it was idle too long."""
    asked = {"client": check_name("client", client), "name": check_name("consumer", name)}
    _alone(conn)
    found = conn.execute(_CLAIM, asked).fetchone()
    if found is None:
        conn.execute(_ATTACH, asked)
        _begin(conn, client, name, False)
    elif found[0] is not None:
        raise _detached(client, name)
    else:
        conn.execute(_SEEN, asked)


def seen(conn: psycopg.Connection[Any], client: str, name: str) -> None:
    """Said by a consumer now and then, also with nothing to read."""
    if not conn.execute(_SEEN, {"client": client, "name": name}).rowcount:
        raise _detached(client, name)


def reattach(conn: psycopg.Connection[Any], client: str, name: str) -> None:
    """From the tails on; and because entries were missed, a snapshot follows in every queue of the client whose source has a
    provider."""
    asked = {"client": client, "name": name}
    _alone(conn)
    if not conn.execute(_REATTACH, asked).rowcount:
        raise Invalid(f"consumer {name} of {client}", "it is not detached", "go on reading with it")
    _begin(conn, client, name, True)


def _begin(conn: psycopg.Connection[Any], client: str, name: str, everywhere: bool) -> None:
    """At the tails, or behind a snapshot that a tail is in the midst of. What is resynced: those queues, or all."""
    states: dict[str, str] = dict(conn.execute(_SESSIONS, {"client": client}).fetchall())
    starts: dict[int, int] = {}
    resynced = set(states) if everywhere else set[str]()
    ends = [Kind.START.value, Kind.LAST.value]
    for queue, remote, tail, head, position, kind in conn.execute(_QUEUES, {"client": client, "ends": ends}).fetchall():
        halved = kind == Kind.LAST.value if kind is not None else states.get(remote) == "snapshot"
        starts[queue] = (position or head) if halved else tail
        resynced |= {remote} if halved else set()
    conn.execute(_BEGIN_AT, {"client": client, "name": name, "queues": [*starts], "positions": [*starts.values()]})
    conn.execute(_RESYNC, {"client": client, "origins": sorted(resynced), "reason": RESYNC})


def detach(conn: psycopg.Connection[Any], client: str, name: str) -> None:
    """For good, by its own wish: it is forgotten, and nothing waits for it."""
    _alone(conn)
    for statement in _FORGET:
        conn.execute(statement, {"client": client, "name": name})


def detach_idle(conn: psycopg.Connection[Any], seconds: float) -> list[tuple[str, str]]:
    """(client, consumer) of those that were not seen for so long."""
    _alone(conn)
    return [(client, name) for client, name in conn.execute(_DETACH_IDLE, (seconds,)).fetchall()]


def positions(conn: psycopg.Connection[Any], client: str, name: str) -> list[Place]:
    """Every queue of the client, and where this consumer stands in it."""
    return [Place(*row) for row in conn.execute(_PLACES, {"client": client, "name": name}).fetchall()]


def advance(conn: psycopg.Connection[Any], client: str, name: str, queue: int, position: int, after: int | None = None) -> None:
    """What lies between `after` and `position` was processed. The caller's transaction counts only if this holds; without
    `after`, whatever lies before `position`, and only forward."""
    asked = {"client": client, "name": name, "queue": queue, "position": position, "after": after}
    if not conn.execute(_ADVANCE, asked).rowcount:
        raise _not_moved(conn, client, name, queue)


def refused(conn: psycopg.Connection[Any], client: str, name: str, queue: int, after: int) -> None:
    """Counts a try at what follows `after`."""
    conn.execute(_REFUSED, {"client": client, "name": name, "queue": queue, "after": after})


def move_tails(conn: psycopg.Connection[Any]) -> int:
    """Tails follow the slowest attached consumer; the number of queues whose tail moved."""
    _alone(conn)
    moved = conn.execute(_TAILS).fetchall()
    if not moved:
        return 0
    return conn.execute(_MOVE_TAIL, ([queue for queue, _, _ in moved], [tail for _, _, tail in moved])).rowcount


def _alone(conn: psycopg.Connection[Any]) -> None:
    conn.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))


def _not_moved(conn: psycopg.Connection[Any], client: str, name: str, queue: int) -> Terminal | Retryable:
    found = conn.execute(_CLAIM, {"client": client, "name": name}).fetchone()
    if found is None or found[0] is not None:
        return _detached(client, name)
    why = f"its position in queue {queue} is no longer where it read from: another reader has its name"
    return Overtaken(f"consumer {name} of {client}", why, "roll back and read again, or give each reader a name of its own")


def _detached(client: str, name: str) -> Detached:
    why = "it was not seen for too long and was detached; entries may have passed that it never read"
    next_step = "call `reattach`, which asks for snapshots and goes on from what is kept, or attach under a new name"
    return Detached(f"consumer {name} of {client}", why, next_step)
