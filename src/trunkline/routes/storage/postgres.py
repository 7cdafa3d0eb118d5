"""Routes in the site's own Postgres, schema `routes`: the default, for it needs nothing more.

1. A change is one statement and so one transaction: it locks the counter row, looks, writes and counts (routes.change). What
   it acknowledged is committed (S5); a process that is killed leaves all of its change or nothing.
2. A scan is one snapshot. What it told of removals that are old enough is forgotten after it, and no newer one (S4).
3. Large answers are read a few rows at a time with a turn for others in between, or in a thread.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import msgspec
import psycopg
from psycopg_pool import AsyncConnectionPool

from trunkline.core.errors import Invalid, Terminal
from trunkline.core.jsoncodec import loads
from trunkline.db.arrays import QuickListDumper
from trunkline.db.away import in_one_line
from trunkline.db.operated import told
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.storage.apart import MANY, apart
from trunkline.routes.storage.base import (
    NONE_KNOWN,
    REMEMBER,
    Body,
    Change,
    Fragment,
    Listed,
    NoSuchTenant,
    RouteConfig,
    Scan,
    TenantConfig,
)
from trunkline.routes.storage.written import (
    Written,
    check_tenant,
    conflict,
    fragment_text,
    has_routes,
    routes_as_put,
    write_down,
)

_NOT_AS_EXPECTED, _HAS_ROUTES, _NO_TENANT = "TL201", "TL202", "TL203"  # SQLSTATEs of sql/*.sql
_WHATEVER = -1
_Connection = psycopg.AsyncConnection[tuple[Any, ...]]
_Row = tuple[Any, ...]

# A body that many routes share comes once, with the first of them. It is looked up, not joined: a planner that expects few
# routes would compare each with all configurations.
_ROUTES = """
SELECT r.org, r.app, r.id, r.hash, r.notes, r.revision, extract(epoch FROM r.created)::float8,
       extract(epoch FROM r.modified)::float8,
       CASE WHEN row_number() OVER (PARTITION BY r.hash) = 1 AND r.hash <> ALL (%s::text[])
            THEN (SELECT c.body::text FROM routes.config c WHERE c.hash = r.hash) END
  FROM {routes} ORDER BY r.org, r.app, r.id
"""
# OFFSET keeps each of them a look-up of its own: a planner that may join would read the whole table for two thousand.
_READ = _ROUTES.format(
    routes="""unnest(%s::text[], %s::text[], %s::text[]) AS w (org, app, id) CROSS JOIN LATERAL (
        SELECT * FROM routes.route WHERE (route.org, route.app, route.id) = (w.org, w.app, w.id) OFFSET 0) AS r"""
)
_OF_TENANT = _ROUTES.format(
    routes="(SELECT * FROM routes.route WHERE org = %s AND app = %s AND id > %s ORDER BY id LIMIT %s) AS r"
)
_BODIES = "SELECT hash, body::text FROM routes.config WHERE hash = ANY (%s::text[])"
_CHANGE = """
SELECT place::int, revision, extract(epoch FROM created)::float8, extract(epoch FROM modified)::float8
  FROM routes.change_of(
       %s::text[], %s::text[],
       %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::text[])
"""
_ONE_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
_REVISION = "SELECT revision, extract(epoch FROM clock_timestamp())::float8 FROM routes.counter"
_SCAN = "SELECT org, app, id, hash, revision FROM routes.route"
_NEWER = " WHERE revision > %s"
_REMOVED = "SELECT org, app, id, revision, extract(epoch FROM removed_at)::float8 FROM routes.removal"
# It waits for no row: whoever holds one is about to take it out.
_FORGET = """
DELETE FROM routes.removal WHERE (org, app, id) IN (
    SELECT org, app, id FROM routes.removal
     WHERE revision <= %s AND removed_at <= to_timestamp(%s) FOR UPDATE SKIP LOCKED)
"""
_TENANTS = """
SELECT org, app, events_per_second, clients, open_events, extract(epoch FROM modified)::float8
  FROM routes.tenant {which} ORDER BY org, app
"""
_PUT_TENANT = """
INSERT INTO routes.tenant (org, app, events_per_second, clients, open_events) VALUES (%s, %s, %s, %s::text[], %s)
ON CONFLICT (org, app) DO UPDATE SET events_per_second = excluded.events_per_second, clients = excluded.clients,
   open_events = excluded.open_events, modified = excluded.modified
RETURNING extract(epoch FROM modified)::float8
"""
_REMOVE_TENANT = "SELECT routes.remove_tenant(%s, %s)"
_FRAGMENTS = """
SELECT name, body::text, extract(epoch FROM modified)::float8
  FROM routes.fragment WHERE org = %s AND app = %s {which} ORDER BY name
