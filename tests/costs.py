"""What work costs, told apart from what the rest of a long run costs.

A run of thousands of tests holds millions of objects, and a collection that happens to fall into the measured stretch walks
all of them: many times the work itself.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def cpu_seconds(work: Callable[[], object], tries: int = 3) -> float:
    """Processor time of this process, the best of some tries."""

    def once() -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    with no_collection():
        return min(once() for _ in range(tries))
