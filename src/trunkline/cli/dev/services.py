"""The services there are, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trunkline.cli.dev.debian import Say


class Service(Protocol):
    log: Path

    @property
    def address(self) -> str: ...
    @property
    def pid(self) -> int | None: ...
    def start(self) -> object: ...
    def stop(self) -> None: ...
    def answers(self) -> bool: ...


@dataclass(frozen=True)
class Kind:
    """`prepare` makes what every such service of this machine needs, and says what takes long."""

    variable: str
    prepare: Callable[[Say], object]
    make: Callable[[Path], Service]


def _prepare_kafka(say: Say) -> None:
    from trunkline.cli.dev.kafka import install

    install(say)


def _make_kafka(folder: Path) -> Service:
    from trunkline.cli.dev.kafka import KafkaBroker

    return KafkaBroker(folder)


def _prepare_redis(say: Say) -> None:
    from trunkline.cli.dev.redis import find_redis

    find_redis(say)


def _make_redis(folder: Path) -> Service:
    from trunkline.cli.dev.redis import RedisServer

    return RedisServer(folder)


def _prepare_postgres(_: Say) -> None:
    from trunkline.db.embedded import binaries

    binaries()


def _make_postgres(folder: Path) -> Service:
    from trunkline.cli.dev.postgres import PostgresServer

    return PostgresServer(folder)


KINDS: Mapping[str, Kind] = {
    "kafka": Kind("KAFKA_BOOTSTRAP", _prepare_kafka, _make_kafka),
    "redis": Kind("REDIS_URL", _prepare_redis, _make_redis),
    "postgres": Kind("DATABASE_URL", _prepare_postgres, _make_postgres),
}
