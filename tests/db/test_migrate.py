"""Migrations: once, in order, under one lock, and never a changed file."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql

from trunkline.core.errors import Terminal
from trunkline.db.embedded import EmbeddedPostgres
from trunkline.db.migrate import migrate


@pytest.fixture
def empty(postgres: EmbeddedPostgres, make_database: Callable[..., str]) -> str:
    """A database that nothing was migrated into."""
    dsn = make_database()
    with psycopg.connect(dsn) as conn:
        conn.execute("DROP SCHEMA site CASCADE")
    return dsn


def recorded(dsn: str) -> list[tuple[str, int, str]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute("SELECT part, number, name FROM site.migration ORDER BY applied_at, part, number").fetchall()


def test_a_second_run_applies_nothing(empty: str) -> None:
    first = migrate(empty, "queues")
    assert first[0] == "db/001_lease.sql"
    assert "queues/001_send.sql" in first
    assert first.index("queues/001_send.sql") < first.index("queues/002_receive.sql")
    before = recorded(empty)
    assert migrate(empty, "queues") == []
    assert recorded(empty) == before


def test_a_part_can_be_added_later(empty: str) -> None:
    assert migrate(empty) == ["db/001_lease.sql", "db/002_lease_owner.sql"]
    added = migrate(empty, "queues")
    assert added
    assert all(name.startswith("queues/") for name in added)


def test_of_two_that_start_together_one_migrates(empty: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(lambda _: migrate(empty, "queues"), range(4)))
    worked = [names for names in applied if names]
    assert len(worked) == 1
    assert len(recorded(empty)) == len(worked[0])


def test_a_file_that_changed_since_is_refused_and_nothing_is_applied(empty: str) -> None:
    migrate(empty)
    with psycopg.connect(empty) as conn:
        conn.execute("UPDATE site.migration SET checksum = 'another'")
    with pytest.raises(Terminal, match="another text") as refused:
        migrate(empty, "queues")
    assert refused.value.what == "migration db/001_lease.sql"
    assert {part for part, _, _ in recorded(empty)} == {"db"}


def test_a_file_that_fails_leaves_nothing_behind(empty: str) -> None:
    with psycopg.connect(empty) as conn:
        conn.execute(sql.SQL("CREATE SCHEMA queues"))  # in the way of what the part wants to make
    with pytest.raises(psycopg.errors.DuplicateSchema):
        migrate(empty, "queues")
    with psycopg.connect(empty) as conn:
        assert conn.execute("SELECT to_regclass('site.lease')").fetchone() == (None,)
