"""The quarantine has a bound, whatever a sender does."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from filled_bridge import FilledBridge
from trunkline.bridge.clearance import clear_superseded, drop_settled, drop_surplus
from trunkline.bridge.keeper import Keeper
from trunkline.bridge.shipped import SHIPPED
from trunkline.core.clock import ManualClock
from trunkline.core.config import BridgeConfig
from trunkline.db.lease import acquire

DAY = 86_400.0


@pytest.fixture(scope="module")
def dsn(make_databases: Callable[..., str]) -> str:
    return make_databases("queues", "bridge")


@pytest.fixture
def hub(dsn: str) -> FilledBridge:
    filled = FilledBridge(dsn)
    filled.do("DELETE FROM bridge.quarantine")
    filled.do("DELETE FROM site.lease")
    return filled


def settled(hub: FilledBridge, id: int, days: float) -> None:
    hub.do("UPDATE bridge.quarantine SET settled_at = now() - %s * interval '1 day' WHERE id = %s", days, id)


def left(hub: FilledBridge) -> dict[int, str]:
    return dict(hub.do("SELECT id, state FROM bridge.quarantine ORDER BY id"))


def test_what_was_dealt_with_goes_after_some_days_and_what_is_open_stays(hub: FilledBridge) -> None:
    old, young = (hub.aside("a", "clusters", (1, n), "why", state="dropped", ago=60 * DAY) for n in (1, 2))
    is_open = hub.aside("a", "events", (1, 1), "why", mode="append", ago=60 * DAY)
    settled(hub, old, 30.1)
    settled(hub, young, 29.9)
    with psycopg.connect(hub.dsn) as conn:
        assert drop_settled(conn, 30) == 1
    assert left(hub) == {young: "dropped", is_open: "open"}


def test_of_each_site_and_type_the_newest_stay_and_what_is_open_before_what_was_dealt_with(hub: FilledBridge) -> None:
    of_a = [hub.aside("a", "events", (1, n), "why", mode="append") for n in range(3)]
    done = hub.aside("a", "events", (1, 9), "why", mode="append", state="retried")
    none = [hub.aside("a", None, None, "no bundle", mode=None) for _ in range(3)]
    of_b = hub.aside("b", "events", (1, 1), "why", mode="append")
    with psycopg.connect(hub.dsn) as conn:
        assert drop_surplus(conn, 2) == (3, ["a"])
    assert set(left(hub)) == {*of_a[1:], *none[1:], of_b}
    assert done not in left(hub)


def test_a_complete_bundle_is_cleared_by_a_newer_one_that_failed_too(hub: FilledBridge) -> None:
    first, newest, late = (hub.aside("a", "clusters", (1, n), "why") for n in (1, 3, 2))
    other = hub.aside("b", "clusters", (1, 1), "why")
    changes = [hub.aside("a", "managed-clusters", (1, n), "why", mode="hybrid") for n in (1, 2)]
    with psycopg.connect(hub.dsn) as conn:
        assert clear_superseded(conn) == 2
    assert left(hub) == {first: "cleared", newest: "open", late: "cleared", other: "open", **dict.fromkeys(changes, "open")}


def test_rows_that_somebody_deals_with_are_left_for_the_next_time(hub: FilledBridge) -> None:
    held, free = (hub.aside("a", "events", (1, n), "why", mode="append") for n in (1, 2))
    with psycopg.connect(hub.dsn) as operator, psycopg.connect(hub.dsn) as conn:
        operator.execute("SELECT FROM bridge.quarantine WHERE id = %s FOR UPDATE", (held,))
        assert drop_surplus(conn, 0)[0] == 1
        conn.commit()
    assert list(left(hub)) == [held]
    assert free not in left(hub)


def test_the_keeper_does_all_that_as_it_is_configured(hub: FilledBridge) -> None:
    for n in range(1, 5):
        hub.aside("a", "clusters", (1, n), "why")
        hub.aside("a", None, None, "no bundle", mode=None)
    settled(hub, hub.aside("a", "events", (1, 1), "why", mode="append", state="retried"), 3)
    with psycopg.connect(hub.dsn) as conn:
        grant = acquire(conn, "bridge", 600)
        assert grant is not None
        config = BridgeConfig(quarantine_days=2, quarantine_bundles=3)
        keeper = Keeper(hub.dsn, grant, SHIPPED, config, ManualClock(), {}, lambda: True, lambda: None)
        keeper.round(conn)
    assert sorted(left(hub).values()) == ["cleared", "cleared", "open", "open", "open", "open"]
