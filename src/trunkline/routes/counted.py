"""What routes on Spark came to, as Postgres has it: written by pipelines, shown by nodes.

C1  An instance adds to its own rows only, what it counted since it last did.
C2  Numbers of a route are sums over instances, those of the last day that are gone included. Sums per plugin are for ever.
C3  A group is held by the instance that says so and is alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, LiteralString

import msgspec
import psycopg

from trunkline.routes.ends import Pool
from trunkline.routes.instances import ALIVE_SECONDS
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.local.asking import Asking, plain

KEEP_HOURS = 24
COUNTED = ("received", "matched", "dropped", "sent", "kept", "dead", "failed")

_ADDED: LiteralString = """
ON CONFLICT (org, app, id, instance, receiver, sender) DO UPDATE
   SET received = c.received + excluded.received, matched = c.matched + excluded.matched,
       dropped = c.dropped + excluded.dropped, sent = c.sent + excluded.sent, kept = c.kept + excluded.kept,
       dead = c.dead + excluded.dead, failed = c.failed + excluded.failed, seconds = c.seconds + excluded.seconds,
       updated_at = clock_timestamp()
"""
_GROUP_ADDED: LiteralString = """
ON CONFLICT (name, instance) DO UPDATE
   SET holds = excluded.holds, events = c.events + excluded.events, batches = c.batches + excluded.batches,
       seconds = c.seconds + excluded.seconds, behind = excluded.behind, failing = excluded.failing,
       updated_at = clock_timestamp()
"""
_CUSTOM_ADDED: LiteralString = """
ON CONFLICT (name, instance) DO UPDATE SET count = c.count + excluded.count, updated_at = clock_timestamp()
"""
_COLUMNS: LiteralString = """
INSERT INTO routes.count AS c
       (instance, org, app, id, receiver, sender, received, matched, dropped, sent, kept, dead, failed, seconds)
"""
_GROUP_COLUMNS: LiteralString = """
INSERT INTO routes.group_count AS c (instance, name, holds, events, batches, seconds, behind, failing)
"""
_WRITE: LiteralString = f"""
{_COLUMNS}
SELECT %s, * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[],
                         %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::float8[])
{_ADDED}"""
_WRITE_GROUPS: LiteralString = f"""
{_GROUP_COLUMNS}
SELECT %s, * FROM unnest(%s::text[], %s::boolean[], %s::bigint[], %s::bigint[], %s::float8[], %s::bigint[], %s::text[])
{_GROUP_ADDED}"""
_WRITE_CUSTOM: LiteralString = f"""
INSERT INTO routes.custom_count AS c (instance, name, count) SELECT %s, * FROM unnest(%s::text[], %s::bigint[]) {_CUSTOM_ADDED}
"""
_IS_GONE: LiteralString = """c.instance <> '' AND c.updated_at < clock_timestamp() - make_interval(hours => %(hours)s)
   AND NOT EXISTS (SELECT FROM site.instance i WHERE i.id = c.instance)"""
_FOLD: LiteralString = f"""
WITH gone AS (DELETE FROM routes.count c WHERE {_IS_GONE} RETURNING c.*)
{_COLUMNS}
SELECT '', '', '', '', receiver, sender, sum(received), sum(matched), sum(dropped), sum(sent), sum(kept), sum(dead),
       sum(failed), sum(seconds)
  FROM gone GROUP BY receiver, sender
{_ADDED}"""
_FOLD_GROUPS: LiteralString = f"""
WITH gone AS (DELETE FROM routes.group_count c WHERE {_IS_GONE} RETURNING c.*)
{_GROUP_COLUMNS}
SELECT '', name, false, sum(events), sum(batches), sum(seconds), 0, '' FROM gone GROUP BY name
{_GROUP_ADDED}"""
_FOLD_CUSTOM: LiteralString = f"""
WITH gone AS (DELETE FROM routes.custom_count c WHERE {_IS_GONE} RETURNING c.*)
INSERT INTO routes.custom_count AS c (instance, name, count) SELECT '', name, sum(count) FROM gone GROUP BY name {_CUSTOM_ADDED}
"""
_SUMS: LiteralString = """sum(received)::bigint, sum(matched)::bigint, sum(dropped)::bigint, sum(sent)::bigint,
       sum(kept)::bigint, sum(dead)::bigint, sum(failed)::bigint, sum(seconds)::float8"""
_ROUTES: LiteralString = f"""
SELECT org, app, id, {_SUMS} FROM routes.count
 WHERE instance <> '' AND (%(org)s::text IS NULL OR (org, app) = (%(org)s, %(app)s))
 GROUP BY org, app, id ORDER BY sum(received) DESC, org, app, id LIMIT %(most)s
