"""What route jobs count: in memory, in Postgres, and as nodes show it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import structlog

from kafka_topics import Topics
from route_jobs import PARTS, RouteJobs
from running_routes import pool_of
from trunkline.core.jsoncodec import dumps
from trunkline.pipeline.jobs import counters as module
from trunkline.pipeline.jobs.counters import Counters
from trunkline.pipeline.jobs.outcomes import RouteCount, TaskCounts
from trunkline.pipeline.session import Spark
from trunkline.routes.counted import GroupSum, RouteSum, SparkCounts, fold
from trunkline.routes.groups import Group
from trunkline.routes.keys import HOUSE, RouteKey, Tenant
from waiting import eventually

GROUP = Group("kafka", "broker:9092")
ALARMS = RouteKey(HOUSE, "alarms")


def route(id: str, sender: str = "queue") -> Any:
    body = {"receiver": {"plugin": "kafka"}, "sender": {"plugin": sender}}
    return SimpleNamespace(member=SimpleNamespace(key=RouteKey(HOUSE, id), body=body))


def told(**numbers: Any) -> TaskCounts:
    return TaskCounts(numbers.get("received", 0), {"h": RouteCount(**numbers)}, {}, [], GROUP.lease, 0.5)


def job(behind: int = 0, failing: str = "") -> Any:
    return SimpleNamespace(behind=behind, failing=failing)


class Site:
    """Pipelines that count, and what a node sees of it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.jobs: dict[Group, Any] = {}

    def pipeline(self, name: str, alive: bool = True) -> Counters:
        if alive:
            later = "now() + interval '1 hour'"  # it does not age while the test is slow
            self.do(f"INSERT INTO site.instance (id, kind, heartbeat_at) VALUES (%s, 'pipeline', {later})", name)
        counters = Counters(self.dsn, every=0.05)
        counters.start(name, lambda: self.jobs)
        return counters

    def do(self, statement: str, *values: object) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute(statement.encode(), values)

    async def routes(self, tenant: Tenant | None = None) -> dict[RouteKey, RouteSum]:
        async with pool_of(self.dsn) as pool:
            return await SparkCounts(pool).routes(tenant, 100)

    async def groups(self) -> list[GroupSum]:
        async with pool_of(self.dsn) as pool:
            return await SparkCounts(pool).groups()

    async def plugins(self) -> dict[tuple[str, str], RouteSum]:
        async with pool_of(self.dsn) as pool:
            return await SparkCounts(pool).plugins()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as conn:
            return conn.execute(query.encode()).fetchall()


@pytest.fixture
def site(make_database: Callable[..., str]) -> Site:
    return Site(make_database("queues", "routes"))


async def test_counts_of_all_batches_and_pipelines_add_up(site: Site) -> None:
    for name in ("p1", "p2"):
        counters = site.pipeline(name)
        for _ in range(3):
            counters.tell(told(received=5, matched=3, dropped=2, sent=2, kept=1, seconds=0.5), {"h": route("alarms")})
        counters.stop()
    assert await site.routes() == {ALARMS: RouteSum(30, 18, 12, 12, 6, 0, 0, 3.0)}
    assert await site.routes(Tenant("other", "other")) == {}
    [group] = await site.groups()
    assert (group.events, group.batches, group.seconds, group.instance) == (30, 6, 3.0, "")


async def test_only_what_changed_is_written(site: Site) -> None:
    site.jobs[GROUP] = job()
    counters = site.pipeline("p1")
    counters.tell(told(received=1), {"h": route("alarms")})
    eventually(lambda: site.rows("SELECT 1 FROM routes.count"))
    [(before,)] = site.rows("SELECT updated_at FROM routes.count")
    counters.tell(told(received=1), {"h": route("notes")})
    eventually(lambda: len(site.rows("SELECT 1 FROM routes.count")) == 2)
    counters.stop()
    assert site.rows("SELECT updated_at FROM routes.count WHERE id = 'alarms'") == [(before,)]


async def test_what_could_not_be_written_is_written_later_and_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []
    write = module.write_custom

    def fails_twice(*args: Any) -> None:
        if len(failed) < 2:
            failed.append("it failed")
            raise psycopg.OperationalError("the server closed the connection")
        write(*args)

    monkeypatch.setattr(module, "write_custom", fails_twice)
    counters = site.pipeline("p1")
    counters.tell(told(received=4), {"h": route("alarms")})
    eventually(lambda: len(failed) == 2)
    counters.tell(told(received=3), {"h": route("alarms")})
    counters.stop()
    assert (await site.routes())[ALARMS].received == 7


