"""Tasks end though a cancellation gets lost."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from trunkline.net.tasks import Tasks, end, together


async def deaf(times: int) -> None:
    for _ in range(times):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3_600)
    await asyncio.sleep(3_600)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.net.tasks.AGAIN_SECONDS", 0.01)


async def test_an_owner_s_tasks_end_though_one_did_not_hear_of_it() -> None:
    tasks = Tasks()
    ends = [tasks.spawn(deaf(times), f"deaf {times} times") for times in range(3)]
    await tasks.cancel()
    assert all(task.cancelled() for task in ends)
    assert len(tasks) == 0


async def test_a_task_that_hears_is_told_once() -> None:
    told = 0

    async def cleans_up() -> None:
        nonlocal told
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            told += 1
            raise

    task = asyncio.create_task(cleans_up())
    await asyncio.sleep(0)
    await end([task])
    assert told == 1


async def test_who_is_cancelled_again_while_it_ends_others_leaves_none_behind() -> None:
    tasks = [asyncio.create_task(deaf(times)) for times in range(3)]
    ends = asyncio.create_task(end(tasks))
    for _ in range(4):
        await asyncio.sleep(0)
        ends.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ends
    assert all(task.cancelled() for task in tasks)


async def test_who_runs_together_ends_together_though_one_did_not_hear_of_it() -> None:
    both = asyncio.create_task(together(deaf(2), deaf(0)))
    await asyncio.sleep(0)
    await end([both])
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_the_first_that_fails_ends_the_others_and_is_raised() -> None:
    async def fails() -> None:
        raise ConnectionError("the broker is away")

    with pytest.raises(ConnectionError, match="broker"):
        await together(deaf(1), fails())
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
