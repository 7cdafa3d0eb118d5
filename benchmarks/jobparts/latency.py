"""How long an event takes from one topic to another, and a change of a route until it counts, while events flow."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any

from harness import Result
from jobparts.place import PARTITIONS, Listener, Site, event, route

ROUTES = 100
WARM_SECONDS = 5.0


class Pulse:
    """Sends so many events a second, in a thread."""

    def __init__(self, site: Site, topic: str, per_second: int) -> None:
        self._producer, self._topic, self._pause = site.producer(linger_ms=0), site.topic(topic), 1 / per_second
        self._stop, self.sent = threading.Event(), 0
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(30) == 0

    def _send(self) -> None:
        begun = time.perf_counter()
        while not self._stop.is_set():
            while self.sent * self._pause <= time.perf_counter() - begun:
                self._producer.produce(self._topic, event(self.sent, ROUTES), partition=self.sent % PARTITIONS)
                self.sent += 1
            self._producer.poll(0)
            time.sleep(0.001)


def latency(site: Site, seconds: float, changes: int) -> Iterator[Result]:
    site.create("in", "out")
    with site.running():
        site.put({f"r{n}": route(n, site.receiver("in"), site.sender("out")) for n in range(ROUTES)})
        site.until_looked()
        ages: list[float] = []
        marks: dict[Any, float] = {}

        def hear(payload: Any, at: float) -> None:
            ages.append(at - payload["at"])
            marks.setdefault(payload["mark"], at)

        with Pulse(site, "in", 1_000), Listener(site, "out", hear):
            time.sleep(WARM_SECONDS)
            ages.clear()
            time.sleep(seconds)
            found = sorted(ages)
            yield Result("latency_p50_ms_at_1000_per_s", round(1e3 * statistics.median(found), 1), f"ms, {len(found):,} events")
            p99 = found[int(len(found) * 0.99)]
            yield Result("latency_p99_ms_at_1000_per_s", round(1e3 * p99, 1), "ms", 500, most=True)
            yield Result("latency_most_ms_at_1000_per_s", round(1e3 * found[-1], 1), "ms")
            yield from _changes(site, changes, marks)


def _changes(site: Site, changes: int, marks: dict[Any, float]) -> Iterator[Result]:
    """From asking for a change to the first event that was routed by it."""
    took: list[float] = []
    for number in range(changes):
        mark, asked = f"change-{number}", time.time()
        site.put({f"r{n}": route(n, site.receiver("in"), site.sender("out"), mark) for n in range(number % ROUTES, ROUTES, 10)})
        while mark not in marks:
            time.sleep(0.002)
        took.append(marks[mark] - asked)
    took.sort()
    yield Result("change_effective_median_ms", round(1e3 * statistics.median(took), 1), f"ms, {changes} changes of some routes")
    p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
    yield Result("change_effective_p99_ms", round(1e3 * p99, 1), "ms", 1_000, most=True)
