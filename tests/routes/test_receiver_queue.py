"""The queue receiver: entries of a client's receive queues, each queue in its order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, closing
from typing import Any

import psycopg
import pytest

from cut_wire import Wire, wired
from route_place import place_at, until
from route_receiver_suite import ReceiverEnd, ReceiverSuite, Runner, running
from trunkline.core.errors import Fenced
from trunkline.core.ids import START, Position
from trunkline.core.jsoncodec import dumps
from trunkline.db.lease import Grant, acquire
from trunkline.db.pool import open_pool
from trunkline.queues.receive import PostgresSink
from trunkline.routes.event import Event
from trunkline.routes.outcome import Outcome
from trunkline.routes.receivers.queue import QUEUE
from trunkline.routes.receivers.queue_consumer import consumer_name
from trunkline.trunk.log import Entry

LOG = "5f0c1f0e-0000-4000-8000-000000000001"
_EMPTY = """
TRUNCATE queues.receive, queues.queue, queues.session, queues.consumer, queues.consumed, queues.dead_letter,
         queues.closed_slot, site.lease RESTART IDENTITY;
UPDATE queues.receiver SET slot = 0, slot_since = now();
"""


def granted(dsn: str, name: str) -> Grant:
    with psycopg.connect(dsn) as conn:
        conn.execute("UPDATE site.lease SET expires_at = '-infinity' WHERE name = %s", (name,))
        grant = acquire(conn, name, 600)
    assert grant is not None
    return grant


class FromQueue(ReceiverEnd):
    plugin = QUEUE
    wire: Wire
    direct: str

    def ready(self, stack: AsyncExitStack) -> None:
        self.grant = granted(self.direct, "routes:queue:app")
        pool = stack.enter_context(closing(open_pool(self.direct, 2, "test")))
        self.sink = PostgresSink(pool, granted(self.direct, "sink"))
        self.seqs: dict[str, int] = {}

    async def put(self, *numbers: int) -> None:
        await self.arrive("leaf", *[dumps({"n": n}) for n in numbers])

    async def arrive(self, origin: str, *payloads: bytes) -> None:
        await asyncio.to_thread(self._arrive, origin, payloads)

    def _arrive(self, origin: str, payloads: tuple[bytes, ...]) -> None:
        if origin not in self.seqs:
            self.seqs[origin] = 0
            assert self.sink.use_log(origin, "app", LOG, START)
            self.sink.applied(origin)
        first = self.seqs[origin] + 1
        entries = [Entry(seq, "app", ("hub",), {"k": "v"}, payload) for seq, payload in enumerate(payloads, first)]
        self.seqs[origin] += len(entries)
        self.sink.append(origin, LOG, entries, Position(self.seqs[origin], 1), ["app"])

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.direct) as conn:
            return conn.execute(query.encode()).fetchall()

    async def left(self) -> int:
        query = "SELECT coalesce(sum(head), 0) - (SELECT coalesce(sum(position), 0) FROM queues.consumed) FROM queues.queue"
        [(left,)] = await asyncio.to_thread(self.ask, query)
        return int(left)

    async def lose(self) -> None:
        await self.wire.cut()

    async def mend(self) -> None:
        await self.wire.mend()


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    return make_databases("queues", "routes")


@pytest.fixture
async def end(database: str) -> AsyncIterator[FromQueue]:
    with psycopg.connect(database) as conn:
        conn.execute(_EMPTY.encode())
        host, port = conn.info.host, conn.info.port
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(wired(host, port))
        near = psycopg.conninfo.make_conninfo(database, host="127.0.0.1", port=wire.port)
        place = await stack.enter_async_context(place_at(near))
        end = FromQueue(place, {"client": "app", "acknowledgeTimeout": 5.0})
        end.wire, end.direct = wire, database
        end.ready(stack)
        yield end


class TestQueueReceiver(ReceiverSuite):
    pass


async def test_an_event_says_where_it_comes_from_and_what_is_no_json_is_a_text(end: FromQueue) -> None:
    await end.arrive("leaf", b'{"n":1}', b"no json \xff")
    runner = Runner()
    async with running(end, runner):
        await until(lambda: len(runner.events) == 2)
    first, second = runner.events
    about = {"client": "app", "source": "leaf", "id": "leaf/1/0", "kind": "log", "headers": {"k": "v"}}
    assert (first.payload, first.metadata, first.source.id) == ({"n": 1}, {"queue": about}, "leaf/1/0")
    assert second.payload == "no json \ufffd"
    assert second.metadata["queue"]["text"] is True


async def test_behind_what_failed_its_queue_waits_and_other_queues_go_on(end: FromQueue) -> None:
    end.config["batchEntries"] = 1
    runner, let_go = Runner(), False

    def outcome(event: Event) -> Outcome:
        stuck = event.metadata["queue"]["source"] == "leaf" and event.payload["n"] == 1 and not let_go
        return Outcome.NACKED if stuck else Outcome.ACKED

    runner.outcome = outcome
    await end.put(1, 2, 3, 4, 5)
    await end.arrive("shop", *[dumps({"n": n}) for n in range(10, 20)])
    async with running(end, runner):
        await until(lambda: len([n for n in runner.numbers if n >= 10]) == 10 and runner.numbers.count(1) >= 3)
        assert set(runner.numbers) <= {1, 2, *range(10, 20)}, "at most one batch more was under way"
        let_go = True
        await until(lambda: 5 in runner.numbers)
    assert await end.left() == 0
    assert [n for n in dict.fromkeys(runner.numbers) if n < 10] == [1, 2, 3, 4, 5]


async def test_a_new_route_may_begin_behind_all_that_is_there_and_hears_new_sites_from_their_start(end: FromQueue) -> None:
    end.config["startAt"] = "newest"
    await end.put(1, 2)
    runner = Runner()
    async with running(end, runner):
        await until(lambda: asyncio.to_thread(end.ask, "SELECT FROM queues.consumer"))
        await end.put(3)
        await end.arrive("shop", b'{"n":10}')
        await until(lambda: len(runner.events) == 2)
    assert sorted(runner.numbers) == [3, 10]


async def test_h01_whoever_lost_the_grant_writes_nothing_down(end: FromQueue) -> None:
    runner = Runner()
    runner.held = True
    await end.put(1)
    receiving, stop = await end.open(), asyncio.Event()
    task = asyncio.create_task(receiving.run(runner.give, stop, end.grant))
    await until(lambda: runner.events)
    end.grant = granted(end.direct, "routes:queue:app")
    runner.finish()
    with pytest.raises(Fenced):
        await task
    await receiving.close()
    assert await end.left() == 1
    again = Runner()
    async with running(end, again):
        await until(lambda: again.events)
    assert again.numbers == [1]


async def test_a_route_that_was_away_for_too_long_goes_on_with_what_is_kept(end: FromQueue) -> None:
    await end.put(1)
    async with running(end, first := Runner()):
        await until(lambda: first.events)
    with psycopg.connect(end.direct) as conn:
        conn.execute("UPDATE queues.consumer SET detached_at = now()")
    runner = Runner()
    await end.put(2)
    async with running(end, runner):
        await until(lambda: 2 in runner.numbers)


def test_whatever_a_plugin_is_called_its_consumer_has_a_name() -> None:
    assert consumer_name("p1") == "routes-p1"
    odd = consumer_name("My Org/app")
    assert odd.startswith("routes-")
    assert odd == consumer_name("My Org/app") != consumer_name("My Org/App")
