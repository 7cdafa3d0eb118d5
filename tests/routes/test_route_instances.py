"""Who is alive at a site."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool
from structlog.testing import capture_logs

from route_ears import until
from route_place import until as until_said
from trunkline.core.errors import Retryable
from trunkline.routes.instances import Instance, Kind, Presence, alive, forget, heartbeat, new_id, unregister
from trunkline.routes.told import PostgresTold, Refusal, Told

NODE = Instance("edge-1_a", Kind.NODE, ("http", "redis"))
PIPELINE = Instance("hub-1_b", Kind.PIPELINE, ("kafka",))


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    return make_databases("routes")


@pytest.fixture
def dsn(database: str) -> str:
    with psycopg.connect(database) as conn:
        conn.execute("TRUNCATE site.instance")
    return database


@pytest.fixture
async def conn(dsn: str) -> AsyncIterator[AsyncConnection]:
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        yield conn


async def ids(conn: AsyncConnection, within: float = 5.0) -> list[str]:
    return [instance.id for instance in await alive(conn, within)]


async def age(conn: AsyncConnection, id: str, seconds: float) -> None:
    query = "UPDATE site.instance SET heartbeat_at = clock_timestamp() - make_interval(secs => %s) WHERE id = %s"
    await conn.execute(query, (seconds, id))


async def test_the_first_heartbeat_registers_and_later_ones_renew(conn: AsyncConnection) -> None:
    await heartbeat(conn, NODE)
    await heartbeat(conn, PIPELINE)
    node, pipeline = await alive(conn)
    assert (node.id, node.kind, node.runs) == (NODE.id, Kind.NODE, ("http", "redis"))
    assert (pipeline.id, pipeline.kind, pipeline.runs) == (PIPELINE.id, Kind.PIPELINE, ("kafka",))
    await heartbeat(conn, NODE)
    renewed = (await alive(conn))[0]
    assert renewed.started == node.started
    assert renewed.heartbeat > node.heartbeat


async def says(rows: PostgresTold, wanted: dict[str, Told]) -> bool:
    return await rows.told() == wanted


async def test_i3_it_tells_how_its_table_is_when_that_changed_or_its_row_was_lost(conn: AsyncConnection, dsn: str) -> None:
    one = Told(7, {"org/app/r": Refusal(7, 0, "it is 'broken'")})
    node = Presence(dsn, NODE, every=0.02)
    told: list[Told | None] = [one]
    node.tells = lambda: told[0]
    await node.start()
    async with AsyncConnectionPool(dsn, min_size=1, max_size=1, open=False) as pool:
        rows = PostgresTold(pool)
        assert await rows.told() == {NODE.id: Told(7, {"org/app/r": Refusal(7, 0, "it is 'broken'")})}
        told[0] = Told(8, {})
        await until_said(lambda: says(rows, {NODE.id: Told(8, {})}))
        await unregister(conn, NODE.id)
        await until_said(lambda: says(rows, {NODE.id: Told(8, {})}))
        told[0] = None
        await until_said(lambda: says(rows, {}))
    await node.stop()


async def test_who_is_silent_for_too_long_is_not_alive_until_it_speaks_again(conn: AsyncConnection) -> None:
    for instance in (NODE, PIPELINE):
        await heartbeat(conn, instance)
    await age(conn, NODE.id, 6)
    assert await ids(conn, within=5) == [PIPELINE.id]
    assert await ids(conn, within=10) == [NODE.id, PIPELINE.id]
    await heartbeat(conn, NODE)
    assert await ids(conn, within=5) == [NODE.id, PIPELINE.id]


async def test_who_unregisters_is_gone_at_once(conn: AsyncConnection) -> None:
    await heartbeat(conn, NODE)
    await unregister(conn, NODE.id)
    await unregister(conn, "nobody")
    assert await ids(conn) == []


async def test_who_ended_without_a_word_is_forgotten_in_the_end(conn: AsyncConnection) -> None:
    for instance in (NODE, PIPELINE):
        await heartbeat(conn, instance)
    await age(conn, NODE.id, 100)
    assert await forget(conn, after=99) == 1
    assert await ids(conn, within=1_000) == [PIPELINE.id]


def test_ids_of_two_starts_differ_and_show_the_name() -> None:
    assert new_id("edge-1") != new_id("edge-1")
    assert new_id("edge-1").startswith("edge-1_")


async def test_instances_know_who_else_is_alive(dsn: str) -> None:
    before = asyncio.all_tasks()
    node, pipeline = Presence(dsn, NODE, every=0.02), Presence(dsn, PIPELINE, every=0.02)
    await node.start()
    assert node.others == ()
    await pipeline.start()
    assert [(other.id, other.runs) for other in pipeline.others] == [(NODE.id, ("http", "redis"))]
    await until(lambda: [other.id for other in node.others] == [PIPELINE.id])
    await pipeline.stop()
    await until(lambda: node.others == ())
    await node.stop()
    assert asyncio.all_tasks() == before
    async with await AsyncConnection.connect(dsn) as conn:
        assert await ids(conn, within=1_000) == []


async def test_a_lost_connection_and_a_swept_row_are_mended_by_the_next_heartbeats(dsn: str, conn: AsyncConnection) -> None:
    node = Presence(dsn, NODE, every=0.02)
    await node.start()
    with capture_logs() as logs:
        with psycopg.connect(dsn, autocommit=True) as other:
            other.execute("DELETE FROM site.instance")
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'trunkline-routes-instance'"
            )
        await until(lambda: logs)
        async with asyncio.timeout(20):
            while await ids(conn) != [NODE.id]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert {line["event"] for line in logs} == {"no heartbeat"}
    await node.stop()


async def test_it_does_not_start_while_the_database_is_away(dsn: str) -> None:
    away = Presence(dsn.replace("dbname=", "dbname=not_"), NODE)
    before = asyncio.all_tasks()
    with pytest.raises(Retryable, match=NODE.id):
        await away.start()
    assert asyncio.all_tasks() == before
    await away.stop()
