"""H05 under load: writers that commit, fail, undo and dawdle, while the stamper runs."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import count, groupby
from typing import Any

import psycopg
from queue_site import APP, Site

from waiting import eventually

WRITERS = 8
SECONDS = 3.0


def write(dsn: str, writer: int, until: float) -> list[tuple[int, int]]:
    """(transaction, messages) of what this writer committed, in its order; payload = writer, transaction, message."""
    rng = random.Random(writer)
    committed: list[tuple[int, int]] = []
    with psycopg.connect(dsn) as conn:
        for transaction in count():
            if time.monotonic() > until:
                return committed
            kept = transmit_some(conn, rng, writer, transaction)
            if rng.random() < 0.3:
                conn.execute("SET CONSTRAINTS ALL IMMEDIATE")  # draws the ticket, and dawdles over some rounds
                conn.execute("SELECT pg_sleep(%s)", (rng.choice([0, 0.005, 0.05]),))
            if rng.random() < 0.25:
                conn.rollback()
                continue
            conn.commit()
            if kept:
                committed.append((transaction, kept))
    return committed


def transmit_some(conn: psycopg.Connection[Any], rng: random.Random, writer: int, transaction: int) -> int:
    kept = 0
    for step in range(rng.randint(1, 4)):
        undo = rng.random() < 0.3
        conn.execute("SAVEPOINT s")
        messages = [f"{writer} {transaction} {kept + n}".encode() for n in range(rng.randint(1, 3))]
        if step % 2:
            APP.transmit_many(conn, messages, ["hub"])
        else:
            for message in messages:
                APP.transmit(conn, message, ["hub"])
        conn.execute("ROLLBACK TO s" if undo else "RELEASE s")
        kept += 0 if undo else len(messages)
    return kept


def count_up(dsn: str, until: int) -> None:
    """Each transaction takes the next number under its row's lock, and says it: numbers are in the order of commits."""
    with psycopg.connect(dsn) as conn:
        while True:
            row = conn.execute("UPDATE counter SET n = n + 1 WHERE n < %s RETURNING n", (until,)).fetchone()
            if row is None:
                return
            APP.transmit(conn, b"%d" % row[0], ["hub"])
            conn.commit()


def test_s04_a_thousand_transactions_of_four_writers_are_in_commit_order_none_missing_or_repeated(site: Site) -> None:
    site.do("CREATE TABLE counter AS SELECT 0 AS n")
    stop = threading.Event()
    stamper = site.stamper()
    with ThreadPoolExecutor(5) as threads:
        stamping = threads.submit(stamper.run, stop, lambda head: None)
        for writing in [threads.submit(count_up, site.dsn, 1000) for _ in range(4)]:
            writing.result()
        stop.set()
        stamping.result()
    eventually(lambda: stamper.round().head.seq == 1000)
    assert site.logged() == [b"%d" % n for n in range(1, 1001)]
    assert site.ask("SELECT count(*) FROM queues.stamp")[0] > 10


def test_h05_stress_nothing_lost_nothing_twice_nothing_split_order_kept_by_8_writers_with_aborts(site: Site) -> None:
    stop = threading.Event()
    stamper = site.stamper()
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(WRITERS + 1) as threads:
        stamping = threads.submit(stamper.run, stop, lambda head: None)
        writing = [threads.submit(write, site.dsn, writer, until) for writer in range(WRITERS)]
        committed = {writer: done.result() for writer, done in enumerate(writing)}
        stop.set()
        stamping.result()
    eventually(lambda: stamper.round().stamped == 0 and stamper.cursor.holes == ())

    log = [tuple(map(int, payload.split())) for payload in site.logged()]
    seen: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (writer, transaction), messages in groupby(log, key=lambda entry: entry[:2]):
        numbers = [number for _, _, number in messages]
        assert numbers == list(range(len(numbers)))
        seen[writer].append((transaction, len(numbers)))
    assert dict(seen) == committed
    assert len(log) > 500
    assert site.ask("SELECT count(*) FROM queues.stamp")[0] > 10