async def test_a_group_is_held_by_who_is_alive_and_says_why_it_fails(site: Site) -> None:
    site.jobs[GROUP] = job(behind=7, failing="the broker is away")
    counters = site.pipeline("p1")
    eventually(lambda: site.rows("SELECT 1 FROM routes.group_count"))
    [group] = await site.groups()
    assert (group.instance, group.behind, group.failing) == ("p1", 7, "the broker is away")
    site.do("UPDATE site.instance SET heartbeat_at = '-infinity'")
    [group] = await site.groups()
    assert (group.instance, group.behind, group.failing) == ("", 0, "")
    site.do("UPDATE site.instance SET heartbeat_at = now() + interval '1 hour'")
    del site.jobs[GROUP]
    eventually(lambda: site.rows("SELECT holds FROM routes.group_count") == [(False,)])
    [group] = await site.groups()
    assert group.instance == ""
    counters.stop()


async def test_rows_of_an_instance_that_is_gone_are_kept_for_a_day_and_then_in_the_sums_of_plugins(site: Site) -> None:
    for name in ("gone", "alive"):
        counters = site.pipeline(name, alive=name == "alive")
        for sender in ("queue", "kafka"):
            counters.tell(told(received=2, sent=1), {"h": route(sender, sender)})
        counters.stop()
    before = await site.plugins()
    for age, routes in (("23 hours", 4), ("25 hours", 2)):
        for table in ("count", "group_count", "custom_count"):
            site.do(f"UPDATE routes.{table} SET updated_at = clock_timestamp() - interval '{age}'")
        with psycopg.connect(site.dsn) as conn:
            fold(conn)
        assert sum(numbers.received for numbers in (await site.routes()).values()) == 2 * routes
        assert await site.plugins() == before
    [group] = await site.groups()
    assert group.events == 8


async def test_metric_filters_may_count_under_many_names_and_not_without_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_CUSTOM", 3)
    counters = site.pipeline("p1")
    for n in range(5):
        counters.tell(TaskCounts(0, {}, {f"c{n}": 1, "c0": 1}, [], GROUP.lease), {})
    counters.stop()
    async with pool_of(site.dsn) as pool:
        assert await SparkCounts(pool).custom(10) == {"c0": 5, "other": 2, "c1": 1, "c2": 1}


def test_lines_that_filters_log_are_in_the_log_of_the_driver(site: Site) -> None:
    counters = site.pipeline("p1")
    with structlog.testing.capture_logs() as logs:
        counters.tell(TaskCounts(0, {}, {}, [{"n": 1}], GROUP.lease), {})
    counters.stop()
    assert [line["said"] for line in logs if line["event"] == "a route says"] == [{"n": 1}]


async def test_routes_on_spark_are_counted_from_kafka_to_the_tables(
    spark: Spark, topics: Topics, make_database: Callable[..., str], tmp_path: Path
) -> None:
    topics.create("in", "out")
    site = Site(make_database(*PARTS))
    jobs = RouteJobs(spark, site.dsn, tmp_path / "jobs")
    counters = Counters(site.dsn, every=0.2)
    hear = jobs._hear
    jobs._hear = lambda told, routes: (hear(told, routes), counters.tell(told, routes))  # type: ignore[method-assign]
    receiver = {"plugin": "kafka", "config": {"brokers": topics.bootstrap, "topic": topics.name("in"), "startAt": "earliest"}}
    sender = {"plugin": "kafka", "config": {"brokers": topics.bootstrap, "topic": topics.name("out")}}
    only = {"plugin": "match", "config": {"matcher": "pattern", "pattern": {"kind": "alarm"}}}
    count = {"plugin": "metric", "config": {"name": f"seen_{uuid.uuid4().hex}"}}
    with jobs:
        routing = jobs.routing
        counters.start(routing.instance.id, lambda: routing.jobs)
        topics.put("in", *(dumps({"kind": "alarm" if n % 3 == 0 else "note", "n": n}) for n in range(30)))
        jobs.put("alarms", receiver, sender, count, only)
        eventually(lambda: jobs.count("alarms").sent == 10, 60, jobs.failing)
        eventually(lambda: site.rows("SELECT 1 FROM routes.group_count WHERE events = 30 AND holds"))
        [group] = await site.groups()
        assert (group.instance, group.events, group.behind, group.failing) == (jobs.routing.instance.id, 30, 0, "")
        assert group.batches >= 1
        assert group.seconds > 0
    counters.stop()
    numbers = (await site.routes())[ALARMS]
    assert (numbers.received, numbers.matched, numbers.dropped, numbers.sent) == (30, 10, 20, 10)
    assert numbers.seconds > 0
    assert (await site.plugins())["kafka", "kafka"].sent == 10
    assert site.rows("SELECT count FROM routes.custom_count") == [(30,)]
