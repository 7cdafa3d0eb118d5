"""Routes in the local runner: plugins are shared, events reach who wants them, and changes lose and double nothing."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from typing import Any

import pytest

from running_routes import Named, bench, outcomes, raising_filter, until
from trunkline.core.errors import Terminal
from trunkline.routes.ends import Place, Took
from trunkline.routes.event import Event, Source
from trunkline.routes.keys import Tenant
from trunkline.routes.outcome import Outcome
from trunkline.routes.plugin import FilterPlugin, Runs, SenderPlugin, StatefulFilter
from trunkline.routes.shared import End

R = {"rounds": 5, "intervalMs": 1, "payload": {"foo": "bar"}}


def tap(of: str = "", name: str = "") -> dict[str, Any]:
    return {"plugin": "tap", "name": name, "config": {"of": of}}


def sink(of: str = "") -> dict[str, Any]:
    return {"plugin": "sink", "config": {"of": of}}


def matching(value: object) -> list[dict[str, Any]]:
    return [{"plugin": "match", "config": {"matcher": "pattern", "pattern": {"kind": value}}}]


async def test_s16_routes_share_their_receivers_and_senders() -> None:
    async with bench() as at:

        def r(name: str) -> dict[str, Any]:
            return {"plugin": "debug", "name": name, "config": R}

        await at.runner.rest()
        await at.add("1", receiver=r("A"), sender=sink("A"))
        await at.add("2", receiver=r("A"), sender=sink("B"))
        await at.add("3", receiver=r("B"), sender=sink("B"))
        assert sorted(one.routes for one in at.runner.receivers()) == [1, 2]
        assert sorted(one.routes for one in at.runner.senders()) == [1, 2]
        at.runner.receive()
        await until(lambda: len(at.shop.sink("A").got) == 5 and len(at.shop.sink("B").got) == 10)
        assert at.shop.sink("A").opened == at.shop.sink("B").opened == 1


async def test_s17_a_name_or_another_tenant_makes_a_plugin_private() -> None:
    async with bench() as at:
        await at.add("1", receiver=tap(name="n1"))
        await at.add("2", receiver=tap(name="n2"))
        assert at.shop.tap().opened == 2
        await at.add("1", Tenant("other", "app"), receiver=tap(name="n1"))
        assert at.shop.tap().opened == 3
        assert len([one for one in at.runner.receivers() if one.key.end is End.RECEIVER]) == 3


async def test_s19_each_route_has_a_memory_of_its_own() -> None:
    async with bench() as at:
        for id in ("a", "b"):
            await at.add(id, filterChain=[{"plugin": "dedup"}], sender=sink(id))
        done = [await at.shop.tap().pour({"same": 1}) for _ in range(5)]
        assert {outcome for one in done for outcome in outcomes(one)} == {Outcome.ACKED}
        assert at.shop.sink("a").got == at.shop.sink("b").got == [{"same": 1}]


async def test_s20_ten_thousand_events_and_no_route_sees_what_another_made_of_them() -> None:
    async with bench() as at:
        chain = [
            {"plugin": "unwrap", "config": {"path": ".a"}},
            {"plugin": "modify", "config": {"path": ".x", "toUpper": True}},
        ]
        await at.add("upper", filterChain=chain, sender=sink("upper"))
        await at.add("plain", sender=sink("plain"))
        for start in range(0, 10_000, 500):
            await at.shop.tap().pour(*({"a": {"x": f"v{n}"}} for n in range(start, start + 500)))
        assert at.shop.sink("upper").got == [{"x": f"V{n}"} for n in range(10_000)]
        assert at.shop.sink("plain").got == [{"a": {"x": f"v{n}"}} for n in range(10_000)]


async def test_s22_a_constructor_that_blocks_delays_no_other_route() -> None:
    """So long as it takes, events of others are done within milliseconds, as when nothing blocks."""
    may = threading.Event()

    def blocks(config: Named, place: Place) -> Any:
        assert may.wait(9), "the loop is held up"
        raise RuntimeError("no use")

    async with bench(SenderPlugin("blocks", Named, Runs.LOCAL, open=blocks)) as at:
        await at.add("quick")
        adding = asyncio.create_task(at.add("slow", sender={"plugin": "blocks"}))
        taken: list[float] = []
        for n in range(500):
            began = time.monotonic()
            assert outcomes(await at.shop.tap().pour(n)) == [Outcome.ACKED]
            taken.append(time.monotonic() - began)
        assert at.shop.sink().got == list(range(500))
        assert statistics.median(taken) < 0.01
        await at.add("other", sender={"plugin": "sink", "config": {"of": "other"}})
        assert not adding.done()
        may.set()
        await asyncio.wait([adding])
        assert "no use" in str(adding.exception())
        assert len(at.runner.senders()) == 2, "nothing of it is left"


async def test_an_event_is_done_when_all_routes_are_done_with_it() -> None:
    async with bench() as at:
        at.shop.sink("slow").gate = gate = asyncio.Event()
        await at.add("1", sender=sink("quick"))
        await at.add("2", sender=sink("slow"))
        given = await at.shop.tap().poured({"n": 1})
        await until(lambda: at.shop.sink("quick").got)
        assert not given.done()
        gate.set()
        assert outcomes(await given) == [Outcome.ACKED]


async def test_an_event_that_nobody_wants_is_done() -> None:
    async with bench() as at:
        await at.add("1", filterChain=matching("a"))
        assert outcomes(await at.shop.tap().pour({"kind": "b"}, {"kind": "a"})) == [Outcome.ACKED] * 2
        assert at.shop.sink().got == [{"kind": "a"}]


async def test_a_change_of_filters_restarts_nothing_and_loses_or_doubles_no_event() -> None:
    async with bench() as at:
        await at.add("r", filterChain=matching("x"))
        pouring = [asyncio.create_task(_pour_all(at, n)) for n in range(4)]
        for change in range(50):
            await at.add("r", filterChain=[*matching("x"), {"plugin": "log", "config": {"tag": f"v{change}"}}])
            await asyncio.sleep(0.001)
        await asyncio.gather(*pouring)
        assert at.shop.tap().runs == at.shop.tap().opened == at.shop.sink().opened == 1
        assert at.shop.tap().closed == at.shop.sink().closed == 0
        assert sorted(one["n"] for one in at.shop.sink().got) == sorted(range(4 * 200))
        for n in range(4):
            mine = [one["n"] for one in at.shop.sink().got if one["n"] // 200 == n]
            assert mine == sorted(mine)


async def _pour_all(at: Any, who: int) -> None:
    for n in range(200):
        await at.shop.tap().poured({"kind": "x", "n": who * 200 + n})
        await asyncio.sleep(0)


async def test_what_the_old_route_has_is_sent_before_what_the_new_one_gets() -> None:
    async with bench() as at:
        await at.add("r", sender=sink("a"))
        at.shop.sink("a").gate = gate = asyncio.Event()
        first = await at.shop.tap().poured({"n": 1}, {"n": 2})
        await at.add("r", sender=sink("a"), name="new")
        second = await at.shop.tap().poured({"n": 3})
        gate.set()
        await asyncio.gather(first, second)
        assert [one["n"] for one in at.shop.sink("a").got] == [1, 2, 3]


async def test_a_route_that_is_built_anew_gets_new_plugins() -> None:
    async with bench() as at:
        await at.add("r")
        await at.add("r")
        await until(lambda: at.shop.tap().closed == at.shop.sink().closed == 1)
        await until(lambda: at.shop.tap().give)
        assert at.shop.tap().opened == at.shop.sink().opened == at.shop.tap().runs == 2
        assert outcomes(await at.shop.tap().pour({"n": 1})) == [Outcome.ACKED]
        assert len(at.shop.sink().got) == 1


async def test_a_route_that_stops_finishes_what_it_has() -> None:
    async with bench() as at:
        await at.add("r", filterChain=[{"plugin": "batch", "config": {"batchSize": 100, "timeoutMs": 3_600_000}}])
        given = await at.shop.tap().poured({"n": 1}, {"n": 2})
        await at.remove("r")
        assert outcomes(await given) == [Outcome.ACKED] * 2
        assert at.shop.sink().got == [[{"n": 1}, {"n": 2}]]
        assert at.shop.tap().closed == at.shop.sink().closed == 1


async def test_h32_events_that_a_filter_holds_are_not_done_until_they_are_flushed() -> None:
    async with bench() as at:
        await at.add("r", filterChain=[{"plugin": "batch", "config": {"batchSize": 5, "timeoutMs": 300}}])
        full, rest = await at.shop.tap().poured(*range(5)), await at.shop.tap().poured(5, 6)
        assert outcomes(await full) == [Outcome.ACKED] * 5
        assert not rest.done()
        assert outcomes(await rest) == [Outcome.ACKED] * 2
        assert at.shop.sink().got == [[0, 1, 2, 3, 4], [5, 6]]


async def test_h32_what_a_filter_holds_goes_on_in_the_route_that_takes_over() -> None:
    async with bench() as at:
        batch = {"plugin": "batch", "config": {"batchSize": 3, "timeoutMs": 3_600_000}}
        await at.add("r", filterChain=[batch])
        first = await at.shop.tap().poured(1, 2)
        await at.add("r", filterChain=[batch, {"plugin": "pass"}])
        second = await at.shop.tap().poured(3, 4)
        assert outcomes(await first) == [Outcome.ACKED] * 2
        assert at.shop.sink().got == [[1, 2, 3]]
        await at.add("r", filterChain=[])
        assert outcomes(await second) == [Outcome.ACKED] * 2
        assert at.shop.sink().got == [[1, 2, 3], [4]]


async def test_h32_what_failed_is_no_duplicate_of_itself() -> None:
    async with bench() as at:
        await at.add("r", filterChain=[{"plugin": "dedup"}])
        at.shop.sink().broken = RuntimeError("a defect")
        assert outcomes(await at.shop.tap().pour({"n": 1})) == [Outcome.NACKED]
        at.shop.sink().broken = None
        assert outcomes(await at.shop.tap().pour({"n": 1})) == [Outcome.ACKED]
        assert outcomes(await at.shop.tap().pour({"n": 1})) == [Outcome.ACKED]
        assert at.shop.sink().got == [{"n": 1}]


class Watching:
    def __init__(self) -> None:
        self.heard: list[Took] = []

    def took(self, took: Took) -> None:
        self.heard.append(took)


async def test_an_injected_event_is_for_one_route_alone_and_says_what_became_of_it() -> None:
    async with bench() as at:
        split = [{"plugin": "split"}]
        route = await at.add("r", receiver={"plugin": "nop"}, filterChain=split, sender=sink("mine"))
        await at.add("other", receiver={"plugin": "nop"}, sender=sink("other"))
        watch = Watching()
        done = await at.runner.inject(route, Event([1, 2, 3], {}, Source("e1")), 10.0, watch)
        assert (done.of, done.outcome) == ("e1", Outcome.ACKED)
        assert watch.heard == [Took("r", sent=3)]
        assert at.shop.sink("mine").ids == [f"e1:myorg/myapp/r:{n}" for n in range(3)]
        assert at.shop.sink("other").got == []


async def test_routes_of_receivers_that_do_not_run_here_take_injected_events() -> None:
    async with bench() as at:
        route = await at.add("r", receiver={"plugin": "files", "config": {"path": "/nowhere"}})
        assert (await at.runner.inject(route, Event({"n": 1}), 10.0)).outcome is Outcome.ACKED


async def test_a_route_whose_plugin_does_not_open_leaves_nothing_behind() -> None:
    async def broken(config: Named, place: Place) -> Any:
        raise RuntimeError("it is broken")

    async with bench(SenderPlugin("broken", Named, Runs.LOCAL, open=broken)) as at:
        await at.add("r")
        for id in ("r", "new"):
            with pytest.raises(Terminal, match="it is broken"):
                await at.add(id, sender={"plugin": "broken"})
        assert outcomes(await at.shop.tap().pour({"n": 1})) == [Outcome.ACKED]
        assert [one.routes for one in at.runner.receivers()] == [one.routes for one in at.runner.senders()] == [1]


async def test_a_defect_in_one_route_harms_no_other() -> None:
    async with bench(raising_filter()) as at:
        await at.add("good", sender=sink("good"))
        await at.add("bad", filterChain=[{"plugin": "raises"}], sender=sink("bad"))
        began = time.monotonic()
        done = await at.shop.tap().pour({"n": 1}, {"bad": 1})
        assert outcomes(done) == [Outcome.ACKED, Outcome.NACKED]
        assert "a defect" in done[1].reason
        assert time.monotonic() - began < 5.0
        assert len(at.shop.sink("good").got) == 2


async def test_a_receiver_whose_last_route_goes_while_another_comes_reads_on() -> None:
    async with bench() as at:
        at.shop.sink().gate = gate = asyncio.Event()
        await at.add("old")
        given = await at.shop.tap().poured({"n": 1})
        going = asyncio.create_task(at.remove("old"))
        await asyncio.sleep(0)
        await at.add("new", name="new", sender=sink("new"))
        gate.set()
        await going
        assert outcomes(await given) == [Outcome.ACKED]
        assert outcomes(await at.shop.tap().pour({"n": 2})) == [Outcome.ACKED]
        assert {"n": 2} in at.shop.sink("new").got


class Upset(StatefulFilter):
    """Holds what it gets, until it gets something bad: then it raises."""

    def __init__(self) -> None:
        self._held: list[Event] = []

    def __call__(self, batch: list[Event], faults: Any) -> list[Event]:
        self._held += batch
        if any("bad" in event.payload for event in batch):
            raise RuntimeError("upset")
        return []

    def state(self) -> Any:
        return [event.payload for event in self._held]

    def restore(self, state: Any) -> None:
        self._held = [Event(payload) for payload in state]

    def held(self) -> list[Event]:
        return self._held

    def flush(self, now: float) -> list[Event]:
        held, self._held = self._held, []
        return held


async def test_h32_a_filter_that_raises_gives_back_all_that_it_held() -> None:
    upset = FilterPlugin("upset", Named, lambda config, around: Upset(), stateful=True)
    async with bench(upset) as at:
        await at.add("r", filterChain=[{"plugin": "upset"}])
        held = await at.shop.tap().poured({"n": 1})
        assert outcomes(await at.shop.tap().pour({"bad": 2})) == [Outcome.NACKED]
        assert outcomes(await held) == [Outcome.NACKED]
        after = await at.shop.tap().poured({"n": 3})
        await at.remove("r")
        assert outcomes(await after) == [Outcome.ACKED]
        assert at.shop.sink().got == [{"n": 3}]