"""
_PUT_FRAGMENT = """
INSERT INTO routes.fragment (org, app, name, body) VALUES (%s, %s, %s, %s::json)
ON CONFLICT (org, app, name) DO UPDATE SET body = excluded.body, modified = excluded.modified
RETURNING extract(epoch FROM modified)::float8
"""
_REMOVE_FRAGMENT = "DELETE FROM routes.fragment WHERE org = %s AND app = %s AND name = %s RETURNING true"


class PostgresStorage:
    """`remember`: seconds for which a removal is kept at least. `patience`: seconds to wait for a connection."""

    def __init__(self, dsn: str, remember: float = REMEMBER, patience: float = 5.0, connections: int = 4) -> None:
        self._remember, self._patience = remember, patience
        self._pool: AsyncConnectionPool[_Connection] = AsyncConnectionPool(
            dsn, min_size=1, max_size=connections, open=False, name="routes", timeout=patience,
            configure=_with_quick_arrays,
            check=_check,
            kwargs={
                "autocommit": True, "application_name": "trunkline-routes", "options": "-c jit=off -c work_mem=64MB",
                "tcp_user_timeout": 10_000,
            },
        )  # fmt: skip

    async def open(self) -> None:
        with told("the storage of routes", _missing):
            try:
                await self._pool.open(wait=True, timeout=self._patience)
                await self._rows(_REVISION)
            except BaseException:
                await self._pool.close()
                raise

    async def close(self) -> None:
        await self._pool.close()

    async def read(self, keys: Sequence[RouteKey], known: Mapping[str, Body] = NONE_KNOWN) -> dict[RouteKey, RouteConfig]:
        return {route.key: route for route in await self._routes(_READ, known, *_columns(keys))}

    async def bodies(self, hashes: Sequence[str]) -> dict[str, Body]:
        return {hash: loads(body) for hash, body in await self._rows(_BODIES, list(hashes))}

    async def of_tenant(self, tenant: Tenant, after: str = "", most: int | None = None) -> list[RouteConfig]:
        return await self._routes(_OF_TENANT, NONE_KNOWN, tenant.org, tenant.app, after, most)

    async def scan(self) -> Scan:
        async with self._connection() as conn:
            async with conn.transaction():
                await conn.execute(_ONE_MOMENT)
                revision, now = (await _asked(conn, _REVISION))[0]
                removed = await _asked(conn, _REMOVED)
                cursor = await conn.execute(_SCAN)
            routes = await _listed(cursor)
            if any(at <= now - self._remember for *_, at in removed):
                await conn.execute(_FORGET, (revision, now - self._remember))
        return Scan(revision, routes, {RouteKey(Tenant(org, app), id): gone for org, app, id, gone, _ in removed})

    async def newer(self, revision: int) -> Scan:
        (now, _), *_ = await self._rows(_REVISION)
        if now <= revision:
            return Scan(now, [], {})
        async with self._connection() as conn, conn.transaction():
            await conn.execute(_ONE_MOMENT)
            (now, _), *_ = await _asked(conn, _REVISION)
            removed = await _asked(conn, _REMOVED + _NEWER, revision)
            routes = await _listed(await conn.execute((_SCAN + _NEWER).encode(), [revision]))
        return Scan(now, routes, {RouteKey(Tenant(org, app), id): gone for org, app, id, gone, _ in removed})

    async def change(self, changes: Sequence[Change]) -> dict[RouteKey, RouteConfig]:
        written = await apart(len(changes), write_down, changes)
        hashes, bodies = list(written.bodies), list(written.bodies.values())
        expects = [_WHATEVER if change.expect is None else change.expect for change in changes]
        keys = _columns([change.key for change in changes])
        must = [tenant.org for tenant in written.tenants], [tenant.app for tenant in written.tenants]
        try:
            rows = await self._rows(_CHANGE, *must, *keys, written.hashes, written.notes, expects, hashes, bodies)
        except psycopg.DatabaseError as error:
            if error.sqlstate == _NO_TENANT:
                raise NoSuchTenant(written.tenants[int(error.diag.message_detail or 1) - 1]) from None
            if error.sqlstate != _NOT_AS_EXPECTED:
                raise
            place, found = map(int, (error.diag.message_detail or "").split())
            raise conflict(changes[place - 1].key, expects[place - 1], found) from None
        return await apart(len(changes), _as_changed, written, rows)

    async def tenants(self) -> list[TenantConfig]:
        return [_tenant(row) for row in await self._rows(_TENANTS.format(which=""))]

    async def tenant(self, tenant: Tenant) -> TenantConfig | None:
        rows = await self._rows(_TENANTS.format(which="WHERE org = %s AND app = %s"), tenant.org, tenant.app)
        return _tenant(rows[0]) if rows else None

    async def put_tenant(self, config: TenantConfig) -> TenantConfig:
        check_tenant(config)
        tenant = config.tenant
        row = (tenant.org, tenant.app, config.events_per_second, list(config.clients), config.open_events)
        [[modified]] = await self._rows(_PUT_TENANT, *row)
        return msgspec.structs.replace(config, modified=modified)

    async def remove_tenant(self, tenant: Tenant) -> bool:
        try:
            [[there]] = await self._rows(_REMOVE_TENANT, tenant.org, tenant.app)
        except psycopg.DatabaseError as error:
            if error.sqlstate != _HAS_ROUTES:
                raise
            raise has_routes(tenant, int(error.diag.message_detail or 0)) from None
        return bool(there)

    async def fragments(self, tenant: Tenant) -> list[Fragment]:
        rows = await self._rows(_FRAGMENTS.format(which=""), tenant.org, tenant.app)
        return [Fragment(tenant, name, loads(body), modified) for name, body, modified in rows]

    async def fragment(self, tenant: Tenant, name: str) -> Fragment | None:
        rows = await self._rows(_FRAGMENTS.format(which="AND name = %s"), tenant.org, tenant.app, name)
        return next((Fragment(tenant, name, loads(body), modified) for _, body, modified in rows), None)

    async def put_fragment(self, fragment: Fragment) -> Fragment:
        text, tenant = fragment_text(fragment), fragment.tenant
        [[modified]] = await self._rows(_PUT_FRAGMENT, tenant.org, tenant.app, fragment.name, text)
        return Fragment(tenant, fragment.name, loads(text), modified)

    async def remove_fragment(self, tenant: Tenant, name: str) -> bool:
        return bool(await self._rows(_REMOVE_FRAGMENT, tenant.org, tenant.app, name))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[_Connection]:
        with told("the storage of routes", _missing):
            try:
                async with self._pool.connection() as conn:
                    yield conn
            except (psycopg.DataError, UnicodeEncodeError) as error:
                raise Invalid("the storage of routes", in_one_line(error), "ask with names that are plain text") from None

    async def _rows(self, statement: str, *args: Any) -> list[_Row]:
        async with self._connection() as conn:
            return await _asked(conn, statement, *args)

    async def _routes(self, statement: str, known: Mapping[str, Body], *args: Any) -> list[RouteConfig]:
        rows = await self._rows(statement, list(known), *args)
        return await apart(len(rows), _as_read, rows, known)


async def _with_quick_arrays(conn: _Connection) -> None:
    conn.adapters.register_dumper(list, QuickListDumper)


async def _check(conn: _Connection) -> None:
    """A connection at rest has something to read only when it was closed: no other is asked whether it lives."""
    waiting = select.poll()
    waiting.register(conn.fileno(), select.POLLIN)
    if waiting.poll(0):
        await AsyncConnectionPool.check_connection(conn)


async def _asked(conn: _Connection, statement: str, *args: Any) -> list[_Row]:
    return await (await conn.execute(statement.encode(), args)).fetchall()


async def _listed(cursor: psycopg.AsyncCursor[_Row]) -> list[Listed]:
    listed: list[Listed] = []
    tenant_of = cache(Tenant)
    while rows := await cursor.fetchmany(MANY):
        listed += [Listed(RouteKey(tenant_of(org, app), id), hash, at) for org, app, id, hash, at in rows]
        await asyncio.sleep(0)
    return listed


def _as_read(rows: list[_Row], known: Mapping[str, Body]) -> list[RouteConfig]:
    tenant_of = cache(Tenant)
    bodies = {**known, **{row[3]: loads(row[8]) for row in rows if row[8] is not None}}
    return [
        RouteConfig(RouteKey(tenant_of(org, app), id), hash, bodies[hash], loads(notes), revision, created, modified)
        for org, app, id, hash, notes, revision, created, modified, _ in rows
    ]


def _columns(keys: Sequence[RouteKey]) -> tuple[list[str], list[str], list[str]]:
    return [key.tenant.org for key in keys], [key.tenant.app for key in keys], [key.id for key in keys]


def _as_changed(written: Written, rows: list[_Row]) -> dict[RouteKey, RouteConfig]:
    """The first row is of all that have none of their own."""
    (_, revision, created, modified), *others = rows
    return routes_as_put(written, (revision, created, modified), {row[0] - 1: (row[1], row[2], row[3]) for row in others})


def _tenant(row: _Row) -> TenantConfig:
    org, app, events_per_second, clients, open_events, modified = row
    return TenantConfig(Tenant(org, app), events_per_second, tuple(clients), open_events, modified)


def _missing(why: str) -> Terminal:
    return Terminal(
        "the storage of routes", f"its tables are not there: {why}", "start a node on this database, which makes them"
    )
