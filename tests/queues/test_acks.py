"""How far destinations say they are: H12."""

from __future__ import annotations

from queue_site import Site

from trunkline.core.ids import Position
from trunkline.queues.acks import acknowledge, acknowledge_base, acknowledge_many, acknowledged, generations


def test_many_positions_of_a_destination_are_one_statement_and_each_only_grows(site: Site) -> None:
    conn = site.connect()
    acknowledge_many(conn, "hub", 3, {"app": Position(10, 1), "audit": Position(20, 2)})
    acknowledge_many(conn, "hub", 3, {"app": Position(9, 9), "audit": Position(21, 3)})
    acknowledge_many(conn, "hub", 3, {})
    assert acknowledged(conn) == {("hub", "app"): Position(10, 1), ("hub", "audit"): Position(21, 3)}


def test_h12_a_newer_generation_replaces_also_by_a_lower_position_and_an_older_one_is_not_heard(site: Site) -> None:
    conn = site.connect()
    acknowledge(conn, "hub", "app", 3, Position(10, 1))
    acknowledge(conn, "hub", "app", 4, Position(2, 7))
    assert acknowledged(conn) == {("hub", "app"): Position(2, 7)}
    acknowledge(conn, "hub", "app", 3, Position(11, 1))
    assert acknowledged(conn) == {("hub", "app"): Position(2, 7)}
    assert generations(conn) == {"hub": 4}


def test_h18_an_applied_snapshot_counts_as_acknowledged_at_its_base_in_the_generation_that_spoke_last(site: Site) -> None:
    conn = site.connect()
    conn.execute("INSERT INTO queues.needs_snapshot (destination, client, over_cap) VALUES ('hub', 'app', true)")
    acknowledge(conn, "hub", "app", 4, Position(2, 7))
    acknowledge_base(conn, "hub", "app", Position(50, 5))
    acknowledge_base(conn, "hub", "app", Position(40, 4))
    acknowledge_base(conn, "shop", "app", Position(50, 5))
    assert acknowledged(conn) == {("hub", "app"): Position(50, 5), ("shop", "app"): Position(50, 5)}
    assert generations(conn) == {"hub": 4, "shop": 0}
    assert conn.execute("SELECT count(*) FROM queues.needs_snapshot").fetchone() == (0,)
