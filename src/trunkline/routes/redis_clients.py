"""A client of the Redis server that a plugin names, and which of its errors pass by themselves."""

from __future__ import annotations

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
    TimeoutError,
)

from trunkline.core.errors import Invalid
from trunkline.routes.clusters import RedisServer

AWAY = (ConnectionError, TimeoutError, BusyLoadingError, ReadOnlyError, OutOfMemoryError, OSError)
_REFUSED = (AuthenticationError, NoPermissionError)  # the first is a kind of lost connection to the client
_PASSING = ("BUSY ", "MISCONF ", "NOREPLICAS ", "TRYAGAIN ", "CLUSTERDOWN ")
ANSWER_SECONDS = 5.0
_PORT = 6379


def redis_client(server: RedisServer, name: str) -> Redis:
    """One that says when its connection is lost, and does not mend it in silence."""
    host, port = _address(server.endpoint.reveal())
    return Redis(
        host=host,
        port=port,
        db=server.database,
        username=server.username.reveal() or None,
        password=server.password.reveal() if server.password else None,
        ssl=server.tls_enable,
        client_name=name,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
    )


def _address(endpoint: str) -> tuple[str, int]:
    host, colon, port = endpoint.rpartition(":")
    if not colon:
        return endpoint, _PORT
    if not host or not port.isdigit():
        raise Invalid("endpoint of Redis", "it is not <host>:<port>", "write for example localhost:6379")
    return host.strip("[]"), int(port)


def passes(error: Exception) -> bool:
    """Whether the same may succeed later without anybody changing anything."""
    return not isinstance(error, _REFUSED) and (isinstance(error, AWAY) or str(error).startswith(_PASSING))
