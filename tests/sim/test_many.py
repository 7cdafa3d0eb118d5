"""Many seeds on several processes: the same verdicts, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import resource

from trunkline.node.sim.catalogue import CATALOGUE, run_seed
from trunkline.node.sim.many import Tally, verdicts


def test_workers_find_what_this_process_finds() -> None:
    with verdicts("store", range(3, 23), jobs=2) as found:
        there = sorted(found, key=lambda verdict: verdict.seed)
    assert there == [run_seed(CATALOGUE["store"], seed) for seed in range(3, 23)]


def test_leaving_early_ends_the_workers() -> None:
    with verdicts("store", range(5000), jobs=2) as found:
        next(found)
        assert multiprocessing.active_children()
    assert multiprocessing.active_children() == []


def test_memory_does_not_grow_with_the_seeds() -> None:
    tally = Tally()

    def run(seeds: range) -> int:
        with verdicts("store", seeds, jobs=1) as found:
            for verdict in found:
                tally.add(verdict)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = run(range(20))
    assert run(range(20, 90)) - before < 8 * 1024, "kilobytes"
    assert (tally.seeds, tally.failures) == (90, [])
