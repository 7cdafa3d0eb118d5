"""Receivers that run alone run at one instance, and another takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from running_routes import AWAY, Bench, Named, Tap, bench, here, outcomes, pool_of, until
from trunkline.core.errors import Retryable
from trunkline.db.lease import Grant
from trunkline.routes.ends import Give, Place
from trunkline.routes.groups import Group
from trunkline.routes.instances import Instance, Kind
from trunkline.routes.local import draining, reading
from trunkline.routes.local.outbox import Outbox
from trunkline.routes.local.placing import able
from trunkline.routes.outcome import Outcome
from trunkline.routes.plugin import ReceiverPlugin, Runs

NODE = Instance("n", Kind.NODE, ("queue", "redis"))
OTHER = Instance("o", Kind.NODE, ("redis",))
PIPELINE = Instance("p", Kind.PIPELINE, ("queue", "kafka"))


def test_where_a_pipeline_runs_a_plugin_nodes_leave_it_to_the_pipeline() -> None:
    assert able(Group("queue", ""), [NODE, OTHER, PIPELINE]) == {"p"}
    assert able(Group("redis", ""), [NODE, OTHER, PIPELINE]) == {"n", "o"}
    assert able(Group("queue", ""), [NODE, OTHER]) == {"n"}
    assert able(Group("files", ""), [NODE, OTHER]) == set()


@asynccontextmanager
async def two(dsn: str) -> AsyncIterator[dict[str, Bench]]:
    """Two nodes of one site; the database has no schema but those of leases and routes."""
    alive = [Instance(id, Kind.NODE, ("tap",)) for id in ("i1", "i2")]
    async with (
        pool_of(dsn) as pool,
        bench(at=here(dsn, pool, "i1"), outbox=Outbox(pool), alive=lambda: alive) as one,
        bench(at=here(dsn, pool, "i2"), outbox=Outbox(pool), alive=lambda: alive) as other,
    ):
        yield {"i1": one, "i2": other}


async def test_a_receiver_that_runs_alone_runs_at_one_instance_and_moves_when_that_rests(
    make_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(draining, "LONGEST_PAUSE", 0.1)
    async with two(make_database("routes")) as nodes:
        for node in nodes.values():
            await node.add("r")
        await until(lambda: any(node.runner.held for node in nodes.values()))
        await until(lambda: any(node.shop.tap().give for node in nodes.values()))
        holder = next(node for node in nodes.values() if node.runner.held)
        other = next(node for node in nodes.values() if node is not holder)
        assert (holder.shop.tap().runs, other.shop.tap().runs) == (1, 0)
        for node in nodes.values():
            node.shop.sink().broken = AWAY
        assert outcomes(await holder.shop.tap().pour({"n": 1})) == [Outcome.ACKED]
        await holder.runner.rest()
        assert holder.shop.tap().give is None
        await until(lambda: other.shop.tap().give)
        assert outcomes(await other.shop.tap().pour({"n": 2})) == [Outcome.ACKED]
        other.shop.sink().broken = None
        await until(lambda: len(other.shop.sink().got) == 2)
        assert other.shop.sink().got == [{"n": 1}, {"n": 2}], "what the first one left in the outbox came first"


async def test_receivers_that_run_everywhere_need_no_lease(make_database: Callable[..., str]) -> None:
    async with two(make_database("routes")) as nodes:
        for node in nodes.values():
            await node.add("r", receiver={"plugin": "nop"})
        await until(lambda: all(node.runner.receivers()[0].running for node in nodes.values()))
        assert not any(node.runner.held for node in nodes.values())


async def test_a_receiver_that_fails_is_started_again_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FIRST_PAUSE", 0.01)

    class Failing(Tap):
        async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
            self.runs += 1
            if self.runs < 4:
                raise Retryable("source", "it is away", "wait")
            await super().run(give, stop, grant)

    tap = Failing()

    async def open(config: Named, place: Place) -> Tap:
        return tap

    async with bench(ReceiverPlugin("failing", Named, Runs.LOCAL, open)) as at:
        await at.add("r", receiver={"plugin": "failing"})
        await until(lambda: at.runner.receivers()[0].failing == "source: it is away")
        await until(lambda: tap.give)
        assert outcomes(await tap.pour({"n": 1})) == [Outcome.ACKED]
