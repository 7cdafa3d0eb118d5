"""Many seeds, on many cores: workers take seeds in chunks and return verdicts, in whatever order they are done.

Nothing is kept of a seed that came right but its numbers, so ten thousand seeds take no more memory than ten.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait

from trunkline.core.errors import Retryable
from trunkline.node.sim.catalogue import find, run_seed
from trunkline.node.sim.universe import Verdict

CHUNK = 8
_SPAWN = multiprocessing.get_context("spawn")


def cores() -> int:
    return len(os.sched_getaffinity(0))


@dataclass
class Tally:
    """What a run of many seeds came to."""

    seeds: int = 0
    entries: int = 0
    frames: int = 0
    slowest: float = 0.0
    """Virtual seconds from the end of the faults until all was right."""
    failures: list[Verdict] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        self.seeds += 1
        self.entries += verdict.entries
        self.frames += verdict.frames
        self.slowest = max(self.slowest, verdict.seconds)
        if not verdict.converged:
            self.failures.append(verdict)


@contextmanager
def verdicts(name: str, seeds: range, jobs: int, loss: float | None = None) -> Iterator[Iterator[Verdict]]:
    """The verdicts, as they come. The workers end with the block, whatever ends it."""
    scenario = find(name)
    if jobs == 1:
        yield (run_seed(scenario, seed, loss) for seed in seeds)
        return
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    with ExitStack() as stack:
        with _interrupts_held():
            workers = [_start(stack, name, loss) for _ in range(min(jobs, len(chunks)))]
        yield _collected(workers, iter(chunks))


def _start(stack: ExitStack, name: str, loss: float | None) -> Connection:
    """This end of the pipe to a new worker: a range of seeds goes in, their verdicts come out."""
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_work, args=(there, name, loss), daemon=True)
    process.start()
    there.close()
    for end in (process.join, process.terminate, here.close):
        stack.callback(end)
    return here


def _collected(workers: list[Connection], chunks: Iterator[range]) -> Iterator[Verdict]:
    for worker in workers:
        worker.send(next(chunks))
    busy = list(workers)
    while busy:
        ready = wait(busy)
        for worker in [w for w in busy if w in ready]:
            try:
                found: list[Verdict] = worker.recv()
            except EOFError:
                raise Retryable("simulation", "one of its worker processes died", "run it again, with fewer --jobs") from None
            following = next(chunks, None)
            if following is None:
                busy.remove(worker)
            else:
                worker.send(following)
            yield from found


def _work(parent: Connection, name: str, loss: float | None) -> None:
    gc.set_threshold(50_000, 20, 100)  # universes are large and short-lived: looking for garbage less often saves a sixth
    scenario = find(name)
    with suppress(EOFError):
        while True:
            parent.send([run_seed(scenario, seed, loss) for seed in parent.recv()])


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """A Ctrl-C reaches the whole group of processes. Workers that are started in here leave it to their parent."""
    resource_tracker.ensure_running()  # else the first worker would start it, which lets interrupts through again
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
