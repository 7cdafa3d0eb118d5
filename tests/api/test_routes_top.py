"""Which routes are busy, over the API: those of the node and those on Spark together."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import httpx
import psycopg
import pytest

from memory_node import is_problem
from memory_routes import T, routed, simple, with_tenant
from running_routes import here, pool_of
from trunkline.api.metrics import ViewCollector
from trunkline.api.routestop import TOP, TopShown
from trunkline.core.clock import SystemClock
from trunkline.node.routingshown import spark_numbers
from trunkline.routes.counted import CountRow, GroupRow, SparkCounts, write_counts, write_custom, write_groups
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.local.outbox import Outbox
from trunkline.routes.local.runner import LocalRunner
from trunkline.routes.quota_buckets import MemoryBuckets
from trunkline.routes.quotas import Quotas
from trunkline.routes.registry import registry

OURS = Tenant("myorg", "myapp")
GROUP = "routes:kafka:broker:9092"


@dataclass
class Node:
    dsn: str
    client: httpx.AsyncClient
    spark: SparkCounts

    def on_spark(self, id: str, received: int, instance: str = "p1", tenant: Tenant = OURS) -> None:
        row = CountRow(RouteKey(tenant, id), "kafka", "queue", (received, 3, 2, 1, 0, 0, 0), 0.5)
        with psycopg.connect(self.dsn) as conn:
            write_counts(conn, instance, [row])

    def group(self, failing: str = "") -> None:
        with psycopg.connect(self.dsn) as conn:
            conn.execute(
                "INSERT INTO site.instance (id, kind, heartbeat_at) VALUES ('p1', 'pipeline', now() + interval '1 hour')"
            )
            write_groups(conn, "p1", [GroupRow(GROUP, True, 100, 4, 2.0, 17, failing)])

    async def top(self, address: str = "/v1/routes/top", **params: str | int) -> dict[str, object]:
        answer = await self.client.get(address, params=params)
        assert answer.status_code == 200, answer.text
        TopShown.model_validate(answer.json())
        return answer.json()


@pytest.fixture
async def node(make_database: Callable[..., str]) -> AsyncIterator[Node]:
    dsn, clock = make_database("queues", "routes"), SystemClock()
    quotas = Quotas(MemoryBuckets(clock), clock, random.random)
    async with pool_of(dsn) as pool:
        runner = LocalRunner(here(dsn, pool), registry(), {}, quotas, Outbox(pool))
        await runner.open()
        spark = SparkCounts(pool)
        async with (
            routed(runner=runner, injects=runner, quotas=quotas, counts_of=runner.counts, spark=spark) as at,
            at.client() as client,
        ):
            await with_tenant(client)
            yield Node(dsn, client, spark)
        await runner.close()


def rows(found: dict[str, object]) -> list[tuple[str, str, int]]:
    return [(one["id"], one["runner"], one["received"]) for one in found["routes"]]  # type: ignore[attr-defined]


async def put(node: Node, id: str) -> None:
    answer = await node.client.put(f"{T}/routes/{id}", json=simple(receiver={"plugin": "nop", "name": id}))
    assert answer.status_code == 200, answer.text


async def test_routes_of_the_node_and_on_spark_are_shown_together_the_busiest_first(node: Node) -> None:
    for id in ("quiet", "busy", "both"):
        await put(node, id)
    for _ in range(2):
        await node.client.post(f"{T}/routes/both/event", json=1)
    node.on_spark("busy", 40)
    node.on_spark("busy", 60, "p2")
    node.on_spark("both", 5)
    node.group()
    found = await node.top()
    assert rows(found) == [("busy", "spark", 100), ("both", "spark", 5), ("both", "node", 2), ("quiet", "node", 0)]
    assert found["groups"] == [
        {"name": GROUP, "instance": "p1", "events": 100, "batches": 4, "seconds": 2.0, "behind": 17, "failing": ""}
    ]
    assert rows(await node.top(limit=1)) == [("busy", "spark", 100)]


async def test_a_tenant_sees_its_own_routes_and_no_groups(node: Node) -> None:
    await put(node, "mine")
    await with_tenant(node.client, "/v1/orgs/other/applications/app")
    theirs = "/v1/orgs/other/applications/app/routes/theirs"
    await node.client.put(theirs, json=simple(receiver={"plugin": "nop"}, sender={"plugin": "nop"}))
    node.on_spark("mine", 2)
    node.on_spark("theirs", 3, tenant=Tenant("other", "app"))
    node.group()
    assert rows(await node.top()) == [("theirs", "spark", 3), ("mine", "spark", 2)]
    for found in (await node.top(f"{T}/top"), await node.top(org="myorg", app="myapp")):
        assert rows(found) == [("mine", "spark", 2)]
        assert found["groups"] == []
    assert is_problem(await node.client.get("/v1/orgs/nobody/applications/app/top"), 404, "no-such-tenant")


async def test_a_route_that_was_removed_is_not_shown_and_stays_in_the_metrics(node: Node) -> None:
    await put(node, "gone")
    node.on_spark("gone", 9)
    await node.client.delete(f"{T}/routes/gone")
    assert rows(await node.top()) == []
    assert (await spark_numbers(node.spark))["spark"][0]["received"] == 9


async def test_metrics_have_routes_and_groups_on_spark(node: Node) -> None:
    node.on_spark("r", 9)
    node.group(failing="the broker is away")
    with psycopg.connect(node.dsn) as conn:
        write_custom(conn, "p1", [("ears.custom.alarms", 4)])
    view = await spark_numbers(node.spark)
    families = {family.name: family for family in ViewCollector({"routes": lambda: view}, list).collect()}
    plugins = {"receiver": "kafka", "sender": "queue"}
    for name, labels, value in (
        ("trunkline_routes_spark_received", plugins, 9), ("trunkline_routes_spark_matched", plugins, 3),
        ("trunkline_routes_spark_seconds", plugins, 0.5), ("trunkline_routes_group_events", {"group": GROUP}, 100),
        ("trunkline_routes_group_behind", {"group": GROUP}, 17), ("trunkline_routes_group_failing", {"group": GROUP}, 1),
        ("trunkline_routes_spark_custom", {"name": "ears.custom.alarms"}, 4),
    ):  # fmt: skip
        [sample] = families[name].samples
        assert (sample.labels, sample.value) == (labels, value), name


async def test_numbers_of_the_node_are_there_while_those_on_spark_are_not(make_database: Callable[..., str]) -> None:
    async with pool_of(make_database("queues", "routes")) as pool:
        spark = SparkCounts(pool)
    assert await spark_numbers(spark) == {}
    assert await spark_numbers(None) == {}


def test_the_example_is_an_answer() -> None:
    TopShown.model_validate(TOP)
