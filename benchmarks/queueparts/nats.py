"""NATS JetStream with the same work: payloads, batches, a second server over TLS that has it all on its disk, old ones let go.

Once as it comes, where an acknowledged message is in the file system's memory and on the disk within two minutes, and once with
`sync_interval: always`, which is what Postgres does. Of the two ways to publish the faster one counts. `acknowledged` is the
rate at which its first server takes them, which its mirror need not keep up with.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import Result
from queueparts import natsservers
from queueparts.natspublisher import WAYS, publish
from queueparts.pace import Pace, spawn
from queueparts.sites import running
from queueparts.throughput import Rate, ahead, batch, rate, sending, watch

SYNCS = {"default": False, "sync_always": True}
SIZES = {"1kib": 1024, "64kib": 64 << 10}
_LOOK_SECONDS = 0.05


@contextmanager
def watching(pair: natsservers.Pair, pace: Pace) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=pair.follow, args=(pace.arrived, stop, _LOOK_SECONDS), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@dataclass(frozen=True)
class Found:
    way: str
    rate: Rate


def _run(way: str, sync_always: bool, size: int, seconds: float) -> Found:
    pace = Pace(ahead(size))
    with (
        tempfile.TemporaryDirectory() as folder,
        natsservers.running(Path(folder), sync_always) as pair,
        watching(pair, pace),
        sending(spawn(publish, pair.source.url, way, size, batch(size), pace), pace) as client,
    ):
        pids = {"client": client.pid, "source": pair.source.pid, "sink": pair.sink.pid}
        return Found(way, watch(pace, seconds, pids))


def _best(sync_always: bool, size: int, seconds: float) -> tuple[Found, list[Found]]:
    found = [_run(way, sync_always, size, seconds) for way in WAYS]
    return max(found, key=lambda one: one.rate.per_s), found


def ours(size: int, seconds: float) -> Rate:
    with running([("a", "b")]) as sites:
        return rate(sites, ("a", "b"), ["b"], size, seconds)


def nats(seconds: float, measured: Mapping[str, float]) -> Iterator[Result]:
    """`measured`: what this run found for us already."""
    own = measured.get("entries_per_s_1kib") or ours(1024, seconds).per_s
    for sync, always in SYNCS.items():
        for name, size in SIZES.items():
            best, each = _best(always, size, seconds)
            yield from (
                Result(
                    f"nats_{sync}_{name}_{one.way}_per_s",
                    round(one.rate.per_s),
                    f"entries/s mirrored, batches of {batch(size)}",
                )
                for one in each
            )
            unit = f"entries/s acknowledged, {best.way}"
            yield Result(f"nats_{sync}_{name}_acknowledged_per_s", round(best.rate.sent_per_s), unit)
            yield from (
                Result(f"nats_{sync}_{name}_cores_{who}", n, f"cores busy, {best.way}") for who, n in best.rate.cpu.items()
            )
            if name == "1kib":
                goal = 1.0 if sync == "default" else None
                yield Result(f"vs_nats_{sync}", round(own / best.rate.per_s, 2), "our entries/s of 1 KiB / its best", goal)
