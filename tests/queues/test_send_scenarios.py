"""What the source keeps of a message, and which destination its log has it for."""

from __future__ import annotations

import os
from typing import Any

import psycopg
import pytest
from queue_site import APP, Site

from trunkline.queues.client import Message, QueueClient
from trunkline.queues.log import PostgresLog

KIB, MIB = 1 << 10, 1 << 20
MANY_SITES = [f"site_{n:03}-of-the-north-western-region" for n in range(100)]


def log_for(site: Site, destination: str) -> list[bytes]:
    return [e.payload for e in PostgresLog(site.pool()).read(0, 1000, {destination}).entries]


def change(conn: psycopg.Connection[Any], payload: bytes) -> None:
    """What an application does: its own row, and the message that tells of it."""
    conn.execute("UPDATE account SET amount = amount + 1 WHERE k = 1")
    APP.transmit(conn, payload, ["hub"])


def test_s01_a_message_and_the_applications_row_commit_together_or_not_at_all(site: Site) -> None:
    site.do("CREATE TABLE account AS SELECT 1 AS k, 0 AS amount")
    conn = site.connect()
    change(conn, b"p1")
    conn.commit()
    change(conn, b"p2")
    conn.rollback()
    stamper = site.stamper()
    assert [stamper.round().stamped for _ in range(3)] == [1, 0, 0]
    assert log_for(site, "hub") == [b"p1"]
    assert log_for(site, "shop") == []
    assert site.ask("SELECT amount FROM account") == [1]


def test_s03_each_destination_has_its_own_messages_in_their_order(site: Site) -> None:
    site.do("INSERT INTO queues.site (name) VALUES ('a'), ('b'), ('c')")
    conn = site.connect()
    APP.transmit_messages(conn, [Message(b"a", ["a"]), Message(b"ab", ["a", "b"]), Message(b"c", ["c"])])
    APP.transmit(conn, b"all", ["*"])
    conn.commit()
    site.stamper().round()
    assert log_for(site, "a") == [b"a", b"ab", b"all"]
    assert log_for(site, "b") == [b"ab", b"all"]
    assert log_for(site, "c") == [b"c", b"all"]


def test_two_tags_never_look_the_same(site: Site) -> None:
    site.do("INSERT INTO queues.site (name) VALUES ('a'), ('a_b')")
    conn = site.connect()
    QueueClient("b_c").transmit(conn, b"1", ["a"])
    QueueClient("c").transmit(conn, b"2", ["a_b"])
    conn.commit()
    assert sorted(site.ask("SELECT tag FROM queues.send_log_tags")) == ["lrq_logentry_a__b_c", "lrq_logentry_a_b__c"]


def stored_bytes(site: Site) -> int:
    """Heaps, their large values, and indexes."""
    (size,) = site.ask(
        "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class "
        "WHERE relkind = 'r' AND relnamespace IN ('queues'::regnamespace, 'trunkline'::regnamespace)"
    )
    return int(size)


def intern(site: Site) -> None:
    """A first message to all: its set has a number from the next round on."""
    site.do("INSERT INTO queues.site (name) SELECT unnest(%s::text[])", (MANY_SITES,))
    site.send(b"x", to=MANY_SITES)
    site.stamper().round()
    site.send(b"x", to=MANY_SITES)


def test_s02_a_large_payload_is_stored_once_for_three_destinations(site: Site) -> None:
    site.do("INSERT INTO queues.site (name) VALUES ('a'), ('b'), ('c')")
    site.send(os.urandom(4 * KIB))  # the tables' first pages
    before = stored_bytes(site)
    payload = os.urandom(MIB)
    site.send(payload, to=["c", "a", "b"])
    assert stored_bytes(site) - before < 1.1 * MIB
    assert site.ask("SELECT count(*) FROM queues.send_log WHERE octet_length(payload) = %s", (MIB,)) == [1]
    tags = {"lrq_logentry_hub_app", "lrq_logentry_a_app", "lrq_logentry_b_app", "lrq_logentry_c_app"}
    assert set(site.ask("SELECT tag FROM queues.send_log_tags")) == tags
    site.stamper().round()
    assert set(site.ask("SELECT tag FROM queues.send_log_tags")) == tags
    (of_it,) = site.ask(
        "SELECT array_agg(tag ORDER BY tag) FROM queues.send_log_tags JOIN queues.send_log USING (xid, id)"
        " WHERE octet_length(payload) = %s",
        (MIB,),
    )
    assert of_it == [f"lrq_logentry_{name}_app" for name in "abc"]
    assert [log_for(site, name) for name in "abc"] == [[payload]] * 3


@pytest.mark.parametrize(("size", "batch", "transactions", "bound"), [(MIB, 1, 4, 1.1), (KIB, 100, 10, 1.3)])
def test_s02_a_hundred_destinations_add_little_to_a_message(
    site: Site, size: int, batch: int, transactions: int, bound: float
) -> None:
    intern(site)
    before = stored_bytes(site)
    conn = site.connect()
    for _ in range(transactions):
        APP.transmit_many(conn, [os.urandom(size) for _ in range(batch)], MANY_SITES)
        conn.commit()
    assert site.ask("SELECT count(*) FROM queues.send_log WHERE destination_set IS NULL") == [1]
    assert stored_bytes(site) - before < transactions * batch * size * bound
