"""Tasks that crash come back, say why, and turn well again; nothing outlives the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from trunkline.core.clock import ManualClock
from trunkline.core.health import Check
from trunkline.node.supervise import SETTLE_SECONDS, Health, Supervisor, in_thread

SOON = 20.0


class Flaky:
    """Fails as often as told, then runs until it is cancelled."""

    def __init__(self, failures: int, error: Callable[[int], Exception] = lambda n: ValueError(f"no {n}")) -> None:
        self.runs, self.ended = 0, False
        self.well = asyncio.Event()
        self._failures, self._error = failures, error

    async def __call__(self) -> None:
        self.runs += 1
        if self.runs <= self._failures:
            raise self._error(self.runs)
        self.well.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True


def supervisor(clock: ManualClock | None = None) -> Supervisor:
    return Supervisor(clock or ManualClock(), lambda: 0.0)


async def test_a_task_that_crashes_starts_again_until_it_runs() -> None:
    flaky = Flaky(2)
    async with supervisor() as one:
        one.keep("tick", flaky)
        await asyncio.wait_for(flaky.well.wait(), SOON)
        assert one.failures() == {"tick": 2}
    assert flaky.runs == 3
    assert flaky.ended


async def test_a_crash_shows_as_a_check_until_the_task_ran_well_for_a_while() -> None:
    clock, flaky = ManualClock(), Flaky(1)
    async with supervisor(clock) as one:
        one.keep("tick", flaky)
        assert one.checks() == [Check("task tick", True, "at rest")]
        await asyncio.sleep(0)
        [check] = one.checks()
        assert not check.ok
        assert check.reason == "restarted 1 time, last: ValueError: no 1; backing off 0.1 s"
        await asyncio.wait_for(flaky.well.wait(), SOON)
        clock.advance(SETTLE_SECONDS / 2)
        assert not one.checks()[0].ok
        clock.advance(SETTLE_SECONDS)
        [check] = one.checks()
        assert check.ok
        assert check.reason.startswith("restarted 1 time, last: ValueError: no 1; well for")


def test_a_backoff_is_told_in_seconds() -> None:
    health = Health("tick", restarts=True)
    for n in range(3):
        health.failed(ValueError(f"bad\nnumber {n}"), 100.0, 2.0)
    assert health.check(100.0, 10.0) == Check(
        "task tick", False, "restarted 3 times, last: ValueError: bad number 2; backing off 2.0 s"
    )


async def test_the_same_error_is_written_with_its_traceback_once() -> None:
    def error(n: int) -> Exception:
        return KeyError("other") if n == 3 else ValueError(f"number {n}")

    flaky = Flaky(4, error)
    with capture_logs() as said:
        async with supervisor() as one:
            one.keep("tick", flaky)
            await asyncio.wait_for(flaky.well.wait(), SOON)
    failures = [entry for entry in said if entry["event"] == "a task failed"]
    assert [entry["exc_info"] is not None for entry in failures] == [True, False, True, False]
    assert [entry["failures"] for entry in failures] == [1, 2, 3, 4]


async def test_whoever_asked_for_a_job_hears_of_its_failure_and_it_is_not_tried_again() -> None:
    heard: asyncio.Queue[Exception] = asyncio.Queue()
    flaky = Flaky(1)
    async with supervisor() as one:
        one.once("work", flaky, heard.put_nowait)
        error = await asyncio.wait_for(heard.get(), SOON)
        assert str(error) == "no 1"
        assert one.checks()[0].reason == "failed 1 time, last: ValueError: no 1; well for 0 s"
    assert flaky.runs == 1


async def test_leaving_cancels_what_runs_and_a_body_s_error_gets_out() -> None:
    running, waiting = Flaky(0), Flaky(99)
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="the body")):
        async with supervisor() as one:
            one.keep("running", running)
            one.keep("backing off", waiting)
            await asyncio.wait_for(running.well.wait(), SOON)
            raise RuntimeError("the body")
    assert running.ended


async def test_a_kept_task_can_be_stopped_alone() -> None:
    first, second = Flaky(0), Flaky(0)
    async with supervisor() as one:
        kept = one.keep("first", first)
        one.keep("second", second)
        await asyncio.gather(first.well.wait(), second.well.wait())
        await kept.stop()
        assert (first.ended, second.ended) == (True, False)


async def test_a_cancelled_thread_is_told_to_stop_and_waited_for() -> None:
    entered, left = threading.Event(), threading.Event()

    def work(stop: threading.Event) -> None:
        entered.set()
        stop.wait()
        left.set()

    async with supervisor() as one:
        one.keep("thread", lambda: in_thread("thread", work))
        assert await asyncio.to_thread(entered.wait, SOON)
    assert left.is_set()


async def test_a_thread_s_error_is_the_task_s() -> None:
    def work(stop: threading.Event) -> None:
        raise ValueError("in the thread")

    with pytest.raises(ValueError, match="in the thread"):
        await in_thread("thread", work)


async def test_the_supervisor_ends_though_a_task_did_not_hear_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.net.tasks.AGAIN_SECONDS", 0.01)
    waits = asyncio.Event()

    async def deaf() -> None:
        waits.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async with supervisor() as one:
        one.keep("deaf", deaf)
        await waits.wait()
