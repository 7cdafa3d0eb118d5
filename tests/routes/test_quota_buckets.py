"""Every bucket gives the same slots, and a quota holds over several instances of one site, on real servers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from random import random

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from trunkline.cli.dev.redis import RedisServer
from trunkline.core.clock import SystemClock
from trunkline.core.errors import Retryable
from trunkline.db.embedded import EmbeddedPostgres
from trunkline.routes.keys import Tenant
from trunkline.routes.quota import LINE, Lot, Quota
from trunkline.routes.quota_buckets import Buckets, MemoryBuckets, PostgresBuckets, RedisBuckets
from trunkline.routes.quotas import Quotas

ME = Tenant("myorg", "myapp")
CLOCK = SystemClock()
_prefixes = itertools.count(1)
Open = Callable[[], Buckets]


@pytest.fixture(params=["memory", "postgres", "redis"])
def bucket(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Each call opens the site's buckets anew, as another instance does."""
    if request.param == "memory":
        shared = MemoryBuckets(CLOCK)
        yield lambda: shared
    elif request.param == "postgres":
        dsn = request.getfixturevalue("make_database")("routes")
        yield lambda: PostgresBuckets(dsn)
    else:
        url, prefix = request.getfixturevalue("redis_server").url, f"quota-test-{next(_prefixes)}:"
        yield lambda: RedisBuckets(url, prefix)


class Instances:
    """Three of a site, with the same quota."""

    def __init__(self, open_bucket: Open, quota: Quota, count: int = 3) -> None:
        self.buckets = [open_bucket() for _ in range(count)]
        self.quotas = [Quotas(buckets, CLOCK, random) for buckets in self.buckets]
        for quotas in self.quotas:
            quotas.change(ME, quota)

    async def __aenter__(self) -> Instances:
        return self

    async def __aexit__(self, *_: object) -> None:
        for buckets in self.buckets:
            await buckets.close()

    async def flood(self, at: int, seconds: float, each: int = 5) -> int:
        """How many pass where more than enough come."""
        passed, until = 0, CLOCK.monotonic() + seconds
        while (left := until - CLOCK.monotonic()) > 0:
            passed += await self.quotas[at].enter(ME, each, left)
        return passed


async def test_a_bucket_gives_slots_in_order_each_once_and_a_turn_ahead(bucket: Open) -> None:
    async with Instances(bucket, Quota(1000.0), 2) as site:
        mine, theirs = site.buckets
        first = await mine.take(ME, Quota(1000.0), 600)
        assert (first.quota, first.count) == (Quota(1000.0), 600)
        assert first.first == pytest.approx(-0.999, abs=0.001)
        asked = CLOCK.monotonic()
        second = await theirs.take(ME, Quota(1000.0), 5000)
        between = CLOCK.monotonic() - asked
        assert second.first == pytest.approx(-0.399, abs=0.4)
        assert second.count / 1000 == pytest.approx(0.1 - second.first, abs=0.003), "all that are due, and 0.1 s ahead"
        third = await mine.take(ME, Quota(1000.0), 5000)
        assert third.first <= 0.11
        assert third.first >= second.first + second.count / 1000 - between - 1
        assert third.count == pytest.approx(100 + max(0.0, -third.first) * 1000, abs=3)
        other = await mine.take(Tenant("myorg", "other"), Quota(1000.0), 1000)
        assert other.count == 1000, "of another tenant"


async def test_a_line_of_those_who_wait_has_an_end(bucket: Open) -> None:
    buckets, slow = bucket(), Quota(0.01)
    lots = [await buckets.take(ME, slow, 7) for _ in range(LINE + 3)]
    assert [lot.count for lot in lots] == [2] + [1] * (LINE - 1) + [0] * 3
    assert lots[0].first == pytest.approx(0.0, abs=0.01)
    assert lots[5].first == pytest.approx(600.0, abs=5)
    await buckets.close()


async def test_n5_the_newest_quota_counts_and_is_told_to_whoever_has_an_older_one(bucket: Open) -> None:
    buckets, old, new = bucket(), Quota(10.0, 1.0), Quota(20.0, 2.5)
    await buckets.take(ME, old, 1)
    assert (await buckets.take(ME, new, 1)).quota == new
    assert (await buckets.take(ME, old, 1)).quota == new
    assert await buckets.take(ME, Quota(0.0, 3.0), 5) == Lot(Quota(0.0, 3.0))
    assert await buckets.take(ME, old, 5) == Lot(Quota(0.0, 3.0))
    assert await buckets.take(ME, Quota(None, 4.0), 5) == Lot(Quota(None, 4.0))
    assert await buckets.take(ME, old, 5) == Lot(Quota(None, 4.0))
    again = await buckets.take(ME, Quota(50.0, 1_700_000_000.123456), 5)
    assert (again.quota, again.count) == (Quota(50.0, 1_700_000_000.123456), 5)
    await buckets.close()


async def test_n5_what_was_given_ahead_of_time_does_not_hold_up_a_new_quota(bucket: Open) -> None:
    buckets = bucket()
    for _ in range(10):
        await buckets.take(ME, Quota(0.1, 1.0), 5)
    lot = await buckets.take(ME, Quota(100.0, 2.0), 5)
    assert lot.count == 5
    assert lot.first < 0.011
    await buckets.close()


async def test_s33_all_traffic_at_one_of_three_instances_gets_the_whole_quota(bucket: Open) -> None:
    async with Instances(bucket, Quota(100.0)) as site:
        assert await site.quotas[0].enter(ME, 100, 5.0) == 100, "the burst after idling"
        begun = CLOCK.monotonic()
        passed = await site.flood(0, 1.0)
        spent = CLOCK.monotonic() - begun
        assert 0.9 * 100 <= passed <= 100 * (spent + 0.05) + 1


