"""Sending from tasks and from the driver: open senders, kept between batches, and what became of each message.

D1  Of one sender at most one call is under way, so the order of what it is given is kept. Several senders work side by side.
D2  When a message of a route could not be sent now, what comes behind it in that route is not sent either (H33).
D3  A sender that can take many messages without being asked about each (`SenderPlugin.bulk`) is given them so; all others run
    on an event loop of this process, as they do at a node.
D4  A sender that raises has not sent anything of that call: another try may help, unless it says otherwise.
D5  Messages that nobody keeps (`fire_and_forget`) do not wait for a sender that is away (`trunkline.routes.leaves`): it gets no
    more of them in this batch, and none for a while. They count as failed.
"""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool

from trunkline.core.clock import SystemClock
from trunkline.core.errors import Retryable, TrunklineError
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.pipeline.jobs.stage import Item, Unsent
from trunkline.routes.ends import Bulk, Give, Pool, Sending, Undelivered
from trunkline.routes.keys import Tenant
from trunkline.routes.leaves import LEFT_OUT, PROBE_SECONDS, Leaves
from trunkline.routes.local.here import Here
from trunkline.routes.local.lane import BEHIND
from trunkline.routes.local.opening import Opening
from trunkline.routes.registry import Registry, registry
from trunkline.routes.shared import PluginKey
from trunkline.routes.within import sent_within

MOST_OPEN = 256  # senders of one process; each may hold threads and connections
CONNECTIONS = 4
UNDER_WAY = 4  # calls of one sender that may wait: tasks are not faster than their senders
SEND_SECONDS = 30.0
REST_SECONDS = 2.0

T = TypeVar("T")


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        return self.start(work).result(seconds)

    def close(self) -> None:
        """What was started may end, if that does not take long."""
        self.run(self._rest())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        if not self._thread.is_alive():
            self.loop.close()

    async def _rest(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=REST_SECONDS)


class _NoHooks:
    """Senders hear of no posts."""

    def add(self, tenant: Tenant, method: str, path: str, give: Give, seconds: float) -> Callable[[], None]:
        raise NotImplementedError("a sender takes nothing")


class Senders:
    """Those that are open in this process, by what they are; the one that was used longest ago is closed when there are too
    many."""

    def __init__(self, settings: JobSettings, loop: Loop, plugins: Registry | None = None) -> None:
        self.loop = loop
        self._plugins = plugins or registry()
        self._settings = settings
        self._opening: Opening | None = None
        self._pool: Pool | None = None
        self._open: dict[PluginKey, Sending] = {}
        self._bulk: dict[PluginKey, Bulk] = {}
        self._closed = False
        self.leaves = Leaves(SystemClock(), random.random)

    def bulk(self, item: Item) -> Bulk:
        key = item.route.sender
        if key not in self._bulk:
            assert item.route.plugin.bulk is not None, "it is a sender for bulk"
            _make_room(self._bulk)
            config, place = self._opened().followed(key, item.route.use)
            self._bulk[key] = item.route.plugin.bulk(config, place)
        self._bulk[key] = found = self._bulk.pop(key)
        return found

    async def send(self, key: PluginKey, items: Sequence[Item], seconds: float = SEND_SECONDS) -> Sequence[Undelivered | None]:
        """On the loop."""
        messages = [item.sendable for item in items]
        try:
            until = time.monotonic() + seconds
            async with asyncio.timeout(seconds):
                sending = await self._sending(key, items[0])
            answers = await sent_within(sending, messages, until - time.monotonic())
            if len(answers) == len(messages):
                return answers
            why = Undelivered(f"the sender gave {len(answers)} answers for {len(messages)} messages", again=True)
        except TimeoutError:
            why = Undelivered(f"the sender did not answer within {seconds:g} s", again=True)
        except Exception as error:
            why = undelivered(error)
        return [why] * len(messages)

    async def close(self) -> None:
        """On the loop."""
        self._closed = True
        for bulk in self._bulk.values():
            bulk.close()
        self._bulk.clear()
        await asyncio.gather(*[sending.close() for sending in self._open.values()])
        self._open.clear()
        if self._opening is not None:
            await self._opening.close()
        if self._pool is not None:
            await self._pool.close()

    async def _sending(self, key: PluginKey, item: Item) -> Sending:
        if self._closed:
            raise Retryable("senders", "the job has ended", "whoever runs the group now goes on")
        found = self._open.pop(key, None)
        if found is None:
            if len(self._open) >= MOST_OPEN:
                await self._open.pop(next(iter(self._open))).close()
            opening = self._opened()
            if self._pool is not None and self._pool.closed:
                await self._pool.open()
            found = await opening.sender(key, item.route.use)
        self._open[key] = found
        return found

    def _opened(self) -> Opening:
        if self._opening is None:
            s = self._settings
            self._pool = AsyncConnectionPool[psycopg.AsyncConnection[Any]](
                s.dsn, min_size=0, max_size=CONNECTIONS, open=False, name="route-senders",
                check=AsyncConnectionPool.check_connection,
                kwargs={
                    "application_name": "trunkline-route-senders", "tcp_user_timeout": 10_000,
                    "options": "-c idle_in_transaction_session_timeout=3000 -c jit=off",
                },
            )  # fmt: skip
            here = Here(s.site, s.instance, s.dsn, self._pool, SystemClock(), random.random)
            self._opening = Opening(here, self._plugins, s.secrets, _NoHooks())
        return self._opening


