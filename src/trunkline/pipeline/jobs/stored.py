"""The live routes of a receiver group and its batches, as Postgres has them: what all processes of a group's job share.

The driver, the process that plans and the workers that route are different processes, perhaps of different machines, and each
may be older than the last change. So a batch says which revision of the group's routes it is routed by, and each of them goes
to that revision by what changed (`changes`).

J1  A revision, once named, never changes: routes come and go with a new one, under the lease.
J2  At most one plan is open per group. It names batch, revision and bounds before Spark hears of any of them (H29); whoever
    repeats it repeats all three. Its routes are kept as long.
J3  A batch is done in one transaction with everything that has to be kept of it, and only from where the plan begins (H28).
J4  What went is known for KEEP_CHANGES revisions at least. Whoever stands further behind begins anew.
J5  What waits in the outbox of a route that was updated belongs to what the route is now, before anything of that is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from psycopg.types.json import Jsonb

from trunkline.core.errors import Retryable, Terminal
from trunkline.core.jsoncodec import dumps, loads
from trunkline.db.lease import Grant
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.local.outbox import HOLD_SECONDS, Row
from trunkline.routes.storage.base import Body

Connection = psycopg.Connection[Any]
KEEP_HOURS = 24
KEEP_CHANGES = 1_000

_BEGIN = "INSERT INTO pipeline.job (reader_group) VALUES (%s) ON CONFLICT DO NOTHING"
_STANDS = "SELECT revision, moves FROM pipeline.job WHERE reader_group = %s"
_LIVE = "SELECT hash FROM pipeline.job_route WHERE reader_group = %s AND until IS NULL"
_RAISE = "UPDATE pipeline.job SET revision = revision + 1 WHERE reader_group = %s RETURNING revision"
_ADD = """
INSERT INTO pipeline.job_route (reader_group, hash, org, app, id, body, needs, since)
SELECT %s, u.hash, u.org, u.app, u.id, u.body::json, u.needs::json, %s
  FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[]) AS u (hash, org, app, id, body, needs)
"""
_END = "UPDATE pipeline.job_route SET until = %s WHERE reader_group = %s AND until IS NULL AND hash = ANY (%s)"
_FORGET = """
DELETE FROM pipeline.job_route r WHERE r.reader_group = %(group)s AND r.until <= %(upto)s
   AND NOT EXISTS (SELECT FROM pipeline.job_plan p WHERE p.reader_group = r.reader_group AND p.revision < r.until)
   AND NOT EXISTS (SELECT FROM pipeline.job_state s WHERE s.reader_group = r.reader_group AND s.hash = r.hash)
"""
_ALL = """
SELECT hash, org, app, id, body::text, needs::text FROM pipeline.job_route
 WHERE reader_group = %(group)s AND since <= %(to)s AND (until IS NULL OR until > %(to)s) ORDER BY since, hash
"""
_CAME = """
SELECT hash, org, app, id, body::text, needs::text FROM pipeline.job_route
 WHERE reader_group = %(group)s AND since > %(at)s AND since <= %(to)s AND (until IS NULL OR until > %(to)s)
 ORDER BY since, hash
"""
_WENT = """
SELECT hash FROM pipeline.job_route WHERE reader_group = %(group)s AND since <= %(at)s AND until > %(at)s AND until <= %(to)s
"""
_ONE = """
SELECT hash, org, app, id, body::text, needs::text FROM pipeline.job_route
 WHERE reader_group = %s AND hash = %s ORDER BY since DESC LIMIT 1
"""
_BEFORE = """
SELECT b.hash FROM pipeline.job_route a JOIN pipeline.job_route b
    ON b.reader_group = a.reader_group AND (b.org, b.app, b.id) = (a.org, a.app, a.id) AND b.until = a.since
 WHERE a.hash <> b.hash AND a.reader_group = %s AND a.hash = %s ORDER BY a.since DESC LIMIT 1
"""
_AFTER = """
SELECT a.hash FROM pipeline.job_route a JOIN pipeline.job_route b
    ON b.reader_group = a.reader_group AND (b.org, b.app, b.id) = (a.org, a.app, a.id) AND b.until = a.since
 WHERE a.hash <> b.hash AND b.reader_group = %s AND b.hash = %s ORDER BY b.since DESC LIMIT 1
