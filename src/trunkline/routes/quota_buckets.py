"""Where a site keeps the buckets of its tenants' quotas: in this process, in Postgres, or in Redis.

A visit is one statement for many slots, and no more than one at a time. `Retryable` says that the bucket cannot be asked.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import psycopg
import redis.asyncio
import redis.exceptions

from trunkline.core.clock import Clock
from trunkline.core.errors import Retryable
from trunkline.db.away import AWAY, in_one_line
from trunkline.routes.keys import Tenant
from trunkline.routes.quota import LINE, TURN, Lot, Quota, Shelf, grab

SECONDS = 1.0  # a bucket that does not answer within so long cannot be asked
_FORGET_SECONDS = 3600  # a bucket in Redis that nobody asks for so long is a full one


class Buckets(Protocol):
    async def take(self, tenant: Tenant, quota: Quota, wanted: int) -> Lot: ...

    async def close(self) -> None: ...


class MemoryBuckets:
    """For a site of one process; several limiters may share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shelves: dict[Tenant, Shelf] = {}

    async def take(self, tenant: Tenant, quota: Quota, wanted: int) -> Lot:
        self._shelves[tenant], lot = grab(self._shelves.get(tenant), quota, wanted, self._clock.monotonic())
        return lot

    async def close(self) -> None:
        self._shelves.clear()


class PostgresBuckets:
    """Commits need not reach the disk: a bucket that forgets is a full one."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._turn = asyncio.Lock()
        self._conn: psycopg.AsyncConnection[Any] | None = None

    async def take(self, tenant: Tenant, quota: Quota, wanted: int) -> Lot:
        async with self._turn:
            try:
                async with asyncio.timeout(SECONDS):
                    return await self._take(tenant, quota, wanted)
            except (*AWAY, psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable, TimeoutError) as error:
                await self._disconnect()
                raise _away("Postgres", error) from None

    async def _take(self, tenant: Tenant, quota: Quota, wanted: int) -> Lot:
        asked = (tenant.org, tenant.app, quota.per_second, quota.stamp, wanted)
        rows = await (await self._connection()).execute("SELECT * FROM routes.take_slots(%s, %s, %s, %s, %s)", asked)
        per_second, stamp, count, first = await rows.fetchone() or (0.0, 0.0, 0, 0.0)
        return Lot(Quota(per_second, stamp), count, first)

    async def close(self) -> None:
        async with self._turn:
            await self._disconnect()

    async def _connection(self) -> psycopg.AsyncConnection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = await psycopg.AsyncConnection.connect(
                self._dsn, autocommit=True, connect_timeout=2, tcp_user_timeout=3000, application_name="trunkline-quota",
                options="-c synchronous_commit=off -c statement_timeout=1000 -c lock_timeout=1000 -c jit=off",
            )  # fmt: skip
        return self._conn

    async def _disconnect(self) -> None:
        if self._conn is not None:
            await self._conn.close()
            self._conn = None


# The same as trunkline.routes.quota.grab, on the server's clock.
_SCRIPT = f"""
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local held = redis.call('HMGET', KEYS[1], 'quota', 'stamp', 'upto')
local quota, stamp, upto = held[1] or ARGV[1], tonumber(held[2] or ARGV[2]), tonumber(held[3] or '0')
if tonumber(ARGV[2]) > stamp then quota, stamp, upto = ARGV[1], tonumber(ARGV[2]), math.min(upto, now) end
local count, first, keep = 0, 0, {_FORGET_SECONDS}
local rate = tonumber(quota) or 0
if rate > 0 then
  local slot = 1 / rate
  local turn = math.max({TURN}, slot)
  upto = math.min(math.max(upto, now - math.max(1, slot)), now + {LINE} * turn)
  local behind, ahead = math.max(0, now - upto), math.max(0, upto - now)
  local room = (behind + math.min(turn, {LINE} * turn - ahead)) * rate
  first = upto + slot - now
  count = math.max(0, math.min(tonumber(ARGV[3]), math.floor(room + 1e-6)))
  upto = upto + count * slot
  keep = math.min(keep + {LINE} * turn, 1e9)
end
redis.call('HSET', KEYS[1], 'quota', quota, 'stamp', string.format('%.17g', stamp), 'upto', string.format('%.17g', upto))
redis.call('EXPIRE', KEYS[1], math.ceil(keep))
return {{quota, string.format('%.17g', stamp), count, string.format('%.17g', first)}}
"""
_NONE = "none"


class RedisBuckets:
    """`prefix` keeps sites apart that share a Redis."""

    def __init__(self, url: str, prefix: str = "") -> None:
        self._prefix = prefix
        self._redis: redis.asyncio.Redis = redis.asyncio.Redis.from_url(
            url, socket_timeout=SECONDS, socket_connect_timeout=SECONDS, decode_responses=True
        )
        self._take = self._redis.register_script(_SCRIPT)

    async def take(self, tenant: Tenant, quota: Quota, wanted: int) -> Lot:
        asked = (_NONE if quota.per_second is None else repr(quota.per_second), repr(quota.stamp), str(wanted))
        try:
            per_second, stamp, count, first = await self._take(keys=[f"{self._prefix}quota:{tenant}"], args=asked)
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, redis.exceptions.BusyLoadingError) as error:
            raise _away("Redis", error) from None
        in_force = Quota(None if per_second == _NONE else float(per_second), float(stamp))
        return Lot(in_force, int(count), float(first))

    async def close(self) -> None:
        await self._redis.aclose()


def _away(where: str, error: Exception) -> Retryable:
    return Retryable(f"quotas in {where}", in_one_line(error), "events with a quota wait until it answers")