def undelivered(error: Exception) -> Undelivered:
    """D4."""
    if isinstance(error, TrunklineError):
        return Undelivered(f"{error.what}: {error.why}", isinstance(error, Retryable))
    return Undelivered(f"the sender raised {type(error).__name__}: {error}", again=True)


def _make_room(open: dict[PluginKey, Bulk]) -> None:
    if len(open) >= MOST_OPEN:
        open.pop(next(iter(open))).close()


class Delivery:
    """A `Deliver` (`trunkline.pipeline.jobs.stage`): of one task, or of the driver for one batch. `seconds`: of a call."""

    def __init__(self, senders: Senders, seconds: float = SEND_SECONDS) -> None:
        self._senders, self._seconds = senders, seconds
        self._calls: dict[PluginKey, list[Future[None]]] = {}
        self._bulk: dict[PluginKey, tuple[Bulk, list[Item]]] = {}
        self._sent: list[Item] = []
        self._unsent: list[Unsent] = []
        self._stopped: set[str] = set()
        self._away: set[PluginKey] = set()

    def put(self, items: Sequence[Item]) -> None:
        key = items[0].route.sender
        if items[0].route.plugin.bulk is not None:
            return self._put_bulk(key, items)
        calls = self._calls.setdefault(key, [])
        before = calls[-1] if calls else None
        if len(calls) >= UNDER_WAY:
            calls.pop(0).result()
        calls.append(self._senders.loop.start(self._call(key, list(items), before)))
        return None

    def _put_bulk(self, key: PluginKey, items: Sequence[Item]) -> None:
        going = self._going(key, items)
        if not going:
            return
        try:
            held = self._bulk.get(key)
            bulk = held[0] if held is not None else self._senders.bulk(going[0])
            bulk.put([item.sendable for item in going])
        except Exception as error:
            self._raised(going, error)
        else:
            self._bulk.setdefault(key, (bulk, []))[1].extend(going)

    def _going(self, key: PluginKey, items: Sequence[Item]) -> Sequence[Item]:
        """Without those that are not sent (D2, D5)."""
        away = key in self._away or self._senders.leaves.on(key)
        if not away and not self._stopped:
            return items
        going: list[Item] = []
        for item in items:
            if item.route.hash in self._stopped:
                self._unsent.append(Unsent(item, Undelivered(BEHIND, again=True)))
            elif away and not item.route.sure:
                self._unsent.append(Unsent(item, LEFT_OUT))
            else:
                going.append(item)
        return going

    def _raised(self, items: Sequence[Item], error: Exception) -> None:
        """D4; some of them may have been sent all the same."""
        why = undelivered(error)
        self._unsent += [Unsent(item, why) for item in items]
        if why.again:
            self._stopped.update(item.route.hash for item in items if item.route.sure)

    def finish(self) -> tuple[list[Item], list[Unsent]]:
        for calls in self._calls.values():
            for call in calls:
                call.result()
        for key, (bulk, items) in self._bulk.items():
            began = time.monotonic()
            undelivered = bulk.finish()
            self._hear(items, undelivered)
            self._fared(key, [undelivered.get(item.sendable.id) for item in items], time.monotonic() - began)
        sent, unsent, self._sent, self._unsent = self._sent, self._unsent, [], []
        self._calls, self._bulk = {}, {}
        return sent, unsent

    def _hear(self, items: list[Item], undelivered: dict[str, Undelivered]) -> None:
        if not undelivered:
            self._sent += items
            return
        for item in items:
            why = undelivered.get(item.sendable.id)
            self._sent.append(item) if why is None else self._unsent.append(Unsent(item, why))

    async def _call(self, key: PluginKey, items: list[Item], before: Future[None] | None) -> None:
        if before is not None:
            await asyncio.wrap_future(before)
        going = self._going(key, items)
        if not going:
            return
        probes = self._senders.leaves.began(key) and not any(item.route.sure for item in going)
        seconds = min(PROBE_SECONDS, self._seconds) if probes else self._seconds
        began = time.monotonic()
        answers = await self._senders.send(key, going, seconds)
        took = time.monotonic() - began
        for item, why in zip(going, answers, strict=True):
            if why is None:
                self._sent.append(item)
            else:
                self._unsent.append(Unsent(item, why))
                if why.again and item.route.sure:
                    self._stopped.add(item.route.hash)
        self._fared(key, answers, took, seconds)

    def _fared(self, key: PluginKey, answers: Sequence[Undelivered | None], took: float, seconds: float = math.inf) -> None:
        """D5"""
        if self._senders.leaves.fared(key, answers, took, seconds):
            self._away.add(key)


_kept: dict[tuple[str, str], Senders] = {}
_loop: Loop | None = None


def senders_of_worker(settings: JobSettings) -> Senders:
    """Those of this process, kept between tasks."""
    global _loop
    if _loop is None:
        _loop = Loop("route-senders")
    name = (settings.dsn, settings.group)
    if name not in _kept:
        _kept[name] = Senders(settings, _loop)
    return _kept[name]
