"""The redis sender: entries of a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count

import pytest
from redis import Redis

from cut_wire import Wire, wired
from route_place import place_at
from route_sender_suite import SenderEnd, SenderSuite
from trunkline.cli.dev.redis import RedisServer
from trunkline.core.jsoncodec import loads
from trunkline.routes.ends import Sendable
from trunkline.routes.senders.redis import REDIS, Entry

_numbers = count(1)


class ToRedis(SenderEnd):
    plugin = REDIS
    wire: Wire
    server: Redis

    def bad(self) -> Sendable:
        return Sendable("bad", Entry("x" * 1_000))

    async def fields(self) -> list[dict[bytes, bytes]]:
        entries: list[tuple[bytes, dict[bytes, bytes]]] = self.server.xrange(self.config["channel"])  # type: ignore[assignment]
        return [fields for _, fields in entries]

    async def arrived(self) -> list[int]:
        return [loads(fields[b"event"])["n"] for fields in await self.fields()]

    async def ids(self) -> list[str]:
        return [fields[b"id"].decode() for fields in await self.fields()]

    async def lose(self) -> None:
        await self.wire.cut()

    async def mend(self) -> None:
        await self.wire.mend()


@pytest.fixture
async def end(redis_server: RedisServer) -> AsyncIterator[ToRedis]:
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(wired(redis_server.host, redis_server.port))
        place = await stack.enter_async_context(place_at())
        config = {"endpoint": f"127.0.0.1:{wire.port}", "channel": f"route-sender-{next(_numbers)}"}
        end = ToRedis(place, config)
        end.wire, end.server = wire, stack.enter_context(Redis.from_url(redis_server.url))
        yield end


class TestRedisSender(SenderSuite):
    async def test_one_that_cannot_be_sent_is_refused_alone(self, end: SenderEnd) -> None:
        """A stream takes whatever is JSON; only a key that is no stream takes nothing."""
        assert isinstance(end, ToRedis)
        end.server.set(end.config["channel"], "no stream")
        sending = await end.open()
        answers = await sending.send([end.sendable(0), end.sendable(1)])
        assert [answer.again for answer in answers if answer and "WRONGTYPE" in answer.reason] == [False, False]
        await sending.close()


async def test_a_stream_is_kept_about_as_long_as_is_wished(end: ToRedis) -> None:
    end.config["maxLength"] = 100
    sending = await end.open()
    for begin in range(0, 2_000, 500):
        assert not any(await sending.send([end.sendable(n) for n in range(begin, begin + 500)]))
    await sending.close()
    arrived = await end.arrived()
    assert arrived[-1] == 1_999
    assert 100 <= len(arrived) < 500


async def test_a_wrong_password_is_not_in_the_answer(end: ToRedis) -> None:
    end.config |= {"username": "nobody", "password": "hunter2"}
    sending = await end.open()
    [answer] = await sending.send([end.sendable(1)])
    await sending.close()
    assert answer is not None
    assert "hunter2" not in answer.reason
    assert not answer.again
