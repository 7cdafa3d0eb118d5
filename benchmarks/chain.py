"""A chain of five real nodes under load, whose middle three are killed in turn with kill -9: nothing is lost or doubled.

Both ends and the middle write all the time, each entry for all sites. A killed node is started again after a while; the next
one dies only when everything written before has arrived everywhere. In the end every site's queue of every origin must hold
exactly what that origin wrote, in its order.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from harness import Result, Size, run
from nodes import Nodes, until
from trunkline.db.embedded import EmbeddedPostgres

SITES = ("a", "b", "c", "d", "e")
WRITERS = ("a", "c", "e")
MIDDLE = ("b", "c", "d")
DOWN_SECONDS = 1.0
PAUSE_SECONDS = 0.004


class Load:
    """Each writer's entries, numbered."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.written = {site: list[bytes]() for site in WRITERS}
        self._end = threading.Event()

    def _write(self, site: str) -> None:
        while not self._end.is_set():
            payloads = [f"{site} {n}".encode() for n in range(len(self.written[site]), len(self.written[site]) + 10)]
            self._nodes.write(site, payloads)
            self.written[site] += payloads
            self._end.wait(10 * PAUSE_SECONDS)

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._write, args=(site,)) for site in WRITERS]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._end.set()
            for thread in threads:
                thread.join()

    def counts(self) -> dict[str, int]:
        return {site: len(payloads) for site, payloads in self.written.items()}

    def arrived(self, counts: dict[str, int]) -> Callable[[], bool]:
        pairs = [(site, origin) for origin in WRITERS for site in SITES if site != origin]
        return lambda: all(self._nodes.arrived(s, o) >= counts[o] for s, o in pairs)


def kill_in_turn(nodes: Nodes, load: Load, rounds: int) -> list[float]:
    """Seconds from each one's return until everything written up to then was everywhere."""
    healed: list[float] = []
    for victim in MIDDLE * rounds:
        child = nodes.children[victim]
        child.kill()
        assert child.process is not None
        child.process.wait()
        time.sleep(DOWN_SECONDS)  # the time it is down: the load goes on
        child.start()
        healed.append(until(load.arrived(load.counts()), f"what was written before {victim} came back is everywhere"))
        print(f"killed {victim}: all sites whole again {healed[-1]:.1f} s after its start", flush=True)
    return healed


def faults(nodes: Nodes, load: Load) -> tuple[int, int, int]:
    """Entries lost, doubled, and queues out of order."""
    lost = doubled = disordered = 0
    for origin, written in load.written.items():
        for site in SITES:
            if site != origin:
                received = nodes.received(site, origin)
                lost += len(set(written) - set(received))
                doubled += len(received) - len(set(received))
                disordered += received != written
    return lost, doubled, disordered


def measure(size: Size) -> list[Result]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(EmbeddedPostgres(folder / "postgres"))
        nodes = stack.enter_context(Nodes(folder / "nodes", server, list(pairwise(SITES)), "chain").running())
        load = Load(nodes)
        begun = time.perf_counter()
        with load.running():
            until(load.arrived(dict.fromkeys(WRITERS, 100)), "the load flows")
            healed = kill_in_turn(nodes, load, 3 if size is Size.FULL else 1)
        until(load.arrived(load.counts()), "the rest arrived")
        took = time.perf_counter() - begun
        lost, doubled, disordered = faults(nodes, load)
    written = sum(load.counts().values())
    return [
        Result("entries", written, "written, each for four sites"),
        Result("kills", len(healed), "kill -9 of b, c and d in turn"),
        Result("lost", lost, "entries", goal=0, most=True),
        Result("doubled", doubled, "entries", goal=0, most=True),
        Result("out_of_order", disordered, "queues", goal=0, most=True),
        Result("healed_s_max", round(max(healed), 2), "s from a node's start until all is everywhere"),
        Result("entries_per_s", round(written / took), "entries/s, kills included"),
    ]


if __name__ == "__main__":
    run("chain", measure)
