"""The log is trimmed while it is written and read: what a destination has not acknowledged is never missing."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import psycopg
import pytest
from queue_site import APP, Site

from trunkline.core.ids import Position
from trunkline.db.lease import Grant
from trunkline.queues import retention
from trunkline.queues.acks import acknowledge
from trunkline.queues.log import PostgresLog
from trunkline.queues.retention import Keep, Retention

SECONDS = 3.0
KEEP = Keep(hours=1000.0, bytes=1 << 30, unacknowledged=10**6)


def write(dsn: str, writer: int, until: float) -> int:
    with psycopg.connect(dsn) as conn:
        for n in count():
            if time.monotonic() > until:
                return n
            APP.transmit_many(conn, [b"%d %d" % (writer, n), bytes(3000), bytes(3000)], ["hub"])
            conn.rollback() if n % 5 == 4 else conn.commit()
    return 0


def trim(site: Site, log: PostgresLog, grant: Grant, stop: threading.Event) -> list[int]:
    emptied: list[int] = []
    with psycopg.connect(site.dsn) as conn:
        while not stop.wait(0.02):
            with log.backlog() as backlog:
                emptied += Retention(KEEP).step(conn, grant, backlog).emptied
    return emptied


def read(site: Site, log: PostgresLog, stop: threading.Event) -> list[tuple[int, bytes]]:
    """As a destination that acknowledges what it has, until the log is at rest."""
    seen: list[tuple[int, bytes]] = []
    at = 0
    with psycopg.connect(site.dsn) as conn:
        while True:
            resting = stop.is_set()
            chunk = log.read(at, 50, {"hub"})
            seen += [(m.seq, m.payload) for e in chunk.entries for m in e.apart()]
            at = chunk.upto.seq
            if chunk.entries:
                acknowledge(conn, "hub", "app", 1, Position(at, chunk.upto.mark))
                conn.commit()
            elif resting:
                return seen


def test_h07_a_reader_under_constant_trimming_gets_everything_in_order(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "SMALL_BYTES", 100_000)
    site.do("DELETE FROM queues.site WHERE name = 'shop'")
    grant = site.acquire(600)
    stamper, stop, written = site.stamper(grant), threading.Event(), threading.Event()
    log = PostgresLog(site.pool())
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(7) as threads:
        stamping = threads.submit(stamper.run, stop, lambda head: None)
        trimming = threads.submit(trim, site, log, grant, stop)
        reading = threads.submit(read, site, log, written)
        attempts = [done.result() for done in [threads.submit(write, site.dsn, w, until) for w in range(3)]]
        stop.set()
        stamping.result()
        while stamper.round().stamped:
            pass
        written.set()
        seen, emptied = reading.result(), trimming.result()
    assert [seq for seq, _ in seen] == list(range(1, stamper.round().head.seq + 1))
    for writer, tried in enumerate(attempts):
        mine = [payload for _, payload in seen if payload.startswith(b"%d " % writer)]
        assert mine == [b"%d %d" % (writer, n) for n in range(tried) if n % 5 != 4]
    assert len(emptied) > 3
    assert site.ask("SELECT count(*) FROM queues.needs_snapshot") == [0]
