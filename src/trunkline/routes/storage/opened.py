"""The storage that a configuration names: `memory`, `postgres` (the site's own database), or the address of a Redis."""

from __future__ import annotations

from importlib.util import find_spec

from trunkline.core.errors import Invalid, Terminal
from trunkline.routes.storage.base import Storage
from trunkline.routes.storage.memory import MemoryStorage
from trunkline.routes.storage.postgres import PostgresStorage

_REDIS = ("redis://", "rediss://", "unix://")


def storage_at(where: str, database: str, prefix: str = "") -> Storage:
    """Not yet opened. `database`: of the site. `prefix`: of the keys in a Redis that several sites share."""
    if where == "memory":
        return MemoryStorage()
    if where == "postgres":
        return PostgresStorage(database)
    if where.startswith(_REDIS):
        return _in_redis(where, prefix)
    raise Invalid(
        "the storage of routes", f"there is none called {where.partition(':')[0]}", "write memory, postgres or redis://…"
    )


def _in_redis(url: str, prefix: str) -> Storage:
    if find_spec("redis") is None:
        raise Terminal("the storage of routes", "the client of Redis is not installed", "pip install redis")
    from trunkline.routes.storage.redis import RedisStorage

    return RedisStorage(url, prefix)
