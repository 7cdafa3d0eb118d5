"""What more destinations cost: in room at the source, on the links, in rate and in latency, direct and over one relay.

The sites are a chain a-b-c. Of many destinations one or two are real; the others are known and away, as in a fleet where most
are behind some link: entries are kept for them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import psycopg

from harness import Result
from nodes import until
from queueparts.latency import latencies, percentile
from queueparts.sites import CLIENT, Sites, running
from queueparts.throughput import batch, rate
from trunkline.queues.client import QueueClient

CHAIN = [("a", "b"), ("b", "c")]
COUNTS = (1, 10, 100)
AWAY = [f"away-{n:03}" for n in range(1, 101)]
WAYS = {"direct": ("a", "b"), "relay": ("a", "c")}
SIZES = {"1kib": (1024, 1000.0), "64kib": (64 << 10, 100.0)}
"""Bytes, and the rate of single transmits at which latency is measured."""
STEADY, LINK_ENTRIES = 2_000, 20_000
GOALS = {"1mib": 1.1, "1kib": 1.3}
STORED = {"1mib": (1 << 20, 100), "64kib": (64 << 10, 1_000), "1kib": (1024, 20_000)}
"""Bytes and number of entries."""


def destinations(seconds: float) -> Iterator[Result]:
    with running(CHAIN) as sites:
        sites.know("a", AWAY)
        for name in STORED:
            yield from stored(sites, name)
        yield from link_bytes(sites)
    with running(CHAIN) as sites:
        sites.know("a", AWAY)
        for way, ends in WAYS.items():
            for count in COUNTS:
                yield from costs(sites, way, [ends[1], *AWAY[: count - 1]], seconds)


def write(sites: Sites, size: int, entries: int, to: list[str], per_second: int = 0) -> None:
    payloads = [os.urandom(size) for _ in range(batch(size))]
    due = time.monotonic()
    with psycopg.connect(sites.nodes.dsn["a"]) as conn:
        for _ in range(entries // len(payloads)):
            QueueClient(CLIENT).transmit_many(conn, payloads, to)
            conn.commit()
            due += len(payloads) / per_second if per_second else 0.0
            time.sleep(max(0.0, due - time.monotonic()) if per_second else 0.0)


def stored(sites: Sites, name: str) -> Iterator[Result]:
    """Nothing is trimmed meanwhile, and nothing travels: all of them are away."""
    size, entries = STORED[name]
    entries -= entries % batch(size)
    for count in COUNTS:
        before, head = sites.stored_bytes("a"), sites.head("a")
        write(sites, size, entries, AWAY[:count])
        until(lambda goal=head + entries: sites.head("a") >= goal, "all entries are stamped")  # type: ignore[misc]
        ratio = (sites.stored_bytes("a") - before) / (size * entries)
        goal = GOALS.get(name) if count == 100 else None
        yield Result(
            f"stored_bytes_ratio_{count}_dest_{name}", round(ratio, 3), "tables and indexes / payload", goal, most=True
        )


def link_bytes(sites: Sites) -> Iterator[Result]:
    """What b counts on both its links, in both directions and before TLS, while a writes for b and c, and for 98 more.

    The goal is for a stream at a moderate rate. In a burst a site that cannot follow the others leaves their stream and is
    brought what it lacks by another one, so that entries cross a link twice: that is reported.
    """
    _gone(sites, 100, ["b", "c"], STEADY)  # both have met this client
    for name, to, per_second, goal in (
        ("chain3", ["b", "c"], STEADY, 1.05),
        ("chain3_100_dest", ["b", "c", *AWAY[:98]], STEADY, 1.05),
        ("chain3_burst", ["b", "c"], 0, None),
    ):
        gone = _gone(sites, LINK_ENTRIES, to, per_second)
        pace = f"{per_second:,} entries/s" if per_second else "as fast as it goes"
        unit = f"bytes / payload, {pace}: " + ", ".join(f"{link} {ratio:.3f}" for link, ratio in gone.items())
        yield Result(f"link_bytes_ratio_{name}", round(max(gone.values()), 3), unit, goal, most=True)


def _gone(sites: Sites, entries: int, to: list[str], per_second: int) -> dict[str, float]:
    had = {site: sites.nodes.arrived(site, "a") for site in "bc"}
    before = carried(sites)
    write(sites, 1024, entries, to, per_second)
    until(lambda: all(sites.nodes.arrived(site, "a") >= had[site] + entries for site in "bc"), "all entries arrived")
    return {link: (count - before[link]) / (1024 * entries) for link, count in carried(sites).items()}


def carried(sites: Sites) -> dict[str, int]:
    links = sites.nodes.ask("b", "trunk")["links"]
    return {f"b_{peer}": links[peer]["sent_bytes"] + links[peer]["received_bytes"] for peer in ("a", "c")}


def costs(sites: Sites, way: str, to: list[str], seconds: float) -> Iterator[Result]:
    for name, (size, singles) in SIZES.items():
        found = rate(sites, WAYS[way], to, size, seconds)
        yield Result(f"entries_per_s_{name}_{len(to)}_dest_{way}", round(found.per_s), "entries/s")
        times = latencies(sites, WAYS[way], to, size, singles, seconds)
        for label, share in (("p50", 0.5), ("p99", 0.99)):
            metric = f"{label}_ms_{name}_{len(to)}_dest_{way}"
            yield Result(metric, round(percentile(times, share), 1), f"ms, {len(times) / seconds:,.0f}/s")
