"""Routes of http and redis receivers: taken at nodes, durable in Postgres, routed on Spark."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
import redis

from route_jobs import PARTS, RouteJobs
from route_node import RouteNode
from running_routes import pool_of
from trunkline.cli.dev.redis import RedisServer
from trunkline.core.errors import Retryable
from trunkline.core.jsoncodec import dumps
from trunkline.db.lease import acquire
from trunkline.pipeline.jobs.feeds.ingest import IngestFeed
from trunkline.pipeline.jobs.receivers import Receiver
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.routes.event import Event, Source
from trunkline.routes.keys import HOUSE
from trunkline.routes.local.appending import Appender, Taker
from trunkline.routes.outcome import Outcome
from trunkline.routes.placement import INGEST, source_of
from trunkline.routes.receivers.http import HttpReceiverConfig
from waiting import eventually

MakeJobs = Callable[..., RouteJobs]
HTTP = {"plugin": "http"}
TABLE = {"plugin": "postgres", "config": {"table": "public.came", "columns": {"n": "{payload.n}"}}}


class Came:
    """What routes brought to a table, in its order."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._conn = psycopg.connect(dsn, autocommit=True)
        self._conn.execute("CREATE TABLE public.came (id bigserial, n int)")

    def numbers(self) -> list[int]:
        return [n for (n,) in self._conn.execute("SELECT n FROM public.came ORDER BY id")]

    def waits(self) -> bool:
        return self._conn.execute("SELECT FROM routes.ingest WHERE head > position").fetchone() is not None

    def appended(self) -> int:
        return int(self._conn.execute("SELECT coalesce(sum(head), 0) FROM routes.ingest").fetchall()[0][0])

    def close(self) -> None:
        self._conn.close()


@pytest.fixture
def came(make_database: Callable[..., str]) -> Iterator[Came]:
    with closing(Came(make_database(*PARTS))) as came:
        yield came


def post(node: RouteNode, *numbers: int) -> None:
    """One after the other; waits until somebody hears it."""
    for n in numbers:
        done: list[Outcome] = []

        def heard(n: int = n, done: list[Outcome] = done) -> bool:
            posted = node.post({"n": n})
            done.extend([posted.done.outcome] if posted.done is not None else [])
            return bool(done)

        eventually(heard)
        assert done == [Outcome.ACKED]


def test_events_posted_at_nodes_are_routed_by_the_pipeline_in_their_order(came: Came, make_jobs: MakeJobs) -> None:
    jobs = make_jobs(came.dsn)
    with RouteNode(came.dsn) as node:
        node.put("r", HTTP, TABLE)
        node.put("dropped", HTTP, TABLE, {"plugin": "block"})
        post(node, *range(20))
        assert came.appended() == 20
        eventually(lambda: len(came.numbers()) >= 20, 60, jobs.failing)
        eventually(lambda: not came.waits() and jobs.count("r").sent == 20, 60, jobs.failing)
    assert came.numbers() == list(range(20))
    assert jobs.count("dropped").dropped == 20
    assert jobs.rows("SELECT FROM routes.ingest_event") == []


def test_routes_go_from_the_pipeline_to_a_node_and_back_and_nothing_posted_is_lost_or_doubled(
    came: Came, make_jobs: MakeJobs
) -> None:
    jobs = make_jobs(came.dsn)
    with RouteNode(came.dsn) as node:
        node.put("r", HTTP, TABLE)
        post(node, *range(10))
        eventually(lambda: len(came.numbers()) >= 10, 60, jobs.failing)
        jobs.stop()
        post(node, *range(10, 30))
        eventually(lambda: len(came.numbers()) >= 30)
        eventually(lambda: INGEST not in node.routing.runner.held and not came.waits())
        appended = came.appended()
        post(node, *range(30, 40))
        assert (came.appended(), came.numbers()) == (appended, list(range(40))), "now they go through the node's routes"
        jobs.start()
        eventually(lambda: any("ingest" in other.runs and "-pipeline" in other.id for other in node.routing.operating.others()))
        post(node, *range(40, 50))
        assert came.appended() == appended + 10
        eventually(lambda: len(came.numbers()) >= 50, 60, jobs.failing)
    assert came.numbers() == list(range(50))


