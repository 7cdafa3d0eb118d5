"""The stamper's exported snapshot: H18 and H19."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from queue_site import APP, Site

from trunkline.core.errors import Fenced
from trunkline.core.ids import START, Position
from trunkline.queues.export import Exported
from waiting import eventually


def want(site: Site, *destinations: str) -> UUID:
    (request,) = site.ask(
        "INSERT INTO queues.request (client, destinations, reason) VALUES ('app', %s, 'first') RETURNING id",
        (list(destinations or ("hub",)),),
    )
    assert isinstance(request, UUID)
    return request


def in_snapshot(site: Site, snapshot: str, query: str) -> list[Any]:
    conn = site.connect(autocommit=True)
    conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    conn.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
    return [value for (value,) in conn.execute(query.encode())]


def write(site: Site, conn: psycopg.Connection[Any], value: str) -> None:
    """An application's row, and the message that says the same."""
    conn.execute("INSERT INTO account VALUES (%s)", (value,))
    APP.transmit(conn, value.encode(), ["hub"])


def commit(site: Site, *values: str) -> None:
    with psycopg.connect(site.dsn) as conn:
        for value in values:
            write(site, conn, value)


def kept(site: Site, exported: Exported) -> Exported:
    site.stack.callback(exported.close)
    return exported


def test_h19_snapshot_and_log_after_the_base_are_everything_once(site: Site) -> None:
    site.do("CREATE TABLE account (value text)")
    stamper = site.stamper()
    commit(site, "stamped")
    stamper.round()
    commit(site, "committed", "but not stamped")
    open_one = site.connect()
    write(site, open_one, "open")
    drawn = site.connect()
    write(site, drawn, "drawn")
    drawn.execute("SET CONSTRAINTS ALL IMMEDIATE")
    commit(site, "after a hole")

    exported = kept(site, stamper.export([want(site)]))
    commit(site, "later")
    open_one.commit()
    drawn.commit()
    stamper.round()
    state = in_snapshot(site, exported.snapshot, "SELECT value FROM account")
    assert sorted(state) == ["after a hole", "but not stamped", "committed", "stamped"]
    log = [payload.decode() for payload in site.logged()]
    assert sorted(log[: exported.base.seq]) == sorted(state)
    assert sorted(log[exported.base.seq :]) == ["drawn", "later", "open"]


def test_h19_a_backlog_of_many_rounds_is_stamped_before_the_snapshot_is_given(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.queues.stamper.ROUND_TRANSACTIONS", 2)
    for n in range(5):
        site.send(b"%d" % n)
    exported = kept(site, site.stamper().export([want(site)]))
    assert exported.base.seq == 5
    assert in_snapshot(site, exported.snapshot, "SELECT count(*) FROM queues.send_log") == [5]
    assert site.ask("SELECT count(*) FROM queues.stamp") == [3]


def test_h18_the_requests_are_ready_at_the_base_in_the_rounds_own_transaction(site: Site) -> None:
    grant = site.acquire()
    one, other, over = want(site), want(site, "shop"), want(site)
    site.do("UPDATE queues.request SET state = 'superseded' WHERE id = %s", (over,))
    site.send(b"1")
    exported = kept(site, site.stamper(grant, mark=lambda: 6).export([one, other, over]))
    assert exported.base == Position(1, 6)
    assert set(exported.requests) == {one, other}
    rows = site.ask("SELECT state, base, base_mark, snapshot, incarnation FROM queues.request WHERE id <> %s", (over,))
    assert rows == [("ready", 1, 6, exported.snapshot, grant.epoch)] * 2
    assert site.ask("SELECT state FROM queues.request WHERE id = %s", (over,)) == ["superseded"]
    xids = site.ask("SELECT xmin::text FROM queues.stamp UNION SELECT xmin::text FROM queues.request WHERE state = 'ready'")
    assert len(xids) == 1


def test_a_request_is_ready_also_where_there_is_nothing_to_stamp(site: Site) -> None:
    stamper = site.stamper()
    exported = kept(site, stamper.export([want(site)]))
    assert (exported.base, site.ask("SELECT base FROM queues.request")) == (START, [0])
    assert site.ask("SELECT count(*) FROM queues.stamp") == [0]


def test_destinations_that_join_while_the_round_runs_are_not_lost(site: Site) -> None:
    request = want(site)
    joins = [lambda: site.do("UPDATE queues.request SET destinations = '{hub,shop}'")]

    def mark() -> int:
        if joins:
            joins.pop()()
        return 8

    site.send(b"1")
    exported = kept(site, site.stamper(mark=mark).export([request]))
    assert exported.requests == (request,)
    assert site.ask("SELECT state, destinations, base FROM queues.request") == [("ready", ["hub", "shop"], 1)]


def test_the_snapshot_lasts_while_it_is_held_and_the_stamper_goes_on(site: Site) -> None:
    stamper = site.stamper()
    site.send(b"1")
    exported = stamper.export([want(site)])
    for n in range(3):
        site.send(b"%d" % n)
        assert stamper.round().stamped == 1
    assert in_snapshot(site, exported.snapshot, "SELECT count(*) FROM queues.send_log") == [1]
    assert exported.holder.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("0",)
    exported.close()
    with pytest.raises(psycopg.Error, match="snapshot"):
        in_snapshot(site, exported.snapshot, "SELECT 1")


def test_h01_under_a_lost_lease_nothing_is_exported(site: Site) -> None:
    grant = site.acquire()
    stamper = site.stamper(grant)
    request = want(site)
    site.take_over()
    with pytest.raises(Fenced):
        stamper.export([request])
    assert site.ask("SELECT state, base FROM queues.request") == [("wanted", None)]
    held = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'trunkline-snapshot' AND datname = %s"
    eventually(lambda: site.ask(held, (site.connect().info.dbname,)) == [0])
