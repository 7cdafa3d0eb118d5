"""Many small messages of one call are kept as a few rows: what comes out of the log is what went in."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_site import APP, Site

from trunkline.queues.client import QueueClient, _packed
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
    packs, counts, ends = _packed(payloads)
    assert len(packs) == len(counts)
    assert sum(counts) == len(ends) == len(payloads)
    found, at = [], 0
    for pack, count in zip(packs, counts, strict=True):
        starts = [0, *ends[at : at + count]]
        found += [pack[a:b] for a, b in zip(starts, starts[1:], strict=False)]
        assert count == 1 or len(pack) + 4 * count < PAGE - 200
        at += count
    assert found == payloads


def test_small_messages_fill_pages_and_come_out_one_by_one(site: Site) -> None:
    sent = [b"%d" % n * 300 for n in range(1000, 1100)]
    send(site, *sent)
    rows = site.ask("SELECT count(*), sum(queues.messages(ends)), max(pg_column_size(payload)) FROM queues.send_log")
    assert rows[0][:2] == (17, 100)
    site.stamper().round()
    assert site.ask("SELECT sum(pg_relation_size(reltoastrelid)) FROM pg_class WHERE relname LIKE 'send_log__'") == [0]
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
    ("packs", "counts", "ends"),
    [
        ([b"ab"], [2], [1, 1]),
        ([b"ab"], [2], [1, 2, 3]),
        ([b"ab"], [2], [1, None]),
        ([b"ab"], [3], [1, 2]),
        ([b"ab", b"c"], [2], [1, 2]),
        ([b"ab", b"c"], [3, 0], [1, 2, 1]),
        ([b"ab"], [], []),
    ],
)
def test_packs_that_are_not_as_long_as_their_messages_are_refused(
    swept_site: Site, packs: list[bytes], counts: list[int], ends: list[Any]
) -> None:
    conn = swept_site.connect()
    with pytest.raises(psycopg.Error) as caught:
        conn.execute("SELECT trunkline.transmit_packs('app', %b::bytea[], %s::int[], %s::int[], '{hub}')", (packs, counts, ends))
    assert caught.value.sqlstate == "TL108"
    conn.rollback()
    assert swept_site.ask("SELECT id FROM queues.send_log") == []
