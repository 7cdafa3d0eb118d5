"""Milliseconds from the acknowledged commit of a single `transmit` to its row in the far receive table.

The far table is looked at every few milliseconds, which counts as latency too. All clocks are this machine's monotonic one.
"""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from harness import Result
from nodes import until
from queueparts.application import NUMBER, read_committed, send_singles
from queueparts.pace import Pace, spawn
from queueparts.sites import CLIENT, CONSUMER, Sites, running
from queueparts.throughput import sending
from trunkline.queues.client import QueueClient
from trunkline.queues.consumers import advance, attach

THREADS = 8
WARM_SECONDS = 2.0
_LOOK_SECONDS, _ADVANCE_SECONDS = 0.003, 0.5
_HEAD = "SELECT id, head FROM queues.queue WHERE client = %s AND remote = %s"
_NEWS = "SELECT substr(payload, 1, 8) FROM queues.receive WHERE queue = %s AND position > %s AND position <= %s AND type = 1"


class Arrivals:
    """When each entry was first seen at the receiving site, in nanoseconds."""

    def __init__(self, dsn: str, remote: str, pace: Pace) -> None:
        self.at: dict[int, int] = {}
        self._dsn, self._remote, self._pace = dsn, remote, pace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        with psycopg.connect(dsn) as conn:
            attach(conn, CLIENT, CONSUMER)
            found = conn.execute(_HEAD, (CLIENT, remote)).fetchone()
        self._seen = found[1] if found else 0

    def _watch(self) -> None:
        moved_at = 0.0
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            while not self._stop.wait(_LOOK_SECONDS):
                found = conn.execute(_HEAD, (CLIENT, self._remote)).fetchone()
                if found is None or found[1] == self._seen:
                    continue
                self._take(conn, *found)
                if time.monotonic() - moved_at > _ADVANCE_SECONDS:
                    advance(conn, CLIENT, CONSUMER, found[0], self._seen)
                    moved_at = time.monotonic()

    def _take(self, conn: psycopg.Connection[Any], queue: int, head: int) -> None:
        now = time.monotonic_ns()
        rows = conn.execute(_NEWS, (queue, self._seen, head), binary=True).fetchall()
        self.at.update((NUMBER.unpack(number)[0], now) for (number,) in rows)
        self._seen = head
        self._pace.arrived.value = len(self.at)

    @contextmanager
    def running(self) -> Iterator[Arrivals]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()


@contextmanager
def foreign_transaction(dsn: str) -> Iterator[None]:
    """It wrote a row of its own and an entry for everybody, and stays open all the time; then it is rolled back."""
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS foreign_work (id int)")
        conn.commit()
        conn.execute("INSERT INTO foreign_work VALUES (1)")
        QueueClient("foreign").transmit(conn, b"held back", ["*"])
        try:
            yield
        finally:
            conn.rollback()


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


def latencies(
    sites: Sites, way: tuple[str, str], destinations: list[str], size: int, rate: float, seconds: float
) -> list[float]:
    """Milliseconds of every entry after the first moments."""
    source, sink = way
    pace = Pace(1 << 62)
    with tempfile.TemporaryDirectory() as folder, Arrivals(sites.nodes.dsn[sink], source, pace).running() as arrivals:
        file = Path(folder) / "committed"
        with sending(spawn(send_singles, sites.nodes.dsn[source], destinations, size, rate, THREADS, pace, file), pace):
            time.sleep(WARM_SECONDS + seconds)
        committed = read_committed(file)
        until(lambda: len(arrivals.at) >= len(committed), "all entries arrived")
    begun = min(committed.values()) + int(WARM_SECONDS * 1e9)
    end = begun + int(seconds * 1e9)
    return [(arrivals.at[number] - at) / 1e6 for number, at in committed.items() if begun <= at < end]


def latency(seconds: float) -> Iterator[Result]:
    with running([("a", "b")]) as sites, foreign_transaction(sites.nodes.dsn["a"]):
        for name, size, rate in (("1kib", 1024, 1000.0), ("64kib", 64 << 10, 100.0)):
            found = latencies(sites, ("a", "b"), ["b"], size, rate, seconds)
            reached = len(found) / seconds
            unit = f"ms, {reached:,.0f}/s single transmit of {name}, a foreign write transaction open"
            goal, metric = (250.0, "p99_ms_at_1000_per_s") if size == 1024 else (None, f"p99_ms_{name}")
            yield Result(metric.replace("p99", "p50"), round(percentile(found, 0.5), 1), unit)
            yield Result(metric, round(percentile(found, 0.99), 1), unit, goal, most=True)
            yield Result(metric.replace("p99", "max"), round(max(found), 1), unit)
            yield Result(f"singles_per_s_{name}", round(reached), f"transactions/s, {rate:g} wanted", 0.95 * rate)
