"""The receiving node is killed and stays away while the application goes on; then, how long until nothing is behind."""

from __future__ import annotations

import time
from collections.abc import Iterator

from harness import Result
from nodes import until
from queueparts.application import send_batches
from queueparts.pace import Pace, spawn
from queueparts.sites import Watcher, running
from queueparts.throughput import BATCH, sending

PER_SECOND = 5_000
CLOSE_SECONDS = 1.0
"""It has recovered when no more is behind than was written in this time."""


def outage(seconds: float) -> Iterator[Result]:
    pace = Pace(1 << 62)
    with running([("a", "b")]) as sites, Watcher(sites.nodes.dsn["b"], "a", pace).running():
        application = spawn(send_batches, sites.nodes.dsn["a"], ["b"], 1024, BATCH, 1, pace, float(PER_SECOND))
        with sending(application, pace):
            child = sites.nodes.children["b"]
            child.kill()
            assert child.process is not None
            child.process.wait()
            time.sleep(seconds)  # the length of the outage is what is asked for
            behind = pace.sent.value - pace.arrived.value
            child.start()
            first = until(lambda: pace.sent.value - pace.arrived.value < behind, "entries flow again")
            rest = until(lambda: pace.sent.value - pace.arrived.value < CLOSE_SECONDS * PER_SECOND, "nothing is behind", 600.0)
        until(lambda: pace.arrived.value >= pace.sent.value, "the rest arrived")
        lost = pace.sent.value - pace.arrived.value
    yield Result("outage_s", seconds, f"s that the receiver was away, {PER_SECOND:,} entries/s sent meanwhile")
    yield Result("outage_behind", behind, "entries that waited at its end")
    yield Result("outage_first_s", round(first, 1), "s from its start until entries flow")
    yield Result("outage_recovery_s", round(first + rest, 1), "s from its start until less than a second is behind")
    yield Result("outage_lost", lost, "entries (below 0: doubled)", 0, most=True)