"""
_LOOKED = "UPDATE pipeline.job SET looked = %s WHERE reader_group = %s AND looked < %s"
_INHERIT = """
SELECT routes.move_lane(l.hash, r.hash, r.org, r.app, r.id)
  FROM routes.lane l JOIN pipeline.job_route r ON (r.org, r.app, r.id) = (l.org, l.app, l.route) AND r.until IS NULL
 WHERE r.reader_group = %s AND l.hash <> r.hash AND r.body #>> '{sender,plugin}' = l.plugin
   AND NOT EXISTS (SELECT FROM pipeline.job_route o WHERE o.hash = l.hash AND o.until IS NULL) ORDER BY l.since
"""
_PLAN = """
SELECT epoch, revision, moves, body, waiting, extract(epoch FROM planned_at)::float8
  FROM pipeline.job_plan WHERE reader_group = %s
"""
_COMMIT_PLAN = """
INSERT INTO pipeline.job_plan (reader_group, epoch, revision, moves, body, waiting) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (reader_group) DO UPDATE
   SET epoch = excluded.epoch, revision = excluded.revision, moves = excluded.moves, body = excluded.body,
       waiting = excluded.waiting, planned_at = clock_timestamp()
"""
_CLOSE = """
WITH closed AS (
    DELETE FROM pipeline.job_plan WHERE reader_group = %(group)s AND moves = %(moves)s AND revision = %(revision)s
    RETURNING body, planned_at),
moved AS (
    UPDATE pipeline.job SET moves = moves + 1 WHERE reader_group = %(group)s AND moves = %(moves)s
       AND EXISTS (SELECT FROM closed) RETURNING moves)
INSERT INTO pipeline.job_batch (reader_group, moves, revision, body, events, planned_at)
SELECT %(group)s, m.moves, %(revision)s, c.body, %(events)s, c.planned_at FROM closed c, moved m
"""
_OLD = "DELETE FROM pipeline.job_batch WHERE done_at < clock_timestamp() - make_interval(hours => %s)"
_LANES = """
SELECT DISTINCT l.hash FROM routes.lane l JOIN pipeline.job_route r ON r.hash = l.hash AND r.until IS NULL
 WHERE r.reader_group = %s ORDER BY l.hash
