"""What every receiver that reads a source must do: subclass `ReceiverSuite` and give it an `end`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from route_place import until
from trunkline.core.errors import Retryable
from trunkline.db.lease import Grant
from trunkline.routes.ends import Place, Receiving, Watch
from trunkline.routes.event import Event
from trunkline.routes.outcome import Done, Outcome
from trunkline.routes.plugin import ReceiverPlugin


class Runner:
    """Takes what it is given. `outcome` says what becomes of an event; while `held`, nothing is done."""

    def __init__(self) -> None:
        self.batches: list[list[Event]] = []
        self.outcome: Callable[[Event], Outcome] = lambda event: Outcome.ACKED
        self.held = False
        self.closed = asyncio.Event()
        self.waiting: list[tuple[list[Event], asyncio.Future[list[Done]]]] = []

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch]

    @property
    def numbers(self) -> list[Any]:
        return [event.payload["n"] for event in self.events]

    async def give(self, events: list[Event], seconds: float, watch: Watch | None = None) -> asyncio.Future[list[Done]]:
        self.batches.append(events)
        future: asyncio.Future[list[Done]] = asyncio.get_running_loop().create_future()
        self.waiting.append((events, future))
        if not self.held:
            self.finish()
        return future

    def finish(self) -> None:
        for events, future in self.waiting:
            future.set_result([Done(event.source.id, self.outcome(event), "as told") for event in events])
        self.waiting.clear()


class ReceiverEnd(ABC):
    plugin: ReceiverPlugin[Any]
    grant: Grant | None = None

    def __init__(self, place: Place, config: dict[str, Any]) -> None:
        self.place, self.config = place, config

    async def open(self) -> Receiving:
        assert self.plugin.open is not None
        return await self.plugin.open(self.plugin.config.model_validate(self.config), self.place)

    @abstractmethod
    async def put(self, *numbers: int) -> None:
        """Events {"n": number} into the source, in this order."""

    @abstractmethod
    async def left(self) -> int:
        """How many the source has that are not done."""

    @abstractmethod
    async def lose(self) -> None: ...

    @abstractmethod
    async def mend(self) -> None: ...


@asynccontextmanager
async def running(end: ReceiverEnd, runner: Runner) -> AsyncIterator[asyncio.Event]:
    """Until the block ends, or the block sets what it is given."""
    receiving, stop = await end.open(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(receiving.run(runner.give, stop, end.grant))
        try:
            yield stop
        finally:
            stop.set()
    await receiving.close()


class ReceiverSuite:
    async def test_n1_events_come_in_the_order_of_their_source(self, end: ReceiverEnd) -> None:
        await end.put(*range(50))
        runner = Runner()
        async with running(end, runner):
            await until(lambda: len(runner.events) == 50)
            await end.put(*range(50, 80))
            await until(lambda: len(runner.events) == 80)
        assert runner.numbers == list(range(80))
        assert len({event.source.id for event in runner.events}) == 80
        assert {event.source.tenant for event in runner.events} == {end.place.tenant}
        assert await end.left() == 0

    async def test_n2_what_was_acked_does_not_come_again(self, end: ReceiverEnd) -> None:
        await end.put(1, 2)
        first, second = Runner(), Runner()
        async with running(end, first):
            await until(lambda: len(first.events) == 2)
        await end.put(3)
        async with running(end, second):
            await until(lambda: second.events)
        assert second.numbers == [3]

    @pytest.mark.parametrize("outcome", [Outcome.NACKED, Outcome.TIMED_OUT])
    async def test_n2_what_failed_comes_again_with_the_same_id(self, end: ReceiverEnd, outcome: Outcome) -> None:
        runner, tried = Runner(), list[str]()

        def fails_twice(event: Event) -> Outcome:
            if event.payload["n"] != 2:
                return Outcome.ACKED
            tried.append(event.source.id)
            return outcome if len(tried) < 3 else Outcome.ACKED

        runner.outcome = fails_twice
        await end.put(1, 2, 3)
        async with running(end, runner):
            await until(lambda: len(tried) == 3)
        assert len(set(tried)) == 1
        assert sorted(runner.numbers) == [1, 2, 2, 2, 3]
        assert await end.left() == 0

    async def test_n3_a_stop_waits_for_what_was_given_and_reads_no_more(self, end: ReceiverEnd) -> None:
        runner = Runner()
        runner.held = True
        await end.put(1, 2)
        receiving, stop = await end.open(), asyncio.Event()
        task = asyncio.create_task(receiving.run(runner.give, stop, end.grant))
        await until(lambda: len(runner.events) == 2)
        stop.set()
        await end.put(3)
        done, _ = await asyncio.wait([task], timeout=0.6)
        assert not done
        runner.finish()
        await task
        await receiving.close()
        assert runner.numbers == [1, 2]
        assert await end.left() == 1

    async def test_n1_only_so_much_is_under_way_at_once(self, end: ReceiverEnd) -> None:
        end.config["batchEntries"] = 5
        runner = Runner()
        runner.held = True
        await end.put(*range(200))
        async with running(end, runner):
            await until(lambda: len(runner.waiting) >= 2)
            await asyncio.sleep(0.5)
            assert len(runner.events) <= 40
            runner.held = False
            runner.finish()
            await until(lambda: len(runner.events) == 200)
        assert runner.numbers == list(range(200))

    async def test_n3_n6_a_source_that_is_away_is_retryable_and_nothing_is_lost(self, end: ReceiverEnd) -> None:
        await end.put(1)
        await end.lose()
        receiving, runner, stop = await end.open(), Runner(), asyncio.Event()
        with pytest.raises(Retryable):
            await receiving.run(runner.give, stop, end.grant)
        await end.mend()
        task = asyncio.create_task(receiving.run(runner.give, stop, end.grant))
        await until(lambda: runner.events)
        await end.lose()
        with pytest.raises(Retryable):
            await asyncio.wait_for(task, 30)
        await end.mend()
        await end.put(2)
        task = asyncio.create_task(receiving.run(runner.give, stop, end.grant))
        await until(lambda: 2 in runner.numbers)
        stop.set()
        await task
        await receiving.close()
        assert await end.left() == 0
