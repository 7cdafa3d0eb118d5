"""The delta syncers: in memory, by a real Postgres and by a real Redis."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import psycopg
import pytest
from redis import Redis
from structlog.testing import capture_logs

from route_ears import joined, listening, until
from route_sync_suite import ServerSuite, SyncSuite
from trunkline.cli.dev.redis import RedisServer
from trunkline.db.embedded import EmbeddedPostgres, free_port
from trunkline.db.migrate import migrate
from trunkline.routes.sync.carrier import Channel
from trunkline.routes.sync.memory import MemoryHub, MemorySyncer
from trunkline.routes.sync.postgres import PostgresSyncer
from trunkline.routes.sync.redis import RedisSyncer

_OURS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'trunkline-routes-%'"
_CUT = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = %s"


class InMemory:
    def __init__(self) -> None:
        self.hub = MemoryHub()

    def syncer(self, instance: str) -> MemorySyncer:
        return MemorySyncer(self.hub, instance)

    async def say(self, channel: Channel, text: str) -> None:
        self.hub.say(channel, text)

    async def connections(self) -> int:
        return self.hub.listeners

    async def lose(self) -> None:
        self.hub.lose()

    async def mend(self) -> None:
        self.hub.mend()


class ByPostgres:
    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server = server

    def syncer(self, instance: str) -> PostgresSyncer:
        return PostgresSyncer(self.server.dsn, instance)

    async def say(self, channel: Channel, text: str) -> None:
        with psycopg.connect(self.server.dsn) as conn:
            conn.execute("SELECT pg_notify(%s, %s)", (f"routes_{channel.value}", text))

    async def connections(self) -> int:
        return self._number(_OURS)

    async def cut(self, which: str) -> int:
        return self._number(_CUT, f"trunkline-routes-{which}")

    def _number(self, query: str, *args: str) -> int:
        with psycopg.connect(self.server.dsn) as conn:
            row = conn.execute(query.encode(), args or None).fetchone()
        assert row is not None
        return int(row[0])

    async def lose(self) -> None:
        await asyncio.to_thread(self.server.stop)

    async def mend(self) -> None:
        self.server.start()  # here: it dies with the thread that starts it


class ByRedis:
    def __init__(self, server: RedisServer) -> None:
        self.server = server

    def syncer(self, instance: str) -> RedisSyncer:
        return RedisSyncer(self.server.url, instance)

    async def say(self, channel: Channel, text: str) -> None:
        with Redis.from_url(self.server.url) as client:
            client.publish(f"ears_{channel.value}", text)

    async def connections(self) -> int:
        with Redis.from_url(self.server.url, decode_responses=True) as client:
            return sum(each["name"].startswith("trunkline-routes-") for each in client.client_list())

    async def cut(self, which: str) -> int:
        with Redis.from_url(self.server.url, decode_responses=True) as client:
            found = [each["addr"] for each in client.client_list() if each["name"] == f"trunkline-routes-{which}"]
            return sum(client.client_kill(address) for address in found)

    async def lose(self) -> None:
        await asyncio.to_thread(self.server.stop)

    async def mend(self) -> None:
        self.server.start()  # here: it dies with the thread that starts it


@pytest.fixture(scope="module")
def own_postgres(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server that tests stop and start."""
    folder = tmp_path_factory.mktemp("listened")
    with EmbeddedPostgres(folder, {"fsync": "off"}, port=free_port()) as server:
        migrate(server.dsn, "routes")
        yield server


@pytest.fixture(scope="module")
def own_redis(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server that tests stop and start."""
    server = RedisServer(tmp_path_factory.mktemp("subscribed"))
    server.start()
    yield server
    server.stop()


class TestInMemory(SyncSuite):
    @pytest.fixture
    def channel(self) -> InMemory:
        return InMemory()


class TestByPostgres(ServerSuite):
    @pytest.fixture
    def channel(self, own_postgres: EmbeddedPostgres) -> ByPostgres:
        return ByPostgres(own_postgres)


class TestByRedis(ServerSuite):
    @pytest.fixture
    def channel(self, own_redis: RedisServer) -> ByRedis:
        return ByRedis(own_redis)


async def test_the_texts_on_redis_are_those_of_the_design_document(own_redis: RedisServer) -> None:
    first, second = joined(ByRedis(own_redis), 2)
    with Redis.from_url(own_redis.url, decode_responses=True) as client, client.pubsub() as pubsub:
        pubsub.subscribe("ears_sync", "ears_ack")
        async with listening(first, second):
            with Redis.from_url(own_redis.url) as other:
                other.publish("ears_sync", "add,rid,i3,sid")
            await until(lambda: first.deltas and second.deltas)
            assert (second.deltas[0].id, str(second.deltas[0].tenant)) == ("rid", "trunkline/trunkline")
            session = first.publish("x")
            await until(lambda: len(second.deltas) == 2)
            with Redis.from_url(own_redis.url) as other:
                other.publish("ears_ack", f"add,x,i3,{session}")
            await until(lambda: first.acks)
            assert (first.acks[0].instance, first.acks[0].id, first.acks[0].reason) == ("i3", "x", "")
        _, _, *said = [pubsub.get_message(timeout=10)["data"] for _ in range(5)]
    assert said == ["add,rid,i3,sid", f"add,x,i1,{session},route,myorg,myapp", f"add,x,i3,{session}"]


async def test_sites_that_share_a_redis_do_not_hear_each_other_if_they_have_prefixes(own_redis: RedisServer) -> None:
    class Site(ByRedis):
        def __init__(self, prefix: str) -> None:
            super().__init__(own_redis)
            self.prefix = prefix

        def syncer(self, instance: str) -> RedisSyncer:
            return RedisSyncer(self.server.url, instance, self.prefix)

    a1, a2 = joined(Site("a."), 2)
    b1, b2 = joined(Site("b."), 2)
    async with listening(a1, a2, b1, b2):
        a1.publish("of a")
        await until(lambda: a2.deltas)
        b1.publish("of b")
        await until(lambda: b2.deltas)
        assert [ear.ids for ear in (a1, a2, b1, b2)] == [[], ["of a"], [], ["of b"]]


async def test_a_redis_that_is_quiet_is_asked_and_one_that_hangs_is_noticed(own_redis: RedisServer) -> None:
    class Site(ByRedis):
        def syncer(self, instance: str) -> RedisSyncer:
            return RedisSyncer(self.server.url, instance, quiet_seconds=0.5)

    first, second = joined(Site(own_redis), 2)
    pid = own_redis.pid
    assert pid is not None
    with capture_logs() as logs, Redis.from_url(own_redis.url) as client:
        async with listening(first, second):
            asked = _pings(client)
            await until(lambda: _pings(client) >= asked + 2)
            first.publish("after a silence")
            await until(lambda: second.ids == ["after a silence"])
            assert (first.gaps, second.gaps, logs) == (1, 1, [])
            os.kill(pid, signal.SIGSTOP)
            try:
                await until(lambda: first.syncer.counts.lost and second.syncer.counts.lost)
            finally:
                os.kill(pid, signal.SIGCONT)
            await until(lambda: first.gaps > 1 and second.gaps > 1)


def _pings(client: Redis) -> int:
    return int(client.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"])
