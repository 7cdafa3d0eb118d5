"""Events that nodes append for a pipeline, and what becomes of them when there is none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from running_routes import AWAY, TENANT, Bench, bench, here, outcomes, pool_of, until
from trunkline.core.clock import SystemClock
from trunkline.core.errors import Retryable, Terminal
from trunkline.db.lease import acquire, commit_fenced, connect_fenced
from trunkline.routes import ingest
from trunkline.routes.event import Event, Source
from trunkline.routes.instances import Instance, Kind
from trunkline.routes.local import appending
from trunkline.routes.local import ingest as doors
from trunkline.routes.local.appending import Appender, Taker
from trunkline.routes.local.outbox import Outbox
from trunkline.routes.outcome import Outcome
from trunkline.routes.placement import INGEST
from trunkline.routes.quota import Quota
from trunkline.routes.quota_buckets import MemoryBuckets
from trunkline.routes.quotas import Quotas

PIPELINE = Instance("p1", Kind.PIPELINE, ("kafka", "ingest"))
NODES = [Instance(id, Kind.NODE, ("http", "ingest")) for id in ("i1", "i2")]
EAR = {"plugin": "http"}
LOCAL = {"plugin": "http", "config": {"placement": "local"}}


@dataclass
class Site:
    """`alive`: what all nodes believe. Its pipeline is the test."""

    dsn: str
    alive: list[Instance]
    nodes: dict[str, Bench]

    @property
    def node(self) -> Bench:
        return self.nodes["i1"]

    def pipeline(self, alive: bool) -> None:
        self.alive[:] = [*NODES[: len(self.nodes)], *([PIPELINE] if alive else [])]

    def rows(self) -> list[tuple[int, Any]]:
        """Position and payload of all that waits."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            query = "SELECT position, event->'payload' FROM routes.ingest_event ORDER BY receiver, position"
            return conn.execute(query).fetchall()

    def payloads(self) -> list[Any]:
        return [payload for _, payload in self.rows()]


@asynccontextmanager
async def site(dsn: str, nodes: int = 1, **more: Any) -> AsyncIterator[Site]:
    alive: list[Instance] = []
    async with pool_of(dsn) as pool, benches_of(dsn, pool, nodes, alive, more) as benches:
        found = Site(dsn, alive, benches)
        found.pipeline(True)
        yield found


@asynccontextmanager
async def benches_of(
    dsn: str, pool: Any, nodes: int, alive: list[Instance], more: dict[str, Any]
) -> AsyncIterator[dict[str, Bench]]:
    async with bench(at=here(dsn, pool, "i1"), outbox=Outbox(pool), alive=lambda: alive, **more) as one:
        if nodes == 1:
            yield {"i1": one}
            return
        async with bench(at=here(dsn, pool, "i2"), outbox=Outbox(pool), alive=lambda: alive) as other:
            yield {"i1": one, "i2": other}


async def post(at: Bench, *numbers: int) -> list[Outcome]:
    """One after the other; waits until somebody hears it."""
    found: list[Outcome] = []

    async def heard(n: int) -> bool:
        posted = await at.runner.hooks.post(TENANT, "POST", "", Event({"n": n}, {}, Source(tenant=TENANT)))
        found.extend([posted.done.outcome] if posted.done is not None else [])
        return posted.done is not None

    for n in numbers:
        await until(lambda n=n: heard(n))  # type: ignore[misc]
    return found


def numbers(got: list[Any]) -> list[int]:
    return [one["n"] for one in got]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "LOOK_SECONDS", 0.05)


async def test_with_a_pipeline_events_are_appended_and_an_ack_means_that_they_are_committed(
    make_database: Callable[..., str],
) -> None:
    async with site(make_database("routes")) as at:
        await at.node.add("r", receiver=EAR)
        for n in range(5):
            assert await post(at.node, n) == [Outcome.ACKED]
            assert at.rows()[-1] == (n + 1, {"n": n}), "it is there when the answer is"
        assert at.node.shop.sink().got == []
        assert at.node.runner.receivers()[0].received == 5


