"""The one way in which a test waits: for a condition, with a deadline, and with a reason when it does not come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def eventually(holds: Callable[[], object], seconds: float = 60.0, why: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, f"it did not come to hold within {seconds} s: {why()}"
        pause.wait(0.02)
