"""The delta syncer that a configuration names: `postgres` (the site's own database), or the address of a Redis."""

from __future__ import annotations

from importlib.util import find_spec

from trunkline.core.errors import Invalid, Terminal
from trunkline.routes.sync.base import DeltaSyncer
from trunkline.routes.sync.postgres import PostgresSyncer


def syncer_at(where: str, database: str, instance: str, prefix: str = "") -> DeltaSyncer:
    """Not yet started. `database`: of the site. `prefix`: of the channels in a Redis that several sites share."""
    if where == "postgres":
        return PostgresSyncer(database, instance)
    if where.startswith(("redis://", "rediss://", "unix://")):
        return _over_redis(where, instance, prefix)
    raise Invalid("the sync of routes", f"there is none called {where.partition(':')[0]}", "write postgres or redis://…")


def _over_redis(url: str, instance: str, prefix: str) -> DeltaSyncer:
    if find_spec("redis") is None:
        raise Terminal("the sync of routes", "the client of Redis is not installed", "pip install redis")
    from trunkline.routes.sync.redis import RedisSyncer

    return RedisSyncer(url, instance, prefix)
