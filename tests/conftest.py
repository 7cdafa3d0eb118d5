"""Fixtures on real parts: one Postgres server per run, one fresh database per test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql

from trunkline.db.embedded import EmbeddedPostgres
from trunkline.db.migrate import migrate

_numbers = itertools.count(1)

# A process is killed in these tests, never the machine: the page cache survives, so fsync only costs time.
FAST = {"fsync": "off", "max_connections": "200"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("TRUNKLINE_SOAK"):
        return
    skip = pytest.mark.skip(reason="a long run: make soak")
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), FAST) as server:
        yield server


def _databases(postgres: EmbeddedPostgres) -> Iterator[Callable[..., str]]:
    made: list[str] = []

    def make(*parts: str) -> str:
        name = f"t{next(_numbers)}"
        with psycopg.connect(postgres.dsn, autocommit=True) as conn:
            conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        made.append(name)
        dsn = postgres.dsn.replace("dbname=postgres", f"dbname={name}")
        migrate(dsn, *parts)
        return dsn

    yield make
    with psycopg.connect(postgres.dsn, autocommit=True) as conn:
        for name in made:
            conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def make_database(postgres: EmbeddedPostgres) -> Iterator[Callable[..., str]]:
    """`make_database("queues", "bridge")` → dsn of a fresh database with these parts migrated."""
    yield from _databases(postgres)


@pytest.fixture(scope="module")
def make_databases(postgres: EmbeddedPostgres) -> Iterator[Callable[..., str]]:
    """The same for a whole module."""
    yield from _databases(postgres)
