"""Fixtures on real parts: at most one server of each kind per run, one fresh database per test.

A server that cannot start skips its tests with the reason; with CI=true in the environment they fail.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import psycopg
import pytest
from hypothesis import settings
from psycopg import sql

from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.cli.dev.redis import RedisServer
from trunkline.core.errors import TrunklineError
from trunkline.db.embedded import EmbeddedPostgres
from trunkline.db.migrate import migrate
from trunkline.pipeline.session import Spark, open_session

_numbers = itertools.count(1)
SLOWEST = 15

# A process is killed in these tests, never the machine: the page cache survives, so fsync only costs time.
FAST = {"fsync": "off", "max_connections": "200"}

# A shell's background job ignores SIGINT, and so would all it starts: there would be no Ctrl-C to test.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow example on a busy machine is no failure; a test that hangs meets its own limit.
settings.register_profile("trunkline", deadline=None)
settings.load_profile("trunkline")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("TRUNKLINE_SOAK"):
        return
    skip = pytest.mark.skip(reason="a long run: make soak")
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The time each file took, fixtures included."""
    seconds: Counter[str] = Counter()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    if not seconds:
        return
    terminalreporter.section("seconds per file")
    for file, spent in seconds.most_common(SLOWEST):
        terminalreporter.write_line(f"{spent:8.1f}  {file}")
    rest = seconds.total() - sum(spent for _, spent in seconds.most_common(SLOWEST))
    if len(seconds) > SLOWEST:
        terminalreporter.write_line(f"{rest:8.1f}  {len(seconds) - SLOWEST} other files")
    terminalreporter.write_line(f"{seconds.total():8.1f}  in all")


class _Server(Protocol):
    def start(self) -> object: ...
    def stop(self) -> None: ...


@contextmanager
def _running(name: str, server: _Server) -> Iterator[None]:
    try:
        try:
            server.start()
        except TrunklineError as error:
            why = f"no {name} here: {error.why} (next: {error.next_step})"
            pytest.fail(why, pytrace=False) if os.environ.get("CI") == "true" else pytest.skip(why)
        yield
    finally:
        server.stop()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), FAST)
    with _running("Postgres", server):
        yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One broker per run: give your topics a prefix of their own, and close your clients."""
    server = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    with _running("Kafka", server):
        yield server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server per run: give your keys a prefix of their own, and close your clients."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    with _running("Redis", server):
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """One driver per run: a JVM takes seconds to start."""
    spark = open_session(tmp_path_factory.mktemp("spark"), "tests", fast_start=True)
    yield spark
    spark.stop()


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