async def test_with_placement_local_or_without_a_pipeline_routes_run_at_the_node(make_database: Callable[..., str]) -> None:
    async with site(make_database("routes")) as at:
        await at.node.add("l", receiver=LOCAL, sender={"plugin": "sink", "config": {"of": "l"}})
        assert await post(at.node, 1) == [Outcome.ACKED]
        assert at.node.shop.sink("l").got == [{"n": 1}]
        await at.node.remove("l")
        at.pipeline(False)
        await at.node.add("r", receiver=EAR)
        assert await post(at.node, 2) == [Outcome.ACKED]
        assert (at.node.shop.sink().got, at.rows()) == ([{"n": 2}], [])
        assert INGEST not in at.node.runner.held, "nothing is left, so nobody wants the lease"


async def test_what_is_injected_into_one_route_stays_at_the_node(make_database: Callable[..., str]) -> None:
    async with site(make_database("routes")) as at:
        route = await at.node.add("r", receiver=EAR)
        done = await at.node.runner.inject(route, Event({"n": 1}, {}, Source(tenant=TENANT)), 30.0)
        assert (done.outcome, at.node.shop.sink().got, at.rows()) == (Outcome.ACKED, [{"n": 1}], [])


async def test_many_posts_at_many_nodes_have_dense_positions_and_each_nodes_order(make_database: Callable[..., str]) -> None:
    async with site(make_database("routes"), nodes=2) as at:
        for node in at.nodes.values():
            await node.add("r", receiver=EAR)

        async def poster(node: Bench, first: int) -> None:
            assert set(await post(node, *range(first, first + 25))) == {Outcome.ACKED}

        posters = [(node, 1_000 * (8 * which + n)) for which, node in enumerate(at.nodes.values()) for n in range(8)]
        await asyncio.gather(*[poster(node, first) for node, first in posters])
        rows = at.rows()
        assert [position for position, _ in rows] == list(range(1, 401))
        came = numbers([payload for _, payload in rows])
        for _, first in posters:
            assert [n for n in came if first <= n < first + 25] == list(range(first, first + 25))


async def test_a_reader_that_sees_a_head_sees_all_before_it(make_database: Callable[..., str]) -> None:
    dsn = make_database("routes")
    async with pool_of(dsn) as pool:
        appenders = [Appender(pool, random.random) for _ in range(3)]
        done = asyncio.Event()

        async def append(which: int) -> None:
            for n in range(30):
                events = [Event({"n": n}, {}, Source(f"{which}/{n}/{m}")) for m in range(1 + n % 3)]
                assert set(outcomes(await (await appenders[which].put(Taker("r", TENANT, "s"), events, 60)))) == {Outcome.ACKED}

        def look() -> int:
            with psycopg.connect(dsn, autocommit=True) as conn:
                for row in ingest.waiting(conn):
                    assert sum(len(page) for page in ingest.read(conn, "r", 0, row.head)) == row.head
                    return row.head
            return 0

        async def keep_looking() -> None:
            while not done.is_set():
                await asyncio.to_thread(look)

        looking = asyncio.create_task(keep_looking())
        await asyncio.gather(*[append(which) for which in range(3)])
        done.set()
        await looking
        assert await asyncio.to_thread(look) == 3 * 60
        for appender in appenders:
            await appender.close()


