"""Kafka clients, kept in a process between batches: a new one costs connections, metadata and, for a producer, an id.

A client goes back only after a task that succeeded; after any other it is closed, for nobody knows what is left in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

# More than a worker needs at once; a query that is gone leaves its clients behind.
_MOST_KEPT = 4

Config = dict[str, Any]


class Client(Protocol):
    def close(self) -> object: ...


C = TypeVar("C", bound=Client)
_kept: dict[tuple[object, ...], Client] = {}


def configuration(bootstrap: str, own: Mapping[str, Any], given: Mapping[str, str]) -> Config:
    """`given` by the user goes before our own choice, but never changes what the guarantees stand on."""
    # A broker that comes back is to be found soon.
    return {"reconnect.backoff.max.ms": 1000, **given, **own, "bootstrap.servers": bootstrap, "log_level": 0}


@contextmanager
def borrowed(make: Callable[[Config], C], config: Config) -> Iterator[C]:
    name = (make, *sorted(config.items()))
    client: Any = _kept.pop(name, None)
    if client is None:
        client = make(config)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    _keep(name, client)


def _keep(name: tuple[object, ...], client: Client) -> None:
    replaced = _kept.pop(name, None)
    _kept[name] = client
    oldest = _kept.pop(next(iter(_kept))) if len(_kept) > _MOST_KEPT else None
    for one in (replaced, oldest):
        if one is not None:
            one.close()


def close_kept() -> None:
    while _kept:
        _kept.popitem()[1].close()
