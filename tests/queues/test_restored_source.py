"""A source that was restored while one of its destinations was ahead, and trims what it wrote anew before that one returns."""

from __future__ import annotations

import psycopg
from queue_site import APP, Site

from trunkline.core.ids import Position
from trunkline.queues.acks import acknowledge, acknowledge_base
from trunkline.queues.log import PostgresLog
from trunkline.queues.retention import Keep, Retention
from trunkline.trunk.log import Applied
from trunkline.trunk.wants import open_subscription

# A slot with any row in it is large already: every step leaves it.
LONG = Keep(hours=1000.0, bytes=16 * 16_384, unacknowledged=1000)
NOTHING = Keep(hours=1e-9, bytes=16 * 16_384, unacknowledged=1000)
AT_200_BEFORE = Position(200, 77)
"""Where the destination stands, by the log that was lost."""


def test_h11_a_position_of_a_lost_history_is_a_gap_also_where_its_mark_was_trimmed(site: Site) -> None:
    site.do("INSERT INTO queues.site (name) VALUES ('me')")
    grant = site.acquire(600)
    stamper, log, conn = site.stamper(grant), PostgresLog(site.pool()), site.connect()

    def send(count: int, *to: str) -> Position:
        with psycopg.connect(site.dsn) as app:
            APP.transmit_many(app, [b"x"] * count, to)
        return stamper.round().head

    def step(keep: Keep) -> None:
        with log.backlog() as backlog:
            Retention(keep, own="me").step(conn, grant, backlog)

    def gaps(at: Position) -> dict[str, tuple[str, ...]]:
        return open_subscription(log, {"hub": Applied(log.log_id, {"app": at})}).gaps

    # restored to 150, which is what the destination is known to have; 160 is written anew for it
    acknowledge(conn, "hub", "app", 1, send(150, "hub", "shop"))
    conn.commit()
    send(9, "shop")
    send(1, "hub")
    send(90, "shop")
    step(LONG)
    head = send(50, "shop")
    step(NOTHING)
    assert (log.lowest().seq, dict(log.trimmed_for("hub")), log.mark_at(200)) == (250, {"app": 160}, None)
    assert gaps(AT_200_BEFORE) == {"hub": ("app",)}, "160 is another one than it has"
    assert gaps(log.lowest()) == gaps(head) == {}, "these are of this log"
    acknowledge_base(conn, "hub", "app", head)
    conn.commit()
    assert gaps(head) == {}


def test_h11_who_had_acknowledged_all_that_was_trimmed_goes_on_below_it(site: Site) -> None:
    """Nothing was written anew for it: whatever it says of what is gone, it lacks nothing."""
    site.do("INSERT INTO queues.site (name) VALUES ('me')")
    grant = site.acquire(600)
    stamper, log, conn = site.stamper(grant), PostgresLog(site.pool()), site.connect()
    with psycopg.connect(site.dsn) as app:
        APP.transmit(app, b"x", ["hub"])
    acknowledge(conn, "hub", "app", 1, stamper.round().head)
    conn.execute("INSERT INTO queues.needs_snapshot (destination, client, over_cap) VALUES ('hub', 'app', true)")
    conn.commit()
    with psycopg.connect(site.dsn) as app:
        APP.transmit_many(app, [b"x"] * 200, ["shop"])
    stamper.round()
    with log.backlog() as backlog:
        Retention(LONG, own="me").step(conn, grant, backlog)
    with psycopg.connect(site.dsn) as app:
        APP.transmit(app, b"x", ["shop"])
    stamper.round()
    with log.backlog() as backlog:
        Retention(NOTHING, own="me").step(conn, grant, backlog)
    assert log.lowest().seq == 201
    assert open_subscription(log, {"hub": Applied(log.log_id, {"app": Position(200, 77)})}).gaps == {}
