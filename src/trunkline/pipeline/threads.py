"""The driver's threads among each other: DB workers, intake and keeper share one interpreter.

Measured with a thousand sites: looking for cycles in what batches leave behind took a sixth of the interpreter's time, though
they hardly make any; and a thread that had waited for Postgres got its turn up to 5 ms later for each thread that computed.
"""

from __future__ import annotations

import gc
import sys

_TURN_SECONDS = 0.001
_THRESHOLDS = (100_000, 20, 50)


def tune_threads() -> None:
    """For a process that is a driver and nothing else. What it has loaded by now stays, and is not looked at again."""
    sys.setswitchinterval(_TURN_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