async def test_s33_a_change_told_to_one_is_effective_everywhere_within_a_second(bucket: Open) -> None:
    async with Instances(bucket, Quota(20.0, 1.0)) as site:
        before = await asyncio.gather(*(site.flood(at, 0.3, each=1) for at in range(3)))
        assert sum(before) <= 20 * 1.5
        site.quotas[1].change(ME, Quota(200.0, 2.0))
        await asyncio.gather(*(site.flood(at, 1.0, each=1) for at in range(3)))
        begun = CLOCK.monotonic()
        after = await asyncio.gather(*(site.flood(at, 1.0, each=1) for at in range(3)))
        spent = CLOCK.monotonic() - begun
        assert 0.85 * 200 <= sum(after) <= 200 * (spent + 0.35) + 1
        assert min(after) > 20 / 3  # more than a third of what all had before


async def test_s33_after_idling_a_burst_of_one_seconds_quota_passes_at_once(bucket: Open) -> None:
    spent = []
    async with Instances(bucket, Quota(1000.0)) as site:
        for tenant in (Tenant("myorg", f"idle-{n}") for n in range(3)):  # a machine that stalls once says nothing of quotas
            for quotas in site.quotas:
                quotas.change(tenant, Quota(1000.0))
            begun = CLOCK.monotonic()
            assert await asyncio.gather(*(site.quotas[0].enter(tenant, 1, 5.0) for _ in range(1000))) == [1] * 1000
            spent.append(CLOCK.monotonic() - begun)
    assert min(spent) < 0.5


async def test_s33_a_quota_of_0_lets_nothing_pass_until_it_changes_and_none_everything(bucket: Open) -> None:
    async with Instances(bucket, Quota(0.0, 1.0), 1) as site:
        assert await site.quotas[0].enter(ME, 5, 0.2) == 0
        waits = asyncio.create_task(site.quotas[0].enter(ME, 5, 30.0))
        await asyncio.sleep(0)
        site.quotas[0].change(ME, Quota(100.0, 2.0))
        assert await waits == 5
        site.quotas[0].change(ME, Quota(None, 3.0))
        assert await site.quotas[0].enter(ME, 100_000, 0.0) == 100_000
        assert await site.quotas[0].enter(Tenant("a", "b"), 7, 0.0) == 7, "a tenant without quota"


async def test_events_pass_in_the_order_in_which_they_came() -> None:
    async with Instances(lambda: MemoryBuckets(CLOCK), Quota(200.0), 1) as site:
        order: list[int] = []

        async def come(number: int) -> None:
            assert await site.quotas[0].enter(ME, 40, 10.0) == 40
            order.append(number)

        await asyncio.gather(*(come(number) for number in range(8)))
        assert order == list(range(8))


async def test_whose_time_is_up_gets_what_there_is_and_holds_up_nobody() -> None:
    async with Instances(lambda: MemoryBuckets(CLOCK), Quota(100.0), 1) as site:
        quotas = site.quotas[0]
        large = asyncio.create_task(quotas.enter(ME, 100_000, 0.3))
        await asyncio.sleep(0)
        begun = CLOCK.monotonic()
        assert await quotas.enter(ME, 1, 0.05) == 0, "behind a large one"
        assert CLOCK.monotonic() - begun < 0.25
        assert 100 <= await large <= 150
        gone = asyncio.create_task(quotas.enter(ME, 1000, 60.0))
        await asyncio.sleep(0)
        gone.cancel()
        assert await quotas.enter(ME, 5, 5.0) == 5


async def test_who_forgets_a_tenant_lets_its_events_go() -> None:
    async with Instances(lambda: MemoryBuckets(CLOCK), Quota(0.0), 1) as site:
        waits = asyncio.create_task(site.quotas[0].enter(ME, 5, 30.0))
        await asyncio.sleep(0)
        site.quotas[0].forget(ME)
        assert await waits == 5
        assert await site.quotas[0].enter(ME, 5, 0.0) == 5


def _postgres_opens(admin: str, dsn: str, allowed: bool) -> None:
    name = conninfo_to_dict(dsn)["dbname"]
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}".encode())
        if not allowed:
            conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))


async def test_while_the_bucket_is_away_events_wait_and_go_on_when_it_is_back_in_postgres(
    postgres: EmbeddedPostgres, make_database: Callable[..., str]
) -> None:
    dsn = make_database("routes")
    async with Instances(lambda: PostgresBuckets(dsn), Quota(50.0), 1) as site:
        await _goes_and_comes_back(
            site, lambda: _postgres_opens(postgres.dsn, dsn, False), lambda: _postgres_opens(postgres.dsn, dsn, True)
        )


async def test_while_the_bucket_is_away_events_wait_and_go_on_when_it_is_back_in_redis(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    try:
        async with Instances(lambda: RedisBuckets(server.url), Quota(50.0), 1) as site:
            await _goes_and_comes_back(site, server.stop, server.start)
    finally:
        server.stop()


async def _goes_and_comes_back(site: Instances, goes: Callable[[], object], comes_back: Callable[[], object]) -> None:
    assert await site.quotas[0].enter(ME, 10, 5.0) == 10
    await asyncio.to_thread(goes)
    with pytest.raises(Retryable, match="quotas in"):
        await site.buckets[0].take(ME, Quota(50.0), 1)
    waits = asyncio.create_task(site.quotas[0].enter(ME, 90, 60.0))
    assert await site.quotas[0].enter(ME, 1, 0.2) == 0
    assert not waits.done()
    await asyncio.to_thread(comes_back)
    assert await waits == 90