"""
_WAITS = "SELECT EXISTS (SELECT FROM routes.lane WHERE hash = %s OR (org, app, route) = (%s, %s, %s))"
_TAKE_ROW = "SELECT routes.drained(%s, %s, %s::bigint[], '{}', '{}', '', 0, %s)"


class Member(msgspec.Struct, frozen=True):
    """A live route of a group, as it was written. `needs`: as `trunkline.routes.needs.written` gives them."""

    hash: str
    key: RouteKey
    body: Body
    needs: Any = ()


class JobPlan(msgspec.Struct, frozen=True):
    """`moves`: the batch it follows. `body`: what it reads, in the words of its feed. `waiting`: routes that only append."""

    revision: int
    moves: int
    body: Any
    waiting: frozenset[str] = frozenset()
    epoch: int = 0
    planned: float = 0.0


def begin(conn: Connection, group: str, members: Mapping[str, Member]) -> int:
    """What a new holder does first: the stored set becomes its own. Gives the revision; the caller commits, fenced."""
    conn.execute(_BEGIN, (group,))
    stored = {hash for (hash,) in conn.execute(_LIVE, (group,))}
    return change(conn, group, [m for hash, m in members.items() if hash not in stored], stored - members.keys())


def change(conn: Connection, group: str, came: Sequence[Member], went: Collection[str]) -> int:
    """Gives the revision from which on they are there, and not there; the caller commits, fenced."""
    if not came and not went:
        return stands(conn, group)[0]
    rows = [(m.hash, *_key(m.key), dumps(m.body).decode(), dumps(m.needs).decode()) for m in came]
    row = conn.execute(_RAISE, (group,)).fetchone()
    assert row is not None, "the group has begun"
    revision: int = row[0]
    conn.execute(_END, (revision, group, [*went, *(m.hash for m in came)]))
    if rows:
        conn.execute(_ADD, (group, revision, *([*column] for column in zip(*rows, strict=True))))
    conn.execute(_FORGET, {"group": group, "upto": revision - 2 * KEEP_CHANGES})
    return revision


def stands(conn: Connection, group: str) -> tuple[int, int]:
    """The newest revision, and how many batches are done."""
    row = conn.execute(_STANDS, (group,)).fetchone()
    return row or (0, 0)


def goes_on(conn: Connection, group: str, at: int, to: int) -> bool:
    """Whether `changes` between them are known (J4)."""
    return stands(conn, group)[0] - KEEP_CHANGES <= at <= to


def changes(conn: Connection, group: str, at: int, to: int) -> tuple[list[Member], list[str]]:
    """What came and what went between two revisions; from the beginning if `at` is 0. No transaction is left open, for a
    large table takes its time to be made."""
    asked = {"group": group, "at": at, "to": to}
    came = conn.execute(_CAME if at else _ALL, asked).fetchall()
    went = conn.execute(_WENT, asked).fetchall() if at else []
    conn.rollback()
    return list(_members(came)), [hash for (hash,) in went]


def member(conn: Connection, group: str, hash: str) -> Member | None:
    """Also one that is live no longer, as long as somebody needs it."""
    return next(_members(conn.execute(_ONE, (group, hash))), None)


def before(conn: Connection, group: str, hash: str) -> str | None:
    """The route that this one took over from."""
    row = conn.execute(_BEFORE, (group, hash)).fetchone()
    return row[0] if row else None


def after(conn: Connection, group: str, hash: str) -> str | None:
    """The route that took over from this one."""
    row = conn.execute(_AFTER, (group, hash)).fetchone()
    return row[0] if row else None


def looked(conn: Connection, group: str, revision: int) -> None:
    """Whoever plans has seen this revision; for its own transaction."""
    conn.execute(_LOOKED, (revision, group, revision))


def _key(key: RouteKey) -> tuple[str, str, str]:
    return key.tenant.org, key.tenant.app, key.id


def _members(rows: Iterable[tuple[str, str, str, str, str, str]]) -> Iterator[Member]:
    for hash, org, app, id, body, needs in rows:
        yield Member(hash, RouteKey(Tenant(org, app), id), loads(body), loads(needs))


def inherit_lanes(conn: Connection, group: str) -> None:
    """J5; for the transaction that plans."""
    conn.execute(_INHERIT, (group,))


def waiting_lanes(conn: Connection, group: str) -> frozenset[str]:
    """Routes with something in their outbox."""
    return frozenset(hash for (hash,) in conn.execute(_LANES, (group,)))


def waits(conn: Connection, member: Member) -> bool:
    """Whether there is something in the route's outbox, whatever the route was then."""
    row = conn.execute(_WAITS, (member.hash, *_key(member.key))).fetchone()
    return bool(row and row[0])


def take_row(conn: Connection, hash: str, row: Row, holder: str) -> None:
    """Out of a lane that `holder` drains; for the transaction that keeps what became of it."""
    left = conn.execute(_TAKE_ROW, (hash, holder, [row.seq], HOLD_SECONDS)).fetchone()
    if left is None or left[0] < 0:
        raise Retryable(f"outbox of route {hash}", "another instance drains it now", "that one goes on")


def open_plan(conn: Connection, group: str) -> JobPlan | None:
    row = conn.execute(_PLAN, (group,)).fetchone()
    if row is None:
        return None
    epoch, revision, moves, body, waiting, planned = row
    return JobPlan(revision, moves, body, frozenset(waiting), epoch, planned)


def write_plan(conn: Connection, group: str, grant: Grant, plan: JobPlan) -> None:
    """The caller commits, fenced."""
    values = (group, grant.epoch, plan.revision, plan.moves, Jsonb(plan.body), sorted(plan.waiting))
    conn.execute(_COMMIT_PLAN, values)


def drop_plan(conn: Connection, group: str) -> None:
    """Of one that can no longer be read, and that no other follows; the caller commits, fenced."""
    conn.execute("DELETE FROM pipeline.job_plan WHERE reader_group = %s", (group,))


def close_plan(conn: Connection, group: str, plan: JobPlan, events: int) -> None:
    """For the transaction that keeps what became of the batch; its owner commits it, fenced."""
    asked = {"group": group, "moves": plan.moves, "revision": plan.revision, "events": events}
    if conn.execute(_CLOSE, asked).rowcount != 1:
        why = f"batch {plan.moves + 1} is not the one that is open: the group stands at {stands(conn, group)[1]}"
        raise Terminal(f"batch of {group}", why, "start the query anew from where the group stands")


def forget_batches(conn: Connection) -> None:
    conn.execute(_OLD, (KEEP_HOURS,))