def test_entries_of_a_redis_stream_are_acknowledged_when_they_are_safe_and_routed_by_the_pipeline(
    came: Came, make_jobs: MakeJobs, redis_server: RedisServer
) -> None:
    jobs, stream = make_jobs(came.dsn), "ingest-of-jobs"
    config = {"endpoint": f"127.0.0.1:{redis_server.port}", "channel": stream, "groupId": "g", "startAt": "earliest"}
    with closing(redis.Redis.from_url(redis_server.url)) as client, RouteNode(came.dsn) as node:
        client.delete(stream)
        for n in range(20):
            client.xadd(stream, {"event": dumps({"n": n})})
        node.put("r", {"plugin": "redis", "config": config}, TABLE)
        eventually(lambda: len(came.numbers()) >= 20, 60, jobs.failing)
        assert came.appended() == 20
        eventually(lambda: client.xpending(stream, "g")["pending"] == 0)  # type: ignore[index]
    assert came.numbers() == list(range(20))


# -- the feed by itself


def append(dsn: str, receiver: Receiver, *numbers: int) -> None:
    async def work() -> None:
        async with pool_of(dsn) as pool:
            appender = Appender(pool, random.random)
            events = [Event({"n": n}, {}, Source(str(n), receiver.tenant)) for n in numbers]
            taker = Taker(receiver.name, receiver.tenant, source_of(receiver.config))
            assert {one.outcome for one in await (await appender.put(taker, events, 60))} == {Outcome.ACKED}
            await appender.close()

    asyncio.run(work())


def receiver(name: str, **config: Any) -> Receiver:
    return Receiver(name, HOUSE, HttpReceiverConfig(**config))


def feed_of(dsn: str, **more: Any) -> IngestFeed:
    with psycopg.connect(dsn) as conn:
        grant = acquire(conn, INGEST.lease, 600)
    assert grant is not None
    return IngestFeed(JobSettings(dsn, "hub", "p1", INGEST, grant, 2, **more))


def read(feed: IngestFeed, body: Any, *receivers: Receiver) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for piece in feed.pieces(body, 4):
        for one, events in feed.read(piece, {one.name: one for one in receivers}):
            found.setdefault(one.name, []).extend(event.payload["n"] for event in events)
    return found


def test_h29_a_plan_of_the_ingest_is_repeated_though_more_has_come(came: Came) -> None:
    feed, a, b = feed_of(came.dsn, max_rows=40), receiver("a"), receiver("b", path="/b")
    here = {"a": a, "b": b}
    append(came.dsn, a, *range(600))
    append(came.dsn, b, *range(10))
    with psycopg.connect(came.dsn) as conn:
        body, behind = feed.next(conn, here, None)
        assert (read(feed, body, a, b), behind) == ({"a": list(range(30)), "b": list(range(10))}, 570)
        append(came.dsn, b, 10)
        assert feed.next(conn, here, body) == (body, 571)
        feed.move(conn, body)
        assert feed.next(conn, here, body)[0] != body
        with pytest.raises(Retryable, match="somebody else"):
            feed.move(conn, body)


def test_events_of_a_receiver_that_was_changed_come_before_those_of_its_successor(came: Came) -> None:
    feed, old, new = feed_of(came.dsn), receiver("old"), receiver("new", acknowledge_timeout=9)
    stranger = receiver("stranger", path="/other")
    append(came.dsn, new, 3, 4)
    append(came.dsn, old, 1, 2)
    append(came.dsn, stranger, 9)
    seen: list[int] = []
    with psycopg.connect(came.dsn) as conn:
        while (body := feed.next(conn, {"new": new}, None)[0]) is not None:
            conn.commit()
            seen += read(feed, body, new)["new"]
            feed.move(conn, body)
            conn.commit()
    assert seen == [1, 2, 3, 4]
    assert came.waits(), "what nobody hears waits until somebody does"
