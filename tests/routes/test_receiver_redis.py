"""The redis receiver: a stream, read as a consumer of a group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest
from redis import Redis

from cut_wire import Wire, wired
from route_place import place_at, until
from route_receiver_suite import ReceiverEnd, ReceiverSuite, Runner, running
from trunkline.cli.dev.redis import RedisServer
from trunkline.core.jsoncodec import dumps
from trunkline.routes.outcome import Outcome
from trunkline.routes.receivers.redis import REDIS

_numbers = count(1)


class FromRedis(ReceiverEnd):
    plugin = REDIS
    wire: Wire
    server: Redis

    @property
    def key(self) -> str:
        return str(self.config["channel"])

    async def put(self, *numbers: int) -> None:
        for n in numbers:
            self.server.xadd(self.key, {"event": dumps({"n": n}), "id": f"m{n}"})

    async def left(self) -> int:
        """Pending, and not yet read."""
        groups: Any = self.server.xinfo_groups(self.key)
        [group] = groups
        newer: Any = self.server.xrange(self.key, "(" + group["last-delivered-id"].decode())
        return int(group["pending"]) + len(newer)

    async def lose(self) -> None:
        await self.wire.cut()

    async def mend(self) -> None:
        await self.wire.mend()


@pytest.fixture
async def end(redis_server: RedisServer) -> AsyncIterator[FromRedis]:
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(wired(redis_server.host, redis_server.port))
        place = await stack.enter_async_context(place_at())
        channel = f"route-receiver-{next(_numbers)}"
        config = {"endpoint": f"127.0.0.1:{wire.port}", "channel": channel, "startAt": "earliest", "acknowledgeTimeout": 0.3}
        end = FromRedis(place, config)
        end.wire, end.server = wire, stack.enter_context(Redis.from_url(redis_server.url))
        yield end


class TestRedisReceiver(ReceiverSuite):
    pass


async def test_what_a_dead_consumer_left_behind_is_claimed(end: FromRedis) -> None:
    await end.put(1, 2)
    end.server.xgroup_create(end.key, "trunkline-p1", "0")
    end.server.xreadgroup("trunkline-p1", "leaf/dead", {end.key: ">"})
    runner = Runner()
    async with running(end, runner):
        await until(lambda: len(runner.events) == 2)
    assert runner.numbers == [1, 2]
    assert await end.left() == 0


async def test_what_this_instance_had_when_it_was_killed_comes_first_and_at_once(end: FromRedis) -> None:
    end.config["acknowledgeTimeout"] = 3600.0
    await end.put(1, 2)
    end.server.xgroup_create(end.key, "trunkline-p1", "0")
    end.server.xreadgroup("trunkline-p1", "leaf/a", {end.key: ">"})
    await end.put(3)
    runner = Runner()
    async with running(end, runner):
        await until(lambda: len(runner.events) == 3)
    assert runner.numbers == [1, 2, 3]


async def test_what_is_no_json_comes_as_it_is_and_says_so(end: FromRedis) -> None:
    for fields in ({"event": "{torn"}, {"other": "x"}, {"event": b"\xff"}, {"event": "1", "id": "m1"}):
        end.server.xadd(end.key, fields)  # type: ignore[arg-type]
    runner = Runner()
    async with running(end, runner):
        await until(lambda: len(runner.events) == 4)
    assert [event.payload for event in runner.events] == ["{torn", {"other": "x"}, "\ufffd", 1]
    about = [event.metadata["redis"] for event in runner.events]
    assert [one.get("malformed") for one in about] == [True, True, True, None]
    assert about[3]["messageId"] == "m1"
    assert about[3]["stream"] == end.key
    assert await end.left() == 0


async def test_a_new_group_begins_with_what_comes_unless_it_is_told_otherwise(end: FromRedis) -> None:
    end.config["startAt"] = "latest"
    await end.put(1)
    runner = Runner()
    async with running(end, runner):
        await until(lambda: end.server.xinfo_groups(end.key))
        await end.put(2)
        await until(lambda: runner.events)
    assert runner.numbers == [2]


async def test_an_entry_that_was_trimmed_is_not_asked_for_for_ever(end: FromRedis) -> None:
    end.config["acknowledgeTimeout"] = 3600.0
    runner = Runner()
    runner.outcome = lambda event: Outcome.NACKED
    await end.put(1)
    async with running(end, runner):
        await until(lambda: runner.events)
    assert await end.left() == 1
    end.server.xtrim(end.key, maxlen=0, approximate=False)
    runner = Runner()
    async with running(end, runner):
        await end.put(2)
        await until(lambda: runner.events)
    assert runner.numbers == [2]
    assert await end.left() == 0
