"""A stop that ends: politely within a limit, and by force after it or at the second word.

What still has to stop says so (`waits_for`), so that a stop that was cut short can name it. The limit is watched by a thread
that needs nobody's help: not the event loop's, and not that of a thread that hangs in a database call. It stays armed
until the process is gone, for threads may hold up even its very end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

CUT_SHORT = 1

log = structlog.get_logger(__name__)


class Stopping:
    def __init__(self, seconds: float, leave: Callable[[int], object] = os._exit) -> None:
        self.asked = asyncio.Event()
        self._seconds, self._leave = seconds, leave
        self._unfinished: dict[str, None] = {}

    def on_signals(self) -> None:
        for word in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(word, self.ask, f"told so by {word.name}")

    def ask(self, why: str) -> None:
        if self.asked.is_set():
            self._cut(f"{why} a second time")
            return
        log.info("stopping", reason=why, limit_seconds=self._seconds)
        self.asked.set()
        limit = threading.Timer(self._seconds, self._cut, (f"it took longer than {self._seconds:g} s",))
        limit.name, limit.daemon = "stop-limit", True
        limit.start()

    @contextmanager
    def waits_for(self, what: str) -> Iterator[None]:
        """Counts as not stopped until it is left."""
        self._unfinished[what] = None
        try:
            yield
        finally:
            del self._unfinished[what]

    def _cut(self, why: str) -> None:
        left = list(self._unfinished) or [f"thread {t.name}" for t in threading.enumerate() if not t.daemon and t.is_alive()]
        log.error("stop cut short", reason=why, not_stopped=", ".join(left), next_step="none: a restart goes on from here")
        sys.stderr.flush()
        self._leave(CUT_SHORT)
