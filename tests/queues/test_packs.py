"""Many small messages of one call are kept as a few rows: what comes out of the log is what went in."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_site import APP, Site

from trunkline.core.errors import Invalid
from trunkline.queues.client import QueueClient, packed
from trunkline.queues.inspect import SEND_LOG, entries
from trunkline.queues.log import PostgresLog
from trunkline.queues.verify import verify

PAGE = 8192


def send(site: Site, *payloads: bytes) -> None:
    conn = site.connect()
    APP.transmit_many(conn, payloads, ["hub"])
    conn.commit()


def read(site: Site, destination: str = "hub") -> list[tuple[int, str, bytes]]:
    chunk = PostgresLog(site.pool()).read(0, 10_000, {destination})
    return [(m.seq, m.client, m.payload) for e in chunk.entries for m in e.apart()]


@settings(max_examples=200)
@given(st.lists(st.integers(0, 9_000).map(bytes), max_size=60))
def test_packs_are_the_messages_in_order(payloads: list[bytes]) -> None:
    starts, lasts, ends = packed(payloads)
    whole, found, first = b"".join(payloads), [], 0
    for start, last in zip(starts, lasts, strict=True):
        bounds = [0, *ends[first:last]]
        found += [whole[start + a : start + b] for a, b in pairwise(bounds)]
        assert last == first + 1 or bounds[-1] + 4 * (last - first) < PAGE - 200
        first = last
    assert found == payloads
    assert len(ends) == len(payloads)


def test_small_messages_fill_pages_and_come_out_one_by_one(site: Site) -> None:
    sent = [b"%d" % n * 300 for n in range(1000, 1100)]
    send(site, *sent)
    assert site.ask("SELECT count(*), sum(queues.messages(ends)) FROM queues.send_log") == [(17, 100)]
    site.stamper().round()
    assert site.ask("SELECT sum(pg_relation_size(reltoastrelid)) FROM pg_class WHERE relname ~ '^send_log_[0-9]+$'") == [0]
    assert read(site) == [(n, "app", payload) for n, payload in enumerate(sent, 1)]


def test_packs_stand_among_other_messages_in_their_order(site: Site) -> None:
    conn = site.connect()
    APP.transmit(conn, b"1", ["hub"])
    APP.transmit_many(conn, [b"2", b"", b"4" * 10_000, b"5", b"6"], ["hub"])
    QueueClient("late").transmit_many(conn, [b"7", b"8"], ["hub", "shop"])
    APP.transmit_many(conn, [b"9", b"10"], ["shop"])
    APP.transmit_many(conn, [b"11"], ["hub"], [{"a": "b"}])
    conn.commit()
    site.stamper().round()
    app = [b"1", b"2", b"", b"4" * 10_000, b"5", b"6"]
    expected = [*((n, "app", p) for n, p in enumerate(app, 1)), (7, "late", b"7"), (8, "late", b"8"), (11, "app", b"11")]
    assert read(site) == expected
    assert read(site, "shop") == [(7, "late", b"7"), (8, "late", b"8"), (9, "app", b"9"), (10, "app", b"10")]
    assert dict(site.ask("SELECT name, first_seq FROM queues.client")) == {"app": 1, "late": 7}


def test_whoever_looks_sees_single_messages(site: Site) -> None:
    send(site, b"a", b"b", b"c")
    site.stamper().round()
    shown = entries(site.connect(), SEND_LOG, 0, 10, 100)["entries"]
    assert [(m["seq"], m["text"]) for m in shown] == [(1, "a"), (2, "b"), (3, "c")]
    assert verify(site.connect()) == []
    assert site.ask("SELECT count(*) FROM queues.send_log_tags") == [3]


@pytest.mark.parametrize(
    ("payloads", "starts", "lasts", "ends"),
    [
        (b"ab", [0], [2], [1, 1]),
        (b"ab", [0], [2], [1, 2, 3]),
        (b"ab", [0], [2], [1, None]),
        (b"ab", [0], [3], [1, 2]),
        (b"abc", [0, 1], [2, 3], [1, 2, 1]),
        (b"abc", [0, 2], [2], [1, 2, 1]),
        (b"abc", [0, 2], [3, 3], [1, 2, 1]),
        (b"abc", [1, 2], [2, 3], [1, 2, 1]),
        (b"abcd", [0, 2], [2, 3], [1, 2, 1]),
        (b"abcde", [0], [3], [3, 2, 5]),
        (b"abcde", [0], [2], [-1, 5]),
        (b"abcde", [0, 3], [1, 3], [3, 2, 1]),
        (b"ab", [], [], []),
        (b"ab", [None], [2], [1, 2]),
        (None, [0], [1], [0]),
    ],
)
def test_packs_that_are_not_as_long_as_their_messages_are_refused(
    swept_site: Site, payloads: bytes | None, starts: list[Any], lasts: list[int], ends: list[Any]
) -> None:
    call = "SELECT trunkline.transmit_packs('app', %s::bytea, %s::int[], %s::int[], %s::int[], '{hub}')"
    conn = swept_site.connect()
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(call, (payloads, starts, lasts, ends))
    assert caught.value.sqlstate == "TL108"
    conn.rollback()
    assert swept_site.ask("SELECT id FROM queues.send_log") == []


def test_h10_a_message_over_a_mebibyte_is_refused_among_small_ones_too(swept_site: Site) -> None:
    conn = swept_site.connect()
    with pytest.raises(Invalid, match="over 1 MiB"):
        APP.transmit_many(conn, [b"small", b"small", bytes(2**20 + 1)], ["hub"])
    conn.rollback()
    APP.transmit_many(conn, [b"small", b"small", bytes(2**20)], ["hub"])
    conn.commit()
    assert swept_site.ask("SELECT queues.messages(ends) FROM queues.send_log ORDER BY id") == [2, 1]
