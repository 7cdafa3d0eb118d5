"""The log in Postgres: the bounds of a read, and marks after a restore."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest
from psycopg import sql
from queue_site import APP, Site

from trunkline.core.errors import Terminal
from trunkline.core.ids import Position
from trunkline.db.embedded import EmbeddedPostgres
from trunkline.queues import log as log_module
from trunkline.queues.log import CHUNK_BYTES, PostgresLog


def test_l2_a_chunk_is_bounded_in_bytes_but_for_its_first_transaction(site: Site) -> None:
    half = bytes(CHUNK_BYTES // 2)
    for payloads in ([half], [half], [half], [half, half, half], [b"small"]):
        site.send(*payloads)
    site.stamper().round()
    log = PostgresLog(site.pool())
    at, counts = 0, []
    while at < 7:
        chunk = log.read(at, 100, {"hub"})
        counts.append(len(chunk.entries))
        at = chunk.upto.seq
    assert counts == [2, 1, 3, 1]


def test_l2_who_has_room_for_more_bytes_gets_them_in_one_chunk(site: Site) -> None:
    for _ in range(5):
        site.send(bytes(CHUNK_BYTES // 2))
    site.stamper().round()
    log = PostgresLog(site.pool())
    assert [len(log.read(0, 100, {"hub"}, size).entries) for size in (1, CHUNK_BYTES, 2 * CHUNK_BYTES)] == [1, 2, 4]


def test_l2_entries_for_others_are_not_read(site: Site) -> None:
    large = bytes(CHUNK_BYTES)
    for payload, to in ((large, "shop"), (b"1", "hub"), (large, "shop"), (b"2", "hub")):
        site.send(payload, to=[to])
    site.stamper().round()
    log = PostgresLog(site.pool())
    first = log.read(0, 100, {"hub"})
    second = log.read(first.upto.seq, 100, {"hub"})
    assert [(e.seq, e.payload) for e in (*first.entries, *second.entries)] == [(2, b"1"), (4, b"2")]
    assert second.upto == log.head()


def test_l3_a_scan_without_a_match_ends(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "SCAN_ENTRIES", 50)
    for _ in range(3):
        site.send(*[b"x"] * 40, to=["shop"])
    site.send(b"mine")
    site.stamper(mark=lambda: 3).round()
    log = PostgresLog(site.pool())
    chunk = log.read(0, 1, {"hub"})
    assert (chunk.entries, chunk.upto) == ((), Position(80, 3))
    assert [e.seq for e in log.read(80, 1, {"hub"}).entries] == [121]


def test_l3_matches_after_a_long_stretch_still_come_in_small_chunks(site: Site) -> None:
    for _ in range(20):
        site.send(b"other", to=["shop"])
    for n in range(20):
        site.send(b"%d" % n)
    site.stamper().round()
    log = PostgresLog(site.pool())
    chunk = log.read(0, 3, {"hub"})
    assert [e.payload for e in chunk.entries] == [b"0", b"1", b"2"]
    assert chunk.upto.seq == 23


def test_l4_reading_at_the_head_of_a_long_log_does_not_touch_its_beginning(site: Site) -> None:
    stamper = site.stamper()
    conn = site.connect()
    for n in range(600):
        APP.transmit(conn, b"%d" % n, ["hub"])
        conn.commit()
        stamper.round()
    site.do("ANALYZE")
    pool = site.pool()
    log = PostgresLog(pool)

    def touched() -> int:
        with pool.connection() as conn:
            conn.execute("SELECT pg_stat_force_next_flush()")
        with pool.connection() as conn:
            row = conn.execute(
                "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables "
                "WHERE schemaname = 'queues' AND (relname = 'stamp' OR relname LIKE 'send_log%')"
            ).fetchone()
        assert row is not None
        return int(row[0])

    before = touched()
    for _ in range(10):
        assert [e.payload for e in log.read(590, 5, {"hub"}).entries] == [b"%d" % n for n in range(590, 595)]
    assert 10 <= touched() - before < 10 * 60


def test_rows_that_are_missing_without_a_trim_are_an_error_and_not_a_shorter_log(site: Site) -> None:
    site.send(b"1", b"2")
    site.stamper().round()
    site.do("DELETE FROM queues.send_log WHERE payload = '1'")
    with pytest.raises(Terminal, match="2 were stamped and 1 are there"):
        PostgresLog(site.pool()).read(0, 10, {"hub"})


@pytest.fixture
def restore(site: Site, postgres: EmbeddedPostgres) -> Iterator[Callable[[], Site]]:
    """A copy of the site's database as it is now: what a restore or a lagging standby would bring back."""
    name = "restored_" + site.dsn.split("dbname=")[1].split()[0]

    def copy() -> Site:
        with psycopg.connect(postgres.dsn, autocommit=True) as conn:
            original = sql.Identifier(site.dsn.split("dbname=")[1].split()[0])
            conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), original))
        return Site(postgres.dsn.replace("dbname=postgres", f"dbname={name}"), stack)

    with ExitStack() as stack:
        yield copy
    with psycopg.connect(postgres.dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def go_on(site: Site, *payloads: bytes) -> None:
    grant = site.take_over()
    for payload in payloads:
        site.send(payload)
    site.stamper(grant).round()


def test_h11_a_restored_log_gives_the_same_seq_another_mark(site: Site, restore: Callable[[], Site]) -> None:
    with ExitStack() as before:
        early = Site(site.dsn, before)
        early.acquire()
        go_on(early, b"1", b"2")
    copy = restore()
    go_on(site, b"3")
    go_on(copy, b"another 3")

    lost, restored = PostgresLog(site.pool()), PostgresLog(copy.pool())
    assert lost.log_id == restored.log_id
    assert lost.head().seq == restored.head().seq == 3
    position = lost.head()  # what a destination remembers of the log that was lost
    assert restored.mark_at(position.seq) not in (None, position.mark)
    assert restored.mark_at(2) == lost.mark_at(2)
    assert copy.logged() == [b"1", b"2", b"another 3"]
