"""Memory, Postgres and Redis: one suite, and what each has of its own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import redis

from route_storage_suite import MINE, StorageSuite, hashes, key, opened, put
from trunkline.cli.dev.redis import RedisServer
from trunkline.core.clock import ManualClock
from trunkline.core.errors import Invalid, Retryable, Terminal
from trunkline.routes.storage.base import REMEMBER, Remove
from trunkline.routes.storage.memory import MemoryStorage
from trunkline.routes.storage.opened import storage_at
from trunkline.routes.storage.postgres import PostgresStorage
from trunkline.routes.storage.redis import RedisStorage
from waiting import eventually

NOWHERE = 1
"""A port at which nobody listens."""
_numbers = itertools.count(1)


@dataclass
class MemoryPlace:
    shared: MemoryStorage | None = None

    def storage(self, remember: float = REMEMBER) -> MemoryStorage:
        self.shared = self.shared or MemoryStorage(remember=remember)
        return self.shared

    async def configurations(self) -> int:
        assert self.shared is not None
        return len(self.shared.kept)

    async def break_connections(self) -> None:
        """There are none."""


class TestMemory(StorageSuite):
    @pytest.fixture
    def place(self) -> MemoryPlace:
        return MemoryPlace()

    async def test_rule_s4_age_counts_by_its_clock(self) -> None:
        clock = ManualClock()
        storage = MemoryStorage(clock, remember=60.0)
        await storage.change([put("a")])
        await storage.change([Remove(key("a"))])
        clock.advance(59.0)
        assert set((await storage.scan()).removed) == {key("a")}
        clock.advance(2.0)
        assert set((await storage.scan()).removed) == {key("a")}, "it was not told since it is old"
        assert (await storage.scan()).removed == {}


@dataclass
class PostgresPlace:
    dsn: str
    conn: psycopg.Connection[Any]

    def storage(self, remember: float = REMEMBER) -> PostgresStorage:
        return PostgresStorage(self.dsn, remember)

    async def configurations(self) -> int:
        return int(self.ask("SELECT count(*) FROM routes.config")[0][0])

    async def break_connections(self) -> None:
        """Returns when the server has closed them."""
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        self.ask(f"SELECT pg_terminate_backend(pid, 10000) {others}")

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self.conn.execute(query.encode()).fetchall()


@pytest.fixture(scope="module")
def dsn(make_databases: Callable[..., str]) -> str:
    return make_databases("routes")


class TestPostgres(StorageSuite):
    @pytest.fixture
    def place(self, dsn: str) -> Iterator[PostgresPlace]:
        with psycopg.connect(dsn, autocommit=True) as conn:
            yield PostgresPlace(dsn, conn)
            for table in ("route", "config", "removal", "tenant", "fragment"):
                conn.execute(f"DELETE FROM routes.{table}".encode())
            conn.execute("UPDATE routes.counter SET revision = 0")

    async def test_rule_s7_a_change_that_is_cut_off_says_so_and_leaves_nothing(self, place: PostgresPlace) -> None:
        async with opened(place) as storage:
            await storage.change([put("a")])
            before = await storage.scan()
            with psycopg.connect(place.dsn) as holder:
                holder.execute("SELECT FROM routes.counter FOR UPDATE")
                changing = asyncio.create_task(storage.change([put("a", 2), put("b")]))
                waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%routes.change%'"
                await asyncio.to_thread(eventually, lambda: place.ask(waiting))
                place.ask(f"SELECT pg_terminate_backend(pid) FROM ({waiting}) AS w")
                with pytest.raises(Retryable, match="see that it runs, then ask again"):
                    await changing
            assert await storage.scan() == before
            assert set(await storage.change([put("a", 2), put("b")])) == {key("a"), key("b")}

    async def test_a_change_that_is_given_up_leaves_nothing(self, place: PostgresPlace) -> None:
        async with opened(place) as storage:
            with psycopg.connect(place.dsn) as holder:
                holder.execute("SELECT FROM routes.counter FOR UPDATE")
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(storage.change([put("a")]), 0.1)
            assert (await storage.scan()).routes == []
            assert set(await storage.change([put("a")])) == {key("a")}

    async def test_a_reader_waits_for_no_writer(self, place: PostgresPlace) -> None:
        async with opened(place) as storage:
            given = await storage.change([put("a")])
            with psycopg.connect(place.dsn) as holder:
                holder.execute("SELECT FROM routes.counter FOR UPDATE")
                assert await asyncio.wait_for(storage.read([key("a")]), 20) == given
                assert hashes(await asyncio.wait_for(storage.scan(), 20)) == {key("a"): put("a").hash}

    async def test_a_database_that_is_away_is_worth_another_try(self, dsn: str) -> None:
        storage = PostgresStorage(f"{dsn} port={NOWHERE}", patience=0.2)
        with pytest.raises(Retryable, match="the storage of routes"):
            await storage.open()

    async def test_a_database_without_the_tables_says_what_to_do(self, make_database: Callable[..., str]) -> None:
        with pytest.raises(Terminal, match=r"its tables are not there.*start a node on this database"):
            await PostgresStorage(make_database()).open()


@dataclass
class RedisPlace:
    url: str
    prefix: str

    def storage(self, remember: float = REMEMBER) -> RedisStorage:
        return RedisStorage(self.url, self.prefix, remember)

    async def configurations(self) -> int:
        with redis.Redis.from_url(self.url) as client:
            kept = client.hlen(self.prefix + "routes:configs")
            assert kept == client.hlen(self.prefix + "routes:uses")
            return int(kept)

    async def break_connections(self) -> None:
        """In a thread, so that the event loop hears of it."""
        await asyncio.to_thread(self._kill)

    def _kill(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            for other in client.client_list():
                if other["name"] == "trunkline-routes":
                    client.client_kill_filter(_id=other["id"])


class TestRedis(StorageSuite):
    @pytest.fixture
    def place(self, redis_server: RedisServer) -> Iterator[RedisPlace]:
        place = RedisPlace(redis_server.url, f"storage{next(_numbers)}:")
        yield place
        with redis.Redis.from_url(place.url) as client:
            for name in client.scan_iter(f"{place.prefix}*"):
                client.delete(name)

    async def test_the_layout_is_the_documents(self, place: RedisPlace) -> None:
        async with opened(place) as storage:
            given = (await storage.change([put("a", notes={"desc": "x"})]))[key("a")]
            stamps = f'"revision":{given.revision},"created":{given.created:.6f},"modified":{given.modified:.6f}'
            record = f'{{{stamps},"hash":"hash-myapp-1","notes":{{"desc":"x"}}}}'
            with redis.Redis.from_url(place.url, decode_responses=True) as client:
                assert client.hgetall(place.prefix + "routes") == {"myorg/myapp/a": record}
                assert client.hgetall(place.prefix + "routes:configs") == {
                    "hash-myapp-1": '{"number":1,"sender":{"plugin":"debug"}}'
                }

    async def test_rule_s1_holds_when_the_newest_changes_were_lost(self, place: RedisPlace) -> None:
        """As after a crash of a server that writes its log once a second: that takes longer than a millisecond."""
        async with opened(place) as storage:
            lost = (await storage.change([put("a")]))[key("a")].revision
            with redis.Redis.from_url(place.url) as client:
                client.delete(*client.scan_iter(f"{place.prefix}*"))
                started = client.time()
                eventually(lambda: client.time() > (started[0], started[1] + 1_000))
            assert (await storage.change([put("a", 2)]))[key("a")].revision > lost

    async def test_sites_with_prefixes_of_their_own_do_not_meet(self, place: RedisPlace) -> None:
        mine, other = place.storage(), RedisStorage(place.url, place.prefix + "other:")
        await mine.change([put("a")])
        assert (await other.scan()).routes == []
        assert await other.of_tenant(MINE) == []
        await mine.close()
        await other.close()

    async def test_a_server_that_is_away_is_worth_another_try(self) -> None:
        storage = RedisStorage(f"redis://127.0.0.1:{NOWHERE}/0")
        with pytest.raises(Retryable, match="the storage of routes in Redis"):
            await storage.open()
        with pytest.raises(Retryable, match="see that it runs, then ask again"):
            await storage.change([put("a")])
        await storage.close()


@pytest.fixture
def busy(redis_server: RedisServer) -> Iterator[RedisServer]:
    """A server that runs an endless script, for longer than it keeps others waiting."""
    with redis.Redis.from_url(redis_server.url) as client:
        before = client.config_get("lua-time-limit")["lua-time-limit"]
        client.config_set("lua-time-limit", 10)
        with redis.Redis.from_url(redis_server.url) as stuck, ThreadPoolExecutor(1) as thread:
            running = thread.submit(stuck.eval, "while true do end", 0)
            eventually(lambda: _is_busy(client))
            yield redis_server
            client.script_kill()
            assert isinstance(running.exception(), redis.ResponseError)
        client.config_set("lua-time-limit", before)


def _is_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")
    return False


async def test_rule_s7_a_server_that_is_busy_is_worth_another_try(busy: RedisServer) -> None:
    storage = RedisStorage(busy.url)
    for asked in (storage.scan(), storage.tenants(), storage.change([put("a")])):
        with pytest.raises(Retryable, match=r"busy|BUSY"):
            await asked
    await storage.close()


def test_a_storage_is_named_by_the_configuration() -> None:
    assert isinstance(storage_at("memory", ""), MemoryStorage)
    assert isinstance(storage_at("postgres", "dbname=x"), PostgresStorage)
    assert isinstance(storage_at("redis://:secret@127.0.0.1:1/0", ""), RedisStorage)
    with pytest.raises(Invalid, match=r"there is none called dynamodb \(next: write memory, postgres or redis://…\)"):
        storage_at("dynamodb://user:secret@host", "")
