"""A database restored into a younger server: two transactions must never be taken for one."""

from __future__ import annotations

import pytest
from queue_site import Site

from trunkline.core.errors import Fenced
from trunkline.core.ids import START, Position
from trunkline.queues.acks import acknowledge
from trunkline.queues.log import PostgresLog

_FUTURE = """
INSERT INTO queues.send_log (slot, xid, first, client, destinations, payload)
VALUES (0, (pg_current_xact_id()::text::bigint + 1000000)::text::xid8, true, 'app', '{hub}', 'of another server')
"""


def test_h11_a_log_with_transactions_yet_to_come_begins_anew_and_is_another_one(site: Site) -> None:
    grant = site.acquire()
    site.send(b"1", b"2")
    site.stamper(grant).round()
    before = PostgresLog(site.pool()).log_id
    site.do(_FUTURE)
    site.do("INSERT INTO queues.request (client, destinations, reason, state, base) VALUES ('app', '{hub}', 'gap', 'ready', 2)")
    with site.connect() as conn:
        acknowledge(conn, "hub", "app", 1, Position(2, 5))

    stamper = site.stamper(grant)
    log = PostgresLog(site.pool())
    assert log.log_id != before
    assert (log.head(), log.lowest(), dict(log.clients())) == (START, START, {})
    for table in ("send_log", "ticket", "stamp", "trimmed", "acknowledged", "needs_snapshot"):
        assert site.ask(f"SELECT count(*) FROM queues.{table}") == [0]
    assert site.ask("SELECT state, error FROM queues.request") == [("failed", "the log began anew")]
    site.send(b"new")
    assert stamper.round().head.seq == 1
    assert stamper.cursor.holes == ()
    assert site.logged() == [b"new"]


def test_an_ordinary_start_keeps_the_log(site: Site) -> None:
    grant = site.acquire()
    site.send(b"1")
    site.stamper(grant).round()
    before = PostgresLog(site.pool()).log_id
    open_one = site.open_transaction(b"open")
    site.stamper(grant).round()
    open_one.rollback()
    assert PostgresLog(site.pool()).log_id == before
    assert site.logged() == [b"1"]


def test_h01_only_the_holder_of_the_lease_begins_anew(site: Site) -> None:
    grant = site.acquire()
    site.take_over()
    site.do(_FUTURE)
    with pytest.raises(Fenced):
        site.stamper(grant)
    assert site.ask("SELECT count(*) FROM queues.send_log") == [1]