async def test_what_was_acked_before_a_kill_is_routed_after_it_and_what_was_not_acked_may_come_again(
    make_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = make_database("routes")
    async with site(dsn) as at:
        await at.node.add("r", receiver=EAR)
        assert await post(at.node, 1) == [Outcome.ACKED]
        with monkeypatch.context() as dying:
            dying.setattr(appending.Batch, "finish", lambda *_: None)
            lost = asyncio.create_task(post(at.node, 2))
            await until(lambda: len(at.rows()) == 2)
            lost.cancel()
            await asyncio.gather(lost, return_exceptions=True)
    async with site(dsn) as at:
        at.pipeline(False)
        await at.node.add("r", receiver=EAR)
        assert await post(at.node, 2) == [Outcome.ACKED], "who heard nothing posts it again"
        await until(lambda: not at.rows() and len(at.node.shop.sink().got) >= 3)
        assert numbers(at.node.shop.sink().got) == [1, 2, 2]


async def test_when_no_pipeline_is_left_one_node_routes_what_waits_and_nothing_overtakes(
    make_database: Callable[..., str],
) -> None:
    async with site(make_database("routes"), nodes=2) as at:
        gate = asyncio.Event()
        for node in at.nodes.values():
            await node.add("r", receiver=EAR)
            node.shop.sink().gate = gate
        await post(at.node, *range(10))
        at.pipeline(False)
        await until(lambda: any(INGEST in node.runner.held for node in at.nodes.values()))
        assert await post(at.node, 10, 11) == [Outcome.ACKED] * 2
        assert numbers(at.payloads()) == list(range(12)), "what comes is appended while others wait"
        holder = next(node for node in at.nodes.values() if INGEST in node.runner.held)
        gate.set()
        await until(lambda: at.rows() == [], 60)
        assert numbers(holder.shop.sink().got) == list(range(12))
        await until(lambda: not any(INGEST in node.runner.held for node in at.nodes.values()))
        at.node.shop.sink().got.clear()
        assert await post(at.node, 12) == [Outcome.ACKED]
        assert numbers(at.node.shop.sink().got) == [12], "it went through the routes here"


async def test_what_is_under_way_at_the_node_comes_before_the_first_event_that_is_appended(
    make_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "QUIET_SECONDS", 60.0)
    sent_before: list[int] = []
    async with site(make_database("routes")) as at:
        sink, gate, put = at.node.shop.sink(), asyncio.Event(), Appender.put

        async def noted(appender: Appender, *given: Any) -> Any:
            sent_before.append(len(sink.got))
            return await put(appender, *given)

        monkeypatch.setattr(Appender, "put", noted)
        at.pipeline(False)
        await at.node.add("r", receiver={"plugin": "http", "config": {"acknowledgeTimeout": 60}})
        sink.gate = gate
        first = asyncio.create_task(post(at.node, 1))
        await until(lambda: sink.calls)
        at.pipeline(True)
        second = asyncio.create_task(post(at.node, 2))
        await asyncio.sleep(0)
        gate.set()
        assert [*await first, *await second] == [Outcome.ACKED] * 2
        assert (numbers(sink.got), numbers(at.payloads()), sent_before) == ([1], [2], [1])


async def test_what_fails_while_it_is_drained_is_given_again_before_what_came_after_it(
    make_database: Callable[..., str],
) -> None:
    async with site(make_database("routes")) as at:
        await at.node.add("r", receiver=EAR, deliveryMode="at_least_once")
        await post(at.node, 1, 2)
        tries = 0
        assert len(at.rows()) == 2

        def upset(event: Event, *_: Any) -> None:
            nonlocal tries
            tries += 1
            raise RuntimeError("a defect")

        track = next(iter(at.node.runner._tracks.values()))
        whole, track._message = track._message, upset
        at.pipeline(False)
        await until(lambda: tries >= 4)
        assert at.node.shop.sink().got == []
        assert len(at.rows()) == 2
        track._message = whole
        await until(lambda: at.rows() == [])
        assert numbers(at.node.shop.sink().got) == [1, 2]


async def test_events_count_against_the_quota_when_they_are_appended_and_not_again(make_database: Callable[..., str]) -> None:
    clock = SystemClock()
    quotas = Quotas(MemoryBuckets(clock), clock, random.random)
    async with site(make_database("routes"), quotas=quotas) as at:
        await at.node.add("r", receiver={"plugin": "http", "config": {"acknowledgeTimeout": 0.3}})
        assert await post(at.node, 1) == [Outcome.ACKED]
        quotas.change(TENANT, Quota(0.0, clock.wall()))
        assert await post(at.node, 2) == [Outcome.NACKED]
        at.pipeline(False)
        await until(lambda: at.rows() == [])
        assert numbers(at.node.shop.sink().got) == [1]


async def test_what_waits_for_a_receiver_that_was_changed_goes_to_the_one_that_hears_the_same(
    make_database: Callable[..., str],
) -> None:
    async with site(make_database("routes")) as at:
        await at.node.add("r", receiver=EAR)
        await post(at.node, 1, 2)
        await at.node.add("r", receiver={"plugin": "http", "config": {"acknowledgeTimeout": 9}})
        await at.node.add(
            "s", receiver={"plugin": "http", "config": {"path": "/s"}}, sender={"plugin": "sink", "config": {"of": "s"}}
        )
        at.pipeline(False)
        await until(lambda: at.rows() == [])
        assert numbers(at.node.shop.sink().got) == [1, 2]
        assert at.node.shop.sink("s").got == []


# -- rows


async def test_a_receiver_that_nobody_routes_takes_only_so_many(make_database: Callable[..., str]) -> None:
    async with pool_of(make_database("routes")) as pool:
        appender = Appender(pool, random.random, most=3)
        full, other = Taker("full", TENANT, "f"), Taker("other", TENANT, "o")
        events = [Event({"n": n}, {}, Source(str(n))) for n in range(2)]
        first = await (await appender.put(full, events, 60))
        late = [await appender.put(taker, events, 60) for taker in (full, other)]
        assert outcomes(first) == [Outcome.ACKED] * 2
        assert [outcomes(await future) for future in late] == [[Outcome.NACKED] * 2, [Outcome.ACKED] * 2]
        assert [one.of for one in first] == ["0", "1"]
        await appender.close()


async def test_an_event_that_cannot_be_kept_is_refused_alone(make_database: Callable[..., str]) -> None:
    async with pool_of(make_database("routes")) as pool:
        appender, taker = Appender(pool, random.random), Taker("r", TENANT, "s")
        found = [await appender.put(taker, [Event(payload)], 60) for payload in ({"n": 1}, {"n": "\ud800"}, {"n": "\0"})]
        assert [outcomes(await one) for one in found] == [[Outcome.ACKED], [Outcome.NACKED], [Outcome.ACKED]]
        await appender.close()


async def test_while_the_database_is_away_events_wait_as_long_as_their_source_does(make_database: Callable[..., str]) -> None:
    async with pool_of(make_database("routes")) as pool:
        appender, taker = Appender(pool, random.random), Taker("r", TENANT, "s")
        asked, away = appender._ask, True

        class Away:
            async def rows(self, *args: Any) -> list[Any]:
                if away:
                    raise AWAY
                return await asked.rows(*args)

        appender._ask = Away()  # type: ignore[assignment]
        waits, short = await appender.put(taker, [Event({"n": 1})], 60), await appender.put(taker, [Event({"n": 2})], 0.05)
        assert outcomes(await short) == [Outcome.TIMED_OUT]
        away = False
        assert outcomes(await waits) == [Outcome.ACKED]
        rows = await asked.rows("SELECT event->'payload'->'n' FROM routes.ingest_event")
        assert rows == [(1,)], "nobody waits for the other any more"
        await appender.close()


async def test_h28_events_are_passed_only_from_where_they_were_read_and_are_deleted_then(
    make_database: Callable[..., str],
) -> None:
    dsn = make_database("routes")
    async with pool_of(dsn) as pool:
        appender = Appender(pool, random.random)
        events = [Event({"n": n}, {}, Source(str(n), TENANT)) for n in range(5)]
        await (await appender.put(Taker("r", TENANT, "s"), events, 60))
        await appender.close()
    with psycopg.connect(dsn) as conn:
        grant = acquire(conn, INGEST.lease, 60)
        assert grant is not None
    with connect_fenced(dsn, "test") as fenced:
        [row] = ingest.waiting(fenced)
        assert (row.tenant, row.source, row.position, row.head) == (TENANT, "s", 0, 5)
        [read] = ingest.read(fenced, "r", 0, 5)
        assert read == events
        ingest.move(fenced, "r", 3, 0)
        commit_fenced(fenced, grant)
        with pytest.raises(Retryable, match="somebody else"):
            ingest.move(fenced, "r", 3, 0)
        fenced.rollback()
        with pytest.raises(Terminal, match="not all is there"):
            list(ingest.read(fenced, "r", 0, 5))
        assert [[event.payload["n"] for event in page] for page in ingest.read(fenced, "r", 3, 5)] == [[3, 4]]
