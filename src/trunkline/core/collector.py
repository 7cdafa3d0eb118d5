"""Python's search for cycles, put off while many things are made that stay: it would look through all of them, again and
again, and find nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 1_000
"""Of fewer things the search costs nothing worth speaking of."""
PATIENCE = (50_000, 20, 10)
"""More new things than a thousand events under way are made of: so their coming and going starts no search. Cycles that wait
for one take some megabytes."""


def patient_collector() -> None:
    """For a process that serves: one with 10,000 routes holds a million things that stay, and with Python's own thresholds
    searches through all of them every few thousand events."""
    gc.set_threshold(*PATIENCE)


@contextmanager
def collector_at_rest(things: int = MANY) -> Iterator[None]:
    """`things`: how many are made. Whoever else makes cycles meanwhile has them collected afterwards."""
    if things < MANY or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
