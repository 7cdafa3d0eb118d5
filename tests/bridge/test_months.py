"""Partitions by month: no row is ever refused for its date, and none is lost when its month is made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime

import psycopg
import pytest
from fleet_words import Fleet, policy_event

from trunkline.bridge.months import (
    AHEAD,
    BEHIND,
    BY_MONTH,
    delete_old,
    drop_old,
    ensure_months,
    ensure_partitions,
    month_of,
    shifted,
)
from waiting import eventually

TODAY = date(2026, 1, 31)


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    return make_databases("queues", "bridge")


@pytest.fixture
def fleet(database: str) -> Iterator[Fleet]:
    """Without any month."""
    with psycopg.connect(database) as conn:
        fleet = Fleet(conn)
        for name in _partitions(fleet) - {one.rest for one in BY_MONTH.values()}:
            conn.execute(f"DROP TABLE {name}")
        conn.commit()
        yield fleet


def _partitions(fleet: Fleet) -> set[str]:
    query = """
        SELECT c.oid::regclass::text FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
         WHERE i.inhparent IN (SELECT partrelid FROM pg_partitioned_table)
    """
    return {name for (name,) in fleet.rows(query)}


def _store(fleet: Fleet, *times: str) -> None:
    """As they would be stored while no month is to be had."""
    for number, time in enumerate(times):
        fleet.conn.execute(
            "INSERT INTO fleet.policy_event VALUES ('h1', %s, 1, %s, '', '', '', NULL, 'P1', 'compliant', 'c1', '', now())",
            (f"e{number}", time),
        )
    fleet.conn.commit()


def _places(fleet: Fleet) -> dict[str, str]:
    query = "SELECT event_name, tableoid::regclass::text FROM fleet.policy_event"
    return {name: table.removeprefix("fleet.policy_event_") for name, table in fleet.rows(query)}


@pytest.mark.parametrize(
    ("month", "by", "expected"),
    [
        (date(2026, 1, 1), -1, date(2025, 12, 1)),
        (date(2026, 12, 1), 1, date(2027, 1, 1)),
        (date(2026, 3, 1), -27, date(2023, 12, 1)),
        (date(2026, 3, 1), 0, date(2026, 3, 1)),
    ],
)
def test_months_are_shifted_over_the_ends_of_years(month: date, by: int, expected: date) -> None:
    assert shifted(month, by) == expected


def test_partitions_are_made_around_today_for_every_table_and_once(fleet: Fleet) -> None:
    made = ensure_partitions(fleet.conn, 1, TODAY)
    fleet.conn.commit()
    months = ("2025_12", "2026_01", "2026_02")
    assert made == [f"{table}_{month}" for table in BY_MONTH for month in months]
    assert _partitions(fleet) == {*made, *(f"{table}_other" for table in BY_MONTH)}
    assert ensure_partitions(fleet.conn, 1, TODAY) == []


def test_s36_a_month_is_made_although_the_default_partition_holds_its_rows(fleet: Fleet) -> None:
    _store(fleet, "2025-12-31T23:59:59Z", "2026-01-01T00:00:00Z", "2026-01-31T23:59:59.999999Z", "2026-02-01T00:00:00Z")
    assert set(_places(fleet).values()) == {"other"}
    ensure_months(fleet.conn, "fleet.policy_event", [date(2026, 1, 17)], TODAY)
    fleet.conn.commit()
    assert _places(fleet) == {"e0": "other", "e1": "2026_01", "e2": "2026_01", "e3": "other"}
    _store(fleet, "2026-01-05T00:00:00Z")
    with pytest.raises(psycopg.errors.UniqueViolation):  # the key holds in the new one, too
        _store(fleet, "2026-01-05T00:00:00Z")


def test_bounds_are_of_utc_whatever_the_session_says(fleet: Fleet) -> None:
    fleet.conn.execute("SET TIME ZONE 'Pacific/Auckland'")
    ensure_partitions(fleet.conn, 0, TODAY)
    _store(fleet, "2026-01-01T00:00:00Z", "2026-01-31T23:59:59Z", "2025-12-31T23:59:59Z")
    assert _places(fleet) == {"e0": "2026_01", "e1": "2026_01", "e2": "other"}


def test_a_wrong_clock_makes_no_tables(fleet: Fleet) -> None:
    before = _partitions(fleet)
    far = [shifted(month_of(TODAY), -BEHIND - 1), shifted(month_of(TODAY), AHEAD + 1), date(1, 1, 1), date(9999, 12, 31)]
    assert ensure_months(fleet.conn, "fleet.policy_event", far, TODAY) == []
    assert _partitions(fleet) == before


def test_s36_while_the_locks_are_not_to_be_had_events_are_stored_all_the_same(fleet: Fleet, database: str) -> None:
    """A reader holds the default partition; the month is made with the next events, and takes the first ones in."""
    now = datetime.now(UTC)
    month = f"{now:%Y_%m}"
    with psycopg.connect(database) as reader:
        reader.execute("SELECT count(*) FROM fleet.policy_event_other")
        fleet.send("h1", "policy-events", [policy_event("e0", "Compliant", now.isoformat())])
        assert _places(fleet) == {"e0": "other"}
        reader.rollback()
    fleet.send("h1", "policy-events", [policy_event("e1", "NonCompliant", now.isoformat())])
    assert _places(fleet) == {"e0": month, "e1": month}
    assert fleet.rows("SELECT state, changes FROM fleet.compliance_history") == [("non_compliant", 1)]


def test_making_a_month_leaves_the_lock_timeout_as_it_was(fleet: Fleet) -> None:
    fleet.conn.execute("SET lock_timeout = '7s'")
    ensure_partitions(fleet.conn, 0, TODAY)
    assert fleet.conn.execute("SHOW lock_timeout").fetchone() == ("7s",)


def test_old_months_go_with_what_the_default_partition_has_of_them(fleet: Fleet) -> None:
    for month in (date(2024, 6, 1), date(2024, 7, 1), date(2025, 12, 1)):
        ensure_months(fleet.conn, "fleet.policy_event", [month], TODAY)
    times = ["2024-06-30T23:59:59Z", "2024-07-01T00:00:00Z", "2001-01-01T00:00:00Z", "2025-11-01T00:00:00Z"]
    _store(fleet, *times)
    assert _places(fleet) == {"e0": "2024_06", "e1": "2024_07", "e2": "other", "e3": "other"}
    assert delete_old(fleet.conn, 18, TODAY) == 1
    assert drop_old(fleet.conn, 18, TODAY) == ["fleet.policy_event_2024_06"]
    fleet.conn.commit()
    assert _places(fleet) == {"e1": "2024_07", "e3": "other"}


def test_an_old_month_that_is_being_read_goes_the_next_time_and_nobody_waits_behind_it(fleet: Fleet, database: str) -> None:
    for table in ("fleet.policy_event", "fleet.cluster_event"):
        ensure_months(fleet.conn, table, [date(2024, 6, 1)], TODAY)
    fleet.conn.commit()
    fleet.conn.execute("SET statement_timeout = '30s'")
    with psycopg.connect(database) as reader:
        reader.execute("SELECT count(*) FROM fleet.policy_event")
        assert drop_old(fleet.conn, 18, TODAY) == ["fleet.cluster_event_2024_06"]
        fleet.conn.commit()
    assert drop_old(fleet.conn, 18, TODAY) == ["fleet.policy_event_2024_06"]
    fleet.conn.commit()


def test_two_that_need_one_month_at_once_both_store_their_events(fleet: Fleet, database: str) -> None:
    now = datetime.now(UTC)
    with psycopg.connect(database) as conn, psycopg.connect(database, autocommit=True) as watcher:
        other = Fleet(conn)
        ensure_months(fleet.conn, "fleet.policy_event", [now.date()])  # made, and not committed
        sending = threading.Thread(
            target=other.send, args=("h2", "policy-events", [policy_event("e2", "Compliant", now.isoformat())])
        )
        sending.start()
        blocked = "SELECT pg_blocking_pids(%s) <> '{}'"
        eventually(lambda: watcher.execute(blocked, (conn.info.backend_pid,)).fetchone() == (True,))
        fleet.conn.commit()
        sending.join(30)
        fleet.send("h1", "policy-events", [policy_event("e1", "Compliant", now.isoformat())])
    assert set(_places(fleet)) == {"e1", "e2"}
