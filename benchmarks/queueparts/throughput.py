"""Entries per second, from the commit in the application to rows committed in the far receive table, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from harness import Result
from nodes import until
from queueparts.application import send_batches
from queueparts.cpu import Cpu
from queueparts.pace import Pace, spawn
from queueparts.sites import Sites, Watcher, running

BATCH, THREADS = 100, 4
TRANSACTION_BYTES = 2 << 20
"""Below what a transaction may hold: batches of large entries are smaller."""
WARM_SECONDS, WINDOW_SECONDS = 3.0, 5.0
AHEAD_BYTES = 64 << 20
"""How much may be under way: about a second's worth."""


def ahead(size: int) -> int:
    return max(10 * BATCH, min(50_000, AHEAD_BYTES // size))


def batch(size: int) -> int:
    return min(BATCH, TRANSACTION_BYTES // size)


@dataclass(frozen=True)
class Rate:
    per_s: float
    slowest: float
    """Of any window of a few seconds."""
    sent_per_s: float
    """Acknowledged to the sender."""
    entries: int
    cpu: Mapping[str, float]
    """Cores that each kind of process kept busy."""


@contextmanager
def sending(process: Any, pace: Pace) -> Iterator[Any]:
    try:
        until(lambda: pace.arrived.value > 0 or not process.is_alive(), "the first entries arrived")
        yield process
        assert process.is_alive(), "the sender ended too early: see its error above"
    finally:
        pace.ended.value = 1
        process.join(30)


def watch(pace: Pace, seconds: float, pids: Mapping[str, int]) -> Rate:
    """After warming up; the sender runs already."""
    time.sleep(WARM_SECONDS)
    cpu, begun, first, sent = Cpu(pids), time.perf_counter(), pace.arrived.value, pace.sent.value
    marks = [(0.0, first)]
    while (at := time.perf_counter() - begun) < seconds:
        time.sleep(min(WINDOW_SECONDS, seconds - at))
        marks.append((time.perf_counter() - begun, pace.arrived.value))
    took = marks[-1][0]
    windows = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(marks)]
    used = {name: round(spent / took, 3) for name, spent in cpu.used().items()}
    return Rate((marks[-1][1] - first) / took, min(windows), (pace.sent.value - sent) / took, pace.arrived.value, used)


def rate(sites: Sites, way: tuple[str, str], destinations: list[str], size: int, seconds: float) -> Rate:
    """`way`: from which site, and at which one the arrival is watched."""
    source, sink = way
    pace = Pace(ahead(size))
    with Watcher(sites.nodes.dsn[sink], source, pace).running() as watcher:
        application = spawn(send_batches, sites.nodes.dsn[source], destinations, size, batch(size), THREADS, pace, 0.0)
        with sending(application, pace):
            found = watch(pace, seconds, sites.pids() | {"application": application.pid})
        until(lambda: pace.arrived.value >= pace.sent.value or watcher.failure is not None, "the rest arrived")
        assert pace.arrived.value == pace.sent.value, f"{pace.sent.value} sent, {pace.arrived.value} arrived"
    return found


def throughput(seconds: float) -> Iterator[Result]:
    with running([("a", "b")]) as sites:
        yield from sites.settings()
        found = rate(sites, ("a", "b"), ["b"], 1024, seconds)
        yield Result("entries_per_s_1kib", round(found.per_s), f"entries/s, {seconds:g} s, transmit_many of {BATCH}", 50_000)
        yield Result("entries_per_s_1kib_slowest", round(found.slowest), f"entries/s in the slowest {WINDOW_SECONDS:g} s")
        yield from (Result(f"cores_{name}", cores, "cores busy, 1 KiB") for name, cores in found.cpu.items())
        yield Result("cpu_us_per_entry", round(sum(found.cpu.values()) / found.per_s * 1e6, 2), "µs of all processes, 1 KiB")
        yield from kept(sites, found.entries)
        large = rate(sites, ("a", "b"), ["b"], 64 << 10, max(2.0, seconds / 4))
        yield Result("entries_per_s_64kib", round(large.per_s), f"entries/s, transmit_many of {batch(64 << 10)}")


def kept(sites: Sites, entries: int) -> Iterator[Result]:
    """That trimming keeps up: what is left of all that went through."""
    went = entries * 1024
    yield Result("trimmed_share", round(sites.lowest("a") / entries, 3), "of all sent entries, at the end")
    yield Result("kept_at_source", round(sites.stored_bytes("a") / went, 3), "bytes stored / payload bytes sent")
    yield Result("kept_at_sink", round(sites.stored_bytes("b") / went, 3), "bytes stored / payload bytes received")
