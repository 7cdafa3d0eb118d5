"""Python's search for cycles, put off while many things are made that stay: it would look through all of them, again and
again, and find nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 1_000
"""Of fewer things the search costs nothing worth speaking of."""
LASTING = 10_000
"""So many that later searches leave out whatever is there by then: one through a hundred thousand routes stops a process for
longer than a lease lasts. What of it is dropped later goes all the same, unless it is a cycle."""
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
        leave_out(things)
        gc.enable()


def leave_out(things: int) -> None:
    """`things` were made that stay."""
    if things >= LASTING:
        gc.freeze()
