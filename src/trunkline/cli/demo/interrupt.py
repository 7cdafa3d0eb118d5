"""Ctrl-C, looked at only where the demo waits: no exception out of a signal handler can get lost inside a library."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Interrupted(Exception):
    """Ctrl-C or SIGTERM."""


class Patience:
    def __init__(self) -> None:
        self._asked = threading.Event()

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = {s: signal.signal(s, lambda *_: self._asked.set()) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def pause(self, seconds: float) -> None:
        if self._asked.wait(seconds):
            raise Interrupted

    def wait_until(self, done: Callable[[], bool], seconds: float, every: float) -> bool:
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                return False
            self.pause(every)
        return True
