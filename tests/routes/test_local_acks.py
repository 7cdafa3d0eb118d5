"""What a receiver hears of its events, through the whole runner (scenario 23)."""

from __future__ import annotations

import asyncio
import time

import pytest

from costs import no_collection
from running_routes import AWAY, bench, outcomes, raising_filter, until
from trunkline.routes.ends import Undelivered
from trunkline.routes.keys import Tenant
from trunkline.routes.local import lane, line
from trunkline.routes.outcome import Outcome
from trunkline.routes.quota import Quota
from trunkline.routes.quota_buckets import MemoryBuckets
from trunkline.routes.quotas import Quotas

SPLIT = {"plugin": "split"}
JS = {"plugin": "js", "config": {"source": "return [1, 2, 3].map(function (n) { return {payload: n}; });"}}


async def test_s23_a_split_is_acked_once_after_its_last_part() -> None:
    async with bench() as at:
        at.shop.sink().gate = gate = asyncio.Event()
        await at.add("r", filterChain=[SPLIT])
        given = await at.shop.tap().poured([1, 2, 3])
        await until(lambda: at.shop.sink().calls)
        assert not given.done()
        gate.set()
        assert outcomes(await given) == [Outcome.ACKED]
        assert at.runner.receivers()[0].done == {Outcome.ACKED: 1, Outcome.NACKED: 0, Outcome.TIMED_OUT: 0}


async def test_s23_one_part_that_fails_nacks_its_event_once() -> None:
    async with bench() as at:
        at.shop.sink().answer = lambda one: Undelivered("no", again=False) if one.message.payload == 2 else None
        await at.add("r", filterChain=[SPLIT])
        (done,) = await at.shop.tap().pour([1, 2, 3])
        assert (done.outcome, done.reason) == (Outcome.NACKED, "sender: no")
        assert at.shop.sink().got == [1, 3]
        assert at.runner.receivers()[0].done[Outcome.NACKED] == 1


async def test_s23_an_array_of_a_script_is_acked_likewise() -> None:
    async with bench() as at:
        await at.add("r", filterChain=[JS])
        assert outcomes(await at.shop.tap().pour({"n": 1})) == [Outcome.ACKED]
        assert at.shop.sink().got == [1, 2, 3]


async def test_s23_what_is_not_done_by_its_deadline_timed_out_once() -> None:
    async with bench() as at:
        at.shop.sink().gate = gate = asyncio.Event()
        await at.add("r")
        (done,) = await at.shop.tap().pour({"n": 1}, seconds=0.1)
        assert done.outcome is Outcome.TIMED_OUT
        gate.set()
        await until(lambda: at.shop.sink().got)
        assert at.runner.receivers()[0].done == {Outcome.ACKED: 0, Outcome.NACKED: 0, Outcome.TIMED_OUT: 1}


@pytest.mark.parametrize("where", ["filter", "sender"])
async def test_s23_a_panic_is_a_nack_at_once(where: str) -> None:
    async with bench(raising_filter()) as at:
        await at.add("r", filterChain=[{"plugin": "raises"}] if where == "filter" else [])
        at.shop.sink().broken = RuntimeError("a defect") if where == "sender" else None
        times = []
        for _ in range(5):
            began = time.monotonic()
            (done,) = await at.shop.tap().pour({"bad": 1})
            times.append(time.monotonic() - began)
            assert done.outcome is Outcome.NACKED
            assert "a defect" in done.reason
        assert min(times) < 0.1


async def test_without_an_outbox_what_cannot_be_sent_goes_back_to_its_source() -> None:
    async with bench() as at:
        at.shop.sink().broken = AWAY
        await at.add("r")
        (done,) = await at.shop.tap().pour({"n": 1})
        assert done.outcome is Outcome.NACKED
        assert "it is away" in done.reason


async def test_a_source_event_counts_once_against_the_quota_however_many_routes_take_it() -> None:
    async with bench() as at:
        clock = at.runner._here.clock
        quotas = Quotas(MemoryBuckets(clock), clock, lambda: 0.5)
        quotas.change(Tenant("myorg", "myapp"), Quota(5.0, 1.0))
        at.runner._quotas = quotas
        for id in "abcd":
            await at.add(id, name=id)
        done = await at.shop.tap().pour(*range(5), seconds=0.2)
        assert outcomes(done).count(Outcome.ACKED) >= 5
        late = await at.shop.tap().pour(*range(10), seconds=0.2)
        assert outcomes(late).count(Outcome.NACKED) >= 5
        assert any("quota" in one.reason for one in late)


async def test_no_more_events_come_in_than_may_be_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "MAX_OPEN", 10)
    async with bench() as at:
        at.shop.sink().gate = gate = asyncio.Event()
        await at.add("r")
        first = await at.shop.tap().poured(*range(10))
        second = asyncio.create_task(at.shop.tap().poured(*range(10)))
        (late,) = await at.shop.tap().pour(1, seconds=0.1)
        assert "under way" in late.reason
        assert not second.done()
        gate.set()
        assert outcomes(await first) == outcomes(await (await second)) == [Outcome.ACKED] * 10


async def test_no_event_comes_in_while_a_lane_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "FULL", 10)
    async with bench() as at:
        at.shop.sink().gate = gate = asyncio.Event()
        await at.add("r", filterChain=[SPLIT])
        first = await at.shop.tap().poured(list(range(20)))
        (late,) = await at.shop.tap().pour([1], seconds=0.1)
        assert late.outcome is Outcome.NACKED
        gate.set()
        assert outcomes(await first) == [Outcome.ACKED]
        await until(lambda: not at.runner.receivers()[0].open)
        assert outcomes(await at.shop.tap().pour([1])) == [Outcome.ACKED]


async def test_two_thousand_routes_on_one_receiver_cost_an_event_little_more_than_one() -> None:
    async def seconds(routes: int) -> float:
        async with bench() as at:
            for n in range(routes):
                await at.add(f"r{n}", filterChain=[{"plugin": "match", "config": {"matcher": "pattern", "pattern": {"n": n}}}])
            best = float("inf")
            for _ in range(5):
                began = time.process_time()
                for _ in range(10):
                    await at.shop.tap().pour(*({"n": 0} for _ in range(100)))
                best = min(best, time.process_time() - began)
            return best

    with no_collection():
        assert await seconds(2_000) < 5 * await seconds(1)
