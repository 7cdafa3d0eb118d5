"""What every sender must do: subclass `SenderSuite` and give it an `end`, which opens it and looks at what arrived."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from route_place import AROUND, event, until
from trunkline.routes.ends import Place, Sendable, Sending, Undelivered
from trunkline.routes.event import Event
from trunkline.routes.plugin import Message, SenderPlugin

KILLED = Path(__file__).parent / "routes" / "killed_route_sender.py"
BATCH = 5  # of the process that is killed


class SenderEnd(ABC):
    """`config` as it is written. The good event n has {"n": n} in its payload."""

    plugin: SenderPlugin[Any]
    ordered = True
    durable = True

    def __init__(self, place: Place, config: dict[str, Any]) -> None:
        self.place, self.config = place, config
        self._message: Message = self.plugin.message(self.model, AROUND)

    @property
    def model(self) -> Any:
        return self.plugin.config.model_validate(self.config)

    async def open(self) -> Sending:
        assert self.plugin.open is not None
        return await self.plugin.open(self.model, self.place)

    def event(self, n: int) -> Event:
        return event({"n": n})

    def sendable(self, n: int, once: bool = False) -> Sendable:
        """As a runner has it that kept it for a while."""
        made = msgspec.json.encode(self._message(self.event(n)))
        return Sendable(f"id-{n}", msgspec.json.decode(made, type=self.plugin.sends), once)

    @abstractmethod
    def bad(self) -> Sendable:
        """One that will never be taken."""

    @abstractmethod
    async def arrived(self) -> list[int]:
        """The numbers, in the order of the place."""

    @abstractmethod
    async def ids(self) -> list[str]:
        """What arrived, by the ids that the place was told."""

    @abstractmethod
    async def lose(self) -> None: ...

    @abstractmethod
    async def mend(self) -> None: ...


async def sent(sending: Sending, messages: Sequence[Sendable]) -> None:
    """However often it takes."""

    async def send() -> bool:
        answers = await sending.send(messages)
        assert all(answer is None or answer.again for answer in answers), answers
        return not any(answers)

    await until(send)


class SenderSuite:
    async def test_what_is_sent_is_there_in_its_order(self, end: SenderEnd) -> None:
        sending = await end.open()
        for begin in range(0, 300, 100):
            assert await sending.send([end.sendable(n) for n in range(begin, begin + 100)]) == [None] * 100
        assert await sending.send([]) == []
        await sending.close()
        arrived = await end.arrived()
        assert (arrived if end.ordered else sorted(arrived)) == list(range(300))

    async def test_one_that_cannot_be_sent_is_refused_alone(self, end: SenderEnd) -> None:
        sending = await end.open()
        answers = await sending.send([end.sendable(0), end.sendable(1), end.bad(), end.sendable(3)])
        refusal = answers[2]
        assert isinstance(refusal, Undelivered)
        assert refusal.reason
        assert not refusal.again
        assert [*answers[:2], answers[3]] == [None] * 3
        await sending.close()
        assert sorted(await end.arrived()) == [0, 1, 3]

    async def test_n6_n4_what_is_away_stops_no_opening_and_may_be_tried_again(self, end: SenderEnd) -> None:
        await end.lose()
        sending = await end.open()
        answers = await sending.send([end.sendable(0), end.sendable(1)])
        assert [answer.again for answer in answers if answer and answer.reason] == [True, True], answers
        await end.mend()
        await sent(sending, [end.sendable(0), end.sendable(1)])
        await end.lose()
        answers = await sending.send([end.sendable(2)])
        assert [answer.again for answer in answers if answer] == [True], answers
        await end.mend()
        await sent(sending, [end.sendable(2)])
        await sending.close()
        arrived = await end.arrived()
        assert list(dict.fromkeys(arrived if end.ordered else sorted(arrived))) == [0, 1, 2]

    async def test_n5_the_place_is_told_a_messages_id(self, end: SenderEnd) -> None:
        sending = await end.open()
        assert await sending.send([end.sendable(n) for n in range(3)]) == [None] * 3
        await sending.close()
        ids = await end.ids()
        assert (ids if end.ordered else sorted(ids)) == ["id-0", "id-1", "id-2"]

    async def test_several_routes_send_at_the_same_time(self, end: SenderEnd) -> None:
        sending = await end.open()
        calls = [[end.sendable(100 * call + n) for n in range(20)] for call in range(8)]
        assert await asyncio.gather(*[sending.send(call) for call in calls]) == [[None] * 20] * 8
        await sending.close()
        arrived = await end.arrived()
        assert sorted(arrived) == [100 * call + n for call in range(8) for n in range(20)]
        if end.ordered:
            for call in range(8):
                assert [n for n in arrived if n // 100 == call] == [100 * call + n for n in range(20)]

    async def test_nothing_that_was_answered_is_lost_when_the_process_is_killed(self, end: SenderEnd) -> None:
        if not end.durable:
            return
        points = random.Random(7)
        for life in range(3):
            last = await asyncio.to_thread(kill_after, end, 1000 * life, points.randint(1, 4), points.uniform(0, 0.05))
            await (await end.open()).close()  # whoever comes next may have to mend something

            async def is_there(life: int = life, last: int = last) -> bool:
                return set(range(1000 * life, last)) <= set(await end.arrived())

            await until(is_there, 20)


def kill_after(end: SenderEnd, begin: int, answers: int, seconds: float) -> int:
    """What was answered ends before this number."""
    words = [sys.executable, KILLED, end.plugin.name, msgspec.json.encode(end.config), end.place.database, str(begin)]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=paths) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(answers)]
        threading.Event().wait(seconds)  # the point is any, so a time is as good as any other
        process.kill()
        told += process.stdout.readlines()
    whole = [line for line in told if line.endswith("\n")]
    assert len(whole) >= answers
    return int(whole[-1])