"""
_PLUGINS: LiteralString = f"SELECT receiver, sender, {_SUMS} FROM routes.count GROUP BY receiver, sender ORDER BY 1, 2"
_GROUPS: LiteralString = """
SELECT g.name, coalesce(max(g.instance) FILTER (WHERE g.holds AND i.id IS NOT NULL), ''), sum(g.events)::bigint,
       sum(g.batches)::bigint, sum(g.seconds)::float8,
       coalesce(max(g.behind) FILTER (WHERE g.holds AND i.id IS NOT NULL), 0),
       coalesce(max(g.failing) FILTER (WHERE g.holds AND i.id IS NOT NULL), '')
  FROM routes.group_count g
  LEFT JOIN site.instance i ON i.id = g.instance AND i.heartbeat_at > clock_timestamp() - make_interval(secs => %(alive)s)
 GROUP BY g.name ORDER BY g.name
"""
_CUSTOM: LiteralString = """
SELECT name, sum(count)::bigint FROM routes.custom_count GROUP BY name ORDER BY sum(count) DESC, name LIMIT %(most)s
"""

Connection = psycopg.Connection[Any]


class CountRow(msgspec.Struct, frozen=True):
    """What one route with these plugins came to since it was last written."""

    key: RouteKey
    receiver: str
    sender: str
    numbers: tuple[int, ...]
    """In the order of `COUNTED`."""
    seconds: float


class GroupRow(msgspec.Struct, frozen=True):
    """One group: `events`, `batches` and `seconds` since it was last written, the rest as it is now."""

    name: str
    holds: bool
    events: int
    batches: int
    seconds: float
    behind: int
    failing: str


class RouteSum(msgspec.Struct, frozen=True):
    """Of one route at all pipelines, or of all routes with the same plugins."""

    received: int
    matched: int
    dropped: int
    sent: int
    kept: int
    dead: int
    failed: int
    seconds: float


class GroupSum(msgspec.Struct, frozen=True):
    """`instance`: who holds it; empty: nobody who is alive."""

    name: str
    instance: str
    events: int
    batches: int
    seconds: float
    behind: int
    failing: str


def write_counts(conn: Connection, instance: str, rows: Iterable[CountRow]) -> None:
    values = [(*_named(row.key), row.receiver, row.sender, *row.numbers, row.seconds) for row in rows]
    if values:
        conn.execute(_WRITE, (instance, *_columns(values)))


def write_groups(conn: Connection, instance: str, rows: Iterable[GroupRow]) -> None:
    values = [(row.name, row.holds, row.events, row.batches, row.seconds, row.behind, plain(row.failing)) for row in rows]
    if values:
        conn.execute(_WRITE_GROUPS, (instance, *_columns(values)))


def write_custom(conn: Connection, instance: str, counts: Iterable[tuple[str, int]]) -> None:
    values = [(plain(name), count) for name, count in counts]
    if values:
        conn.execute(_WRITE_CUSTOM, (instance, *_columns(values)))


def fold(conn: Connection, hours: int = KEEP_HOURS) -> None:
    """Rows of instances that have been gone for so long."""
    for statement in (_FOLD, _FOLD_GROUPS, _FOLD_CUSTOM):
        conn.execute(statement, {"hours": hours})


class SparkCounts:
    """For nodes. All of it is of the site, whichever node is asked."""

    def __init__(self, pool: Pool) -> None:
        self._ask = Asking(pool, "counts of routes")

    async def routes(self, tenant: Tenant | None, most: int) -> dict[RouteKey, RouteSum]:
        """Those that received most first."""
        asked = {"org": tenant.org if tenant else None, "app": tenant.app if tenant else None, "most": most}
        rows = await self._ask.rows(_ROUTES, asked)
        return {RouteKey(Tenant(org, app), id): RouteSum(*numbers) for org, app, id, *numbers in rows}

    async def plugins(self) -> dict[tuple[str, str], RouteSum]:
        """By receiver and sender."""
        rows = await self._ask.rows(_PLUGINS)
        return {(receiver, sender): RouteSum(*numbers) for receiver, sender, *numbers in rows}

    async def groups(self) -> list[GroupSum]:
        return [GroupSum(*row) for row in await self._ask.rows(_GROUPS, {"alive": ALIVE_SECONDS})]

    async def custom(self, most: int) -> dict[str, int]:
        return dict(await self._ask.rows(_CUSTOM, {"most": most}))


def _named(key: RouteKey) -> tuple[str, str, str]:
    return key.tenant.org, key.tenant.app, key.id


def _columns(values: Sequence[Sequence[object]]) -> list[list[object]]:
    return [list(column) for column in zip(*values, strict=True)]
