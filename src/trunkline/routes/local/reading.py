"""A receiver that runs: started again with growing pauses when it fails, and told to stop in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.clock import Clock
from trunkline.core.errors import TrunklineError
from trunkline.db.lease import Grant
from trunkline.net.tasks import Tasks
from trunkline.routes.ends import Give, Receiving, Watch
from trunkline.routes.event import Event
from trunkline.routes.outcome import Done

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
STEADY_SECONDS = 60.0  # after so long without a failure the next one counts as the first
STOP_SECONDS = 8.0  # for a receiver that has time: what it gave may wait for slow senders, whose calls end before that

log = structlog.get_logger(__name__)


def _nothing() -> None: ...


class Reading:
    """`failing`: why it does not read; `failures`: how often in a row. `on_failure` hears of each."""

    def __init__(self, name: str, receiving: Receiving, give: Give, clock: Clock, random: Callable[[], float]) -> None:
        self.failing = ""
        self.on_failure: Callable[[], None] = lambda: None
        self._name, self.receiving, self._give, self._clock = name, receiving, give, clock
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, random)
        self._tasks = Tasks()
        self._stop = asyncio.Event()
        self._stops = 0
        self._next: Callable[[], None] = _nothing

    @property
    def running(self) -> bool:
        return len(self._tasks) > 0

    @property
    def failures(self) -> int:
        return self._backoff.failures

    def start(self, grant: Grant | None) -> None:
        """Nothing if it runs already. One that is about to stop is started again when it has."""
        if self._stops:
            self._next = lambda: self.start(grant)
        elif not self.running:
            self._stop = asyncio.Event()
            self._backoff.success()
            self._tasks.spawn(self._run(self._stop, grant), f"receiver {self._name}")

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        self._next = _nothing
        self._stop.set()
        self._stops += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._tasks.join()
            await self._tasks.cancel()
            self.failing = ""
        finally:
            self._stops -= 1
        if not self._stops:
            self._next()

    async def exchange(self, receiving: Receiving, grant: Grant | None) -> None:
        """Goes on with one that was opened anew."""
        ran = self.running
        await self.stop()
        old, self.receiving = self.receiving, receiving
        if ran:
            self.start(grant)
        await old.close()

    async def close(self) -> None:
        await self.stop()
        self._stops += 1  # for ever
        await self.receiving.close()

    async def _run(self, stop: asyncio.Event, grant: Grant | None) -> None:
        while not stop.is_set():
            began = self._clock.monotonic()
            try:
                await self.receiving.run(self._given, stop, grant)
                self.failing = ""
                return
            except Exception as error:
                await self._failed(error, began, stop)

    async def _given(self, events: list[Event], seconds: float, watch: Watch | None = None) -> asyncio.Future[list[Done]]:
        self.failing = ""
        return await self._give(events, seconds, watch)

    async def _failed(self, error: Exception, began: float, stop: asyncio.Event) -> None:
        if self._clock.monotonic() - began >= STEADY_SECONDS:
            self._backoff.success()
        self.failing = f"{error.what}: {error.why}" if isinstance(error, TrunklineError) else f"{type(error).__name__}: {error}"
        pause = self._backoff.after_failure()
        log.warning("a receiver failed; it starts again", receiver=self._name, reason=self.failing, pause=round(pause, 2))
        self.on_failure()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await stop.wait()
