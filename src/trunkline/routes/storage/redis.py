"""Routes in Redis, in the design document's layout `HSET routes rid config`, made to hold tenants and revisions.

    routes             org/app/id → {"revision", "created", "modified", "hash", "notes"}
    routes:configs     hash → configuration, each once (S3); routes:uses counts the ids of each
    routes:ids         the fields of `routes` in order, so that a tenant's routes are found without reading all
    routes:removed     org/app/id → "revision seconds" of routes that are gone
    routes:revision    the newest revision
    routes:tenants     org/app → tenant; routes:fragments:org/app → name → fragment

In a name `%` and `/` are written as in a URL. A `prefix` keeps sites apart that share a server, and holds a hash tag, as in
`{site1}`, on a cluster.

1. A change, a read and a scan are one script each, and a script is one step of Redis: nothing comes in between (S2, S4). All is
   compared before anything is written, and the log of Redis has the writes of a script as one transaction. Nobody else is
   served meanwhile: a change of 100,000 routes stops the server for seconds.
2. What was acknowledged survives this process, and a crash of the server as far as its configuration promises (S5): with
   `appendfsync always` all, with `everysec` all but the last second, and a replica that takes over may lack what did not
   reach it.
3. A revision is never below the server's clock in milliseconds, and so stays above all before it even if the newest were
   lost (S1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
)

from trunkline.core.errors import Invalid, Retryable, Terminal
from trunkline.core.jsoncodec import dumps, loads
from trunkline.db.away import in_one_line
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.storage import redis_scripts
from trunkline.routes.storage.apart import apart
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

_REFUSED = (AuthenticationError, NoPermissionError)
_AWAY = (ConnectionError, TimeoutError, BusyLoadingError, ReadOnlyError, OutOfMemoryError, OSError)
# It runs somebody's long script, cannot write its log, or lacks replicas.
_PASSING = ("BUSY ", "MISCONF ", "NOREPLICAS ")
_WHATEVER = -1
_NO_TENANT = 2
_AFTER_SLASH = "0"
_strings = msgspec.msgpack.Decoder(list[str])
_packed = msgspec.msgpack.encode


class _Record(msgspec.Struct):
    revision: int
    created: float
    modified: float
    hash: str
    notes: dict[str, Any]


class _Stamp(msgspec.Struct):
    revision: int
    hash: str


class _Outcome(msgspec.Struct, array_like=True):
    """`others`: place, revision, created and modified of put routes that were there before."""

    revision: float
    moment: float
    others: list[tuple[float, float, float, float]]


class _KeptTenant(msgspec.Struct):
    events_per_second: float | None
    clients: tuple[str, ...]
    open_events: bool
    modified: float


class _KeptFragment(msgspec.Struct):
    body: dict[str, Any]
    modified: float


_record = msgspec.json.Decoder(_Record).decode
_stamp = msgspec.json.Decoder(_Stamp).decode
_outcome = msgspec.msgpack.Decoder(_Outcome).decode
_kept_tenant = msgspec.json.Decoder(_KeptTenant).decode
_kept_fragment = msgspec.json.Decoder(_KeptFragment).decode


class RedisStorage:
    def __init__(self, url: str, prefix: str = "", remember: float = REMEMBER) -> None:
        self._prefix, self._remember = prefix, remember
        self._keys = [prefix + key for key in redis_scripts.KEYS]
        self._tenants = prefix + "routes:tenants"
        # With protocol 2 the client looks whether a connection was closed while it rested; with 3 it does not.
        self._redis: Redis = Redis.from_url(
            url, protocol=2, client_name="trunkline-routes", retry=Retry(NoBackoff(), 0), socket_connect_timeout=5,
            socket_timeout=30,
            socket_keepalive=True,
        )  # fmt: skip
        register = self._redis.register_script
        self._change, self._read = register(redis_scripts.CHANGE), register(redis_scripts.READ)
        self._scan, self._remove_tenant = register(redis_scripts.SCAN), register(redis_scripts.REMOVE_TENANT)

    async def open(self) -> None:
        with self._told():
            await self._redis.ping()

    async def close(self) -> None:
        await self._redis.aclose()

    async def read(self, keys: Sequence[RouteKey], known: Mapping[str, Body] = NONE_KNOWN) -> dict[RouteKey, RouteConfig]:
        with self._told():
            fields = _packed([_field(key.tenant.org, key.tenant.app, key.id) for key in keys])
        return {route.key: route for route in await self._routes(fields)}

    async def bodies(self, hashes: Sequence[str]) -> dict[str, Body]:
        if not hashes:
            return {}
        with self._told():
            found = await self._redis.hmget(self._prefix + "routes:configs", list(hashes))
        return {hash: loads(body) for hash, body in zip(hashes, found, strict=True) if body is not None}

    async def of_tenant(self, tenant: Tenant, after: str = "", most: int | None = None) -> list[RouteConfig]:
        """Reads all of the tenant: fields are in order as they are written, which is not that of the ids."""
        found = [route for route in await self._routes(*_range(tenant)) if route.key.id > after]
        return sorted(found, key=lambda route: route.key.id)[:most]

    async def scan(self) -> Scan:
        with self._told():
            revision, routes, removed = await self._scan(self._keys, [self._remember])
        listed, gone = _strings.decode(routes), _strings.decode(removed)
        return await apart((len(listed) + len(gone)) // 2, _scanned, int(revision), listed, gone)

    async def newer(self, revision: int) -> Scan:
        """Redis cannot ask for a part of a hash: if anything is newer, all is read."""
        with self._told():
            now = int(await self._redis.get(self._prefix + "routes:revision") or 0)
        if now <= revision:
            return Scan(now, [], {})
        scan = await self.scan()
        removed = {key: gone for key, gone in scan.removed.items() if gone > revision}
        return Scan(scan.revision, [line for line in scan.routes if line.revision > revision], removed)

    async def change(self, changes: Sequence[Change]) -> dict[RouteKey, RouteConfig]:
        written = await apart(len(changes), write_down, changes)
        lines = await apart(len(changes), _lines, written)
        with self._told():
            must = [_field(tenant.org, tenant.app) for tenant in written.tenants]
            made, *told = await self._change(self._keys, [_packed(lines), _packed(written.bodies), _packed(must)])
        if made == _NO_TENANT:
            raise NoSuchTenant(written.tenants[told[0] - 1])
        if not made:
            change, found = changes[told[0] - 1], int(told[1])
            raise conflict(change.key, change.expect or 0, found)
        return await apart(len(changes), _as_changed, written, _outcome(told[0]))

    async def tenants(self) -> list[TenantConfig]:
        with self._told():
            found = await self._redis.hgetall(self._tenants)
        kept = {Tenant(*_names(_text(field))): text for field, text in found.items()}
        return [_tenant(tenant, kept[tenant]) for tenant in sorted(kept)]

    async def tenant(self, tenant: Tenant) -> TenantConfig | None:
        with self._told():
            text = await self._redis.hget(self._tenants, _field(tenant.org, tenant.app))
        return _tenant(tenant, text) if text else None

    async def put_tenant(self, config: TenantConfig) -> TenantConfig:
        check_tenant(config)
        with self._told():
            kept = _KeptTenant(config.events_per_second, config.clients, config.open_events, await self._now())
            await self._redis.hset(self._tenants, _field(config.tenant.org, config.tenant.app), msgspec.json.encode(kept))
        return msgspec.structs.replace(config, modified=kept.modified)

    async def remove_tenant(self, tenant: Tenant) -> bool:
        keys, words = [*self._keys, self._fragments(tenant)], [_field(tenant.org, tenant.app), *_range(tenant)]
        with self._told():
            done = await self._remove_tenant(keys, words)
        if done < 0:
            raise has_routes(tenant, -done)
        return bool(done)

    async def fragments(self, tenant: Tenant) -> list[Fragment]:
        with self._told():
            found = await self._redis.hgetall(self._fragments(tenant))
        kept = {_text(name): text for name, text in found.items()}
        return [_fragment(tenant, name, kept[name]) for name in sorted(kept)]

    async def fragment(self, tenant: Tenant, name: str) -> Fragment | None:
        with self._told():
            text = await self._redis.hget(self._fragments(tenant), name)
        return _fragment(tenant, name, text) if text else None

    async def put_fragment(self, fragment: Fragment) -> Fragment:
        body = loads(fragment_text(fragment))
        with self._told():
            kept = _KeptFragment(body, await self._now())
            await self._redis.hset(self._fragments(fragment.tenant), fragment.name, msgspec.json.encode(kept))
        return Fragment(fragment.tenant, fragment.name, body, kept.modified)

    async def remove_fragment(self, tenant: Tenant, name: str) -> bool:
        with self._told():
            return bool(await self._redis.hdel(self._fragments(tenant), name))

    def _fragments(self, tenant: Tenant) -> str:
        return f"{self._prefix}routes:fragments:{_field(tenant.org, tenant.app)}"

    async def _now(self) -> float:
        seconds, micros = await self._redis.time()
        return float(f"{seconds}.{micros:06d}")

    async def _routes(self, *fields: bytes | str) -> list[RouteConfig]:
        with self._told():
            found, texts = await self._read(self._keys, list(fields))
        routes = _strings.decode(found)
        return await apart(len(routes) // 2, _as_read, routes, _strings.decode(texts))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except _REFUSED as error:
            raise Terminal("the storage of routes in Redis", in_one_line(error), "give it a user that may") from None
        except _AWAY as error:
            raise Retryable("the storage of routes in Redis", in_one_line(error), "see that it runs, then ask again") from None
        except ResponseError as error:
            if not str(error).startswith(_PASSING):
                raise
            raise Retryable("the storage of routes in Redis", in_one_line(error), "see how it does, then ask again") from None
        except UnicodeEncodeError as error:
            raise Invalid("the storage of routes", in_one_line(error), "ask with names that are plain text") from None


def _text(word: bytes | str) -> str:
    return word.decode() if isinstance(word, bytes) else word


def _field(*names: str) -> str:
    return "/".join(name.replace("%", "%25").replace("/", "%2F") for name in names)


def _names(field: str) -> list[str]:
    names = field.split("/")
    return [name.replace("%2F", "/").replace("%25", "%") for name in names] if "%" in field else names


def _range(tenant: Tenant) -> tuple[str, str]:
    field = _field(tenant.org, tenant.app)
    return f"[{field}/", f"({field}{_AFTER_SLASH}"


def _key_maker() -> Callable[[str], RouteKey]:
    """Keys of one tenant share it."""
    tenant_of = cache(Tenant)

    def key_of(field: str) -> RouteKey:
        org, app, id = _names(field)
        return RouteKey(tenant_of(org, app), id)

    return key_of


def _pairs(flat: list[str]) -> Iterator[tuple[str, str]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _as_read(found: list[str], texts: list[str]) -> list[RouteConfig]:
    bodies = {hash: loads(body) for hash, body in _pairs(texts)}
    key_of = _key_maker()
    records = ((key_of(field), _record(text)) for field, text in _pairs(found))
    return [RouteConfig(key, r.hash, bodies[r.hash], r.notes, r.revision, r.created, r.modified) for key, r in records]


def _scanned(revision: int, routes: list[str], removed: list[str]) -> Scan:
    return Scan(revision, _listed(routes), _removed(removed))


def _listed(flat: list[str]) -> list[Listed]:
    key_of = _key_maker()
    stamped = ((key_of(field), _stamp(text)) for field, text in _pairs(flat))
    return [Listed(key, stamp.hash, stamp.revision) for key, stamp in stamped]


def _removed(flat: list[str]) -> dict[RouteKey, int]:
    key_of = _key_maker()
    return {key_of(field): int(told.split()[0]) for field, told in _pairs(flat)}


def _lines(written: Written) -> list[tuple[str, str, str, int]]:
    """As the script wants them; two equal records have equal texts."""
    quoted = {hash: dumps(hash).decode() for hash in written.bodies}
    return [
        (
            _field(change.key.tenant.org, change.key.tenant.app, change.key.id),
            hash,
            f'"hash":{quoted[hash]},"notes":{notes}' if hash else "",
            _WHATEVER if change.expect is None else change.expect,
        )
        for change, hash, notes in zip(written.changes, written.hashes, written.notes, strict=True)
    ]


def _as_changed(written: Written, made: _Outcome) -> dict[RouteKey, RouteConfig]:
    own = {int(place) - 1: (int(revision), created, modified) for place, revision, created, modified in made.others}
    return routes_as_put(written, (int(made.revision), made.moment, made.moment), own)


def _tenant(tenant: Tenant, text: bytes | str) -> TenantConfig:
    kept = _kept_tenant(text)
    return TenantConfig(tenant, kept.events_per_second, kept.clients, kept.open_events, kept.modified)


def _fragment(tenant: Tenant, name: str, text: bytes | str) -> Fragment:
    kept = _kept_fragment(text)
    return Fragment(tenant, name, kept.body, kept.modified)
