"""The one owner of a node's tasks: nothing runs beside it, nothing fails in silence, everything ends with it.

1. `keep` runs a task for as long as the node lives. One that fails is started again after a backoff; one that returns is
   done. After SETTLE_SECONDS of running well the backoff begins anew and the task counts as well.
2. `once` runs a job that is not tried again: whoever asked for it is told of a failure and decides.
3. A failure is written with its traceback once per distinct error (its type and the line that raised it), later ones in
   one line; both are counted under the task's name.
4. Every name is a check: a crash shows until the task ran well for a while.
5. Leaving the supervisor cancels all that runs and waits for it, threads of `in_thread` included.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeAlias

import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.clock import Clock
from trunkline.core.health import Check
from trunkline.net.tasks import end

SETTLE_SECONDS = 10.0
BACKOFF_FIRST = 0.2
BACKOFF_MOST = 10.0

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
Failed: TypeAlias = Callable[[Exception], None]

log = structlog.get_logger(__name__)


@dataclass
class Health:
    """What is known of the tasks of one name."""

    name: str
    restarts: bool
    running: int = 0
    failures: int = 0
    last: str = ""
    failed_at: float = 0.0
    resumes_at: float = 0.0
    known: set[tuple[str, str, int]] = field(default_factory=set)

    def failed(self, error: Exception, now: float, pause: float) -> None:
        self.failures += 1
        self.last = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")
        self.failed_at, self.resumes_at = now, now + pause

    def is_new(self, error: Exception) -> bool:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = (place.tb_frame.f_code.co_filename, place.tb_lineno) if place is not None else ("", 0)
        distinct = (type(error).__name__, *where)
        new = distinct not in self.known
        self.known.add(distinct)
        return new

    def check(self, now: float, settle: float) -> Check:
        name = f"task {self.name}"
        if not self.failures:
            return Check(name, True, "running" if self.running else "at rest")
        times = f"{self.failures} time{'s' if self.failures > 1 else ''}"
        story = f"{'restarted' if self.restarts else 'failed'} {times}, last: {self.last}"
        if now < self.resumes_at:
            return Check(name, False, f"{story}; backing off {self.resumes_at - now:.1f} s")
        well = now - self.resumes_at
        return Check(name, well >= settle, f"{story}; well for {well:.0f} s")


class Kept:
    """A task that is kept; `stop` ends it and waits until it has ended."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    async def stop(self) -> None:
        await end([self._task])


class Supervisor:
    def __init__(self, clock: Clock, random: Callable[[], float], settle: float = SETTLE_SECONDS) -> None:
        self._clock, self._random, self._settle = clock, random, settle
        self._health: dict[str, Health] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Supervisor:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            await end(self._tasks)
        finally:
            await self._group.__aexit__(kind, error, at)

    def keep(self, name: str, work: Work, on_failure: Failed | None = None) -> Kept:
        health = self._health.setdefault(name, Health(name, restarts=True))
        return Kept(self._start(name, self._keep(health, work, on_failure)))

    def once(self, name: str, work: Work, on_failure: Failed) -> None:
        health = self._health.setdefault(name, Health(name, restarts=False))
        self._start(name, self._once(health, work, on_failure))

    def checks(self) -> list[Check]:
        now = self._clock.monotonic()
        return [health.check(now, self._settle) for health in self._health.values()]

    def failures(self) -> dict[str, int]:
        return {name: health.failures for name, health in self._health.items()}

    def _start(self, name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _keep(self, health: Health, work: Work, on_failure: Failed | None) -> None:
        backoff = Backoff(BACKOFF_FIRST, BACKOFF_MOST, self._random)
        while True:
            begun = self._clock.monotonic()
            try:
                return await self._run(health, work)
            except Exception as error:
                if self._clock.monotonic() - begun >= self._settle:
                    backoff.success()
                pause = backoff.after_failure()
                self._record(health, error, pause)
                if on_failure is not None:
                    on_failure(error)
            await asyncio.sleep(pause)

    async def _once(self, health: Health, work: Work, on_failure: Failed) -> None:
        try:
            await self._run(health, work)
        except Exception as error:
            self._record(health, error, 0.0)
            on_failure(error)

    @staticmethod
    async def _run(health: Health, work: Work) -> None:
        health.running += 1
        try:
            await work()
        finally:
            health.running -= 1

    def _record(self, health: Health, error: Exception, pause: float) -> None:
        health.failed(error, self._clock.monotonic(), pause)
        new = health.is_new(error)
        log.error(
            "a task failed", task=health.name, reason=health.last, failures=health.failures,
            next_step=f"none: started again in {pause:.1f} s" if health.restarts else "none: see what follows",
            exc_info=error if new else None,
        )  # fmt: skip


async def in_thread(name: str, work: Callable[[threading.Event], None]) -> None:
    """Runs `work` in a thread of its own until it returns; a cancelled caller tells it to stop and waits for it."""
    stop, done = threading.Event(), Future[None]()

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name=name, daemon=True).start()
    ended = asyncio.wrap_future(done)
    try:
        await asyncio.wait([ended])
    finally:
        stop.set()
        if not ended.done():
            await asyncio.wait([ended])
        failure = ended.exception()
    if failure is not None:
        raise failure
