"""Three instances that lose deltas, crash, fail to start and write at once, against a model that is one dictionary (G5).

A crash ends all that an instance does, wherever it stands; what it had stored is stored, what it had not told nobody hears.

Every step runs the event loop for a number of turns that is drawn too, so that steps overlap in all ways. Whatever happened,
once the faults end and every instance has repaired itself, all tables are the stored one and exactly what they name runs."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from routes_in_memory import TENANT, Instance, Site, hash_of, key, route
from trunkline.core.errors import TrunklineError
from trunkline.routes.shared import End
from trunkline.routes.storage.base import Body, Change, Put, Remove

T = TypeVar("T")
NAMES = ("i1", "i2", "i3")
IDS = st.sampled_from("abcd")
MARKS = st.integers(0, 3)
AT = st.sampled_from(NAMES)
TURNS = st.integers(0, 12)
SLOW, BROKEN = 2, 3
"""Marks of configurations that some instances start slowly, or not at all."""


OWNER = ContextVar("OWNER", default="")
"""The instance whose work this is."""


class Works:
    """The tasks of each instance."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._of = loop, defaultdict[str, set[asyncio.Task[Any]]](set)
        loop.set_task_factory(self._made)

    def _made(self, loop: asyncio.AbstractEventLoop, work: Any, context: Any = None) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, context=context)
        mine = self._of[OWNER.get()]
        mine.add(task)
        task.add_done_callback(mine.discard)
        return task

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """What begins in it is that instance's."""
        token = OWNER.set(name)
        try:
            yield
        finally:
            OWNER.reset(token)

    async def end(self, name: str) -> None:
        tasks = list(self._of.pop(name, ()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def body_of(mark: int, inactive: bool) -> dict[str, Any]:
    return route(mark, receiver=f"R{mark % 2}", inactive=inactive)


class SiteFollowsTheModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.works = Works(self.loop)
        self.writing: list[asyncio.Task[None]] = []
        self.model: dict[str, Body] = {}
        self.site = self.do(self._begin())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Who hangs fails, so that the run can be made shorter: the test's own limit comes only once."""

        async def in_time() -> T:
            async with asyncio.timeout(60.0):
                return await work

        return self.loop.run_until_complete(in_time())

    async def _begin(self) -> Site:
        site = Site()
        site.storage.made = self._made
        for name in NAMES:
            with self.works.of(name):
                await site.join(name)
        return site

    def _made(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, Put):
                self.model[change.key.id] = change.body
            else:
                self.model.pop(change.key.id, None)

    @property
    def running(self) -> list[Instance]:
        return list(self.site.instances.values())

    def turn(self, turns: int, *work: tuple[str, Coroutine[Any, Any, None]]) -> None:
        """Begins the work, each at an instance, and lets everything go on for a while."""

        async def go_on() -> None:
            for at, each in work:
                with self.works.of(at):
                    self.writing.append(asyncio.create_task(each))
            for _ in range(turns):
                await asyncio.sleep(0)

        self.do(go_on())

    async def _write(self, at: str, changes: list[Put | Remove]) -> None:
        if at in self.site.instances:
            with suppress(TrunklineError):
                await self.site.instances[at].manager.change(changes)

    @rule(at=AT, id=IDS, mark=MARKS, inactive=st.booleans(), turns=TURNS)
    def add(self, at: str, id: str, mark: int, inactive: bool, turns: int) -> None:
        body = body_of(mark, inactive)
        self.turn(turns, (at, self._write(at, [Put(key(id), hash_of(TENANT, body), body)])))

    @rule(at=AT, id=IDS, turns=TURNS)
    def remove(self, at: str, id: str, turns: int) -> None:
        self.turn(turns, (at, self._write(at, [Remove(key(id))])))

    @rule(at=AT, mark=MARKS, gone=IDS, turns=TURNS)
    def change_several(self, at: str, mark: int, gone: str, turns: int) -> None:
        body = body_of(mark, inactive=False)
        puts = [Put(key(id), hash_of(TENANT, body), body) for id in "abcd" if id != gone]
        self.turn(turns, (at, self._write(at, [Remove(key(gone)), *puts])))

    @rule(id=IDS, marks=st.lists(MARKS, min_size=2, max_size=6), turns=TURNS)
    def write_at_once(self, id: str, marks: list[int], turns: int) -> None:
        bodies = [body_of(mark, inactive=False) for mark in marks]
        writers = [(NAMES[n % 3], [Put(key(id), hash_of(TENANT, body), body)]) for n, body in enumerate(bodies)]
        self.turn(turns, *[(at, self._write(at, list(changes))) for at, changes in writers])

    @rule(at=AT, id=IDS, turns=TURNS)
    def reload(self, at: str, id: str, turns: int) -> None:
        async def reload() -> None:
            with suppress(TrunklineError):
                await manager.reload([key(id)])

        if at in self.site.instances:
            manager = self.site.instances[at].manager
            self.turn(turns, (at, reload()))

    @rule(at=AT, deaf=st.booleans())
    def lose_deltas(self, at: str, deaf: bool) -> None:
        if at in self.site.instances:
            self.site.instances[at].syncer.deaf = deaf

    @rule(at=AT, broken=st.booleans(), slow=st.booleans())
    def disturb_starts(self, at: str, broken: bool, slow: bool) -> None:
        if at in self.site.instances:
            runner = self.site.instances[at].runner
            bad, late = (hash_of(TENANT, body_of(mark, False)) for mark in (BROKEN, SLOW))
            runner.broken = {bad} if broken else set()
            runner.gates.setdefault(late, asyncio.Event())
            (runner.gates[late].clear if slow else runner.gates[late].set)()

    @rule(away=st.booleans(), silent=st.booleans())
    def disturb_the_storage(self, away: bool, silent: bool) -> None:
        self.site.storage.away, self.site.storage.silent = away, silent

    @rule(id=IDS, mark=MARKS, turns=TURNS)
    def crash_between_storing_and_publishing(self, id: str, mark: int, turns: int) -> None:
        async def write() -> None:
            body = body_of(mark, inactive=False)
            with suppress(TrunklineError):
                await self.site.storage.change([Put(key(id), hash_of(TENANT, body), body)])

        self.turn(turns, ("", write()))

    @rule(at=AT, turns=TURNS)
    def repair(self, at: str, turns: int) -> None:
        async def repair() -> None:
            with suppress(TrunklineError):
                await manager.repair()

        if at in self.site.instances:
            manager = self.site.instances[at].manager
            self.turn(turns, (at, repair()))

    @precondition(lambda self: len(self.site.instances) > 1)
    @rule(at=AT)
    def stop(self, at: str) -> None:
        if at in self.site.instances:
            left = self.do(self.site.leave(at))
            assert left.runner.running == {}
            assert left.runner.balanced

    @precondition(lambda self: len(self.site.instances) > 1)
    @rule(at=AT, turns=TURNS, id=IDS, marks=st.lists(MARKS, max_size=3))
    def crash(self, at: str, turns: int, id: str, marks: list[int]) -> None:
        """In the midst of what it writes."""
        if at in self.site.instances:
            bodies = [body_of(mark, inactive=False) for mark in marks]
            self.turn(turns, *[(at, self._write(at, [Put(key(id), hash_of(TENANT, body), body)])) for body in bodies])
            del self.site.instances[at]
            self.do(self.works.end(at))

    @precondition(lambda self: len(self.site.instances) < 3 and not self.site.storage.away)
    @rule(at=AT)
    def restart(self, at: str) -> None:
        if at not in self.site.instances:
            self.do(self._join(at))

    async def _join(self, at: str) -> None:
        with self.works.of(at):
            await self.site.join(at)

    @rule()
    def settle(self) -> None:
        """The faults end, every instance repairs itself; then G5 holds, and a second repair finds nothing."""
        self.do(self._settle())

    async def _settle(self) -> None:
        self.site.storage.away = self.site.storage.silent = False
        for instance in self.running:
            instance.syncer.deaf = False
            instance.runner.broken = set()
            for gate in instance.runner.gates.values():
                gate.set()
        found = await asyncio.gather(*self.writing, return_exceptions=True)
        self.writing = []
        assert not [error for error in found if isinstance(error, Exception)]
        await asyncio.gather(*[instance.manager.repair() for instance in self.running])
        await self.site.agrees()
        for instance in self.running:
            assert (await instance.manager.repair()).count == 0
            self._check(instance, await self.site.stored())

    def _check(self, instance: Instance, stored: dict[str, tuple[int, str]]) -> None:
        assert instance.holds() == stored
        assert {id: hash for id, (_, hash) in stored.items()} == {id: hash_of(TENANT, body) for id, body in self.model.items()}
        active = [body for body in self.model.values() if not body["inactive"]]
        assert instance.live() == Counter(hash_of(TENANT, body) for body in active)
        assert {route.hash: route.compiled for route in instance.runner.running.values()} == {
            hash_of(TENANT, body): body for body in active
        }
        assert (instance.manager.table.refused, instance.manager.table.gone) == ({}, {})
        assert instance.runner.balanced
        names = {body["receiver"]["name"] for body in active}
        assert {at.name for at in instance.runner.plugins.users if at.end is End.RECEIVER} == names

    def teardown(self) -> None:
        async def end() -> None:
            await self._settle()
            for name in list(self.site.instances):
                left = await self.site.leave(name)
                assert left.runner.running == {}
                assert left.runner.balanced

        try:
            self.do(end())
        finally:
            self.loop.close()


def test_g5_all_instances_have_the_stored_table_and_run_what_it_says_whatever_happened() -> None:
    run_state_machine_as_test(SiteFollowsTheModel, settings=settings(max_examples=60, stateful_step_count=30))
