"""What a sender cannot take: the retry outbox, dead letters, and how both end, on a real database."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from running_routes import AWAY, TENANT, Bench, Named, bench, here, outcomes, pool_of, raising_filter, until
from trunkline.core.errors import Invalid
from trunkline.routes import leaves
from trunkline.routes.compile import compile_route
from trunkline.routes.ends import Sendable, Undelivered
from trunkline.routes.event import Event
from trunkline.routes.local import draining, lane
from trunkline.routes.local.deadletters import DeadLetters, NoSuchLetter
from trunkline.routes.local.outbox import Drained, Outbox
from trunkline.routes.model import parse_routes
from trunkline.routes.outcome import Outcome
from trunkline.routes.plugin import Plugin, Runs, SenderPlugin


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are a matter of taste: short ones here."""
    monkeypatch.setattr(draining, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(draining, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(draining, "ORPHAN_SECONDS", 0.2)


@pytest.fixture(scope="module")
def site(make_databases: Callable[..., str]) -> str:
    return make_databases("routes")


@asynccontextmanager
async def kept(dsn: str, *plugins: Plugin, cap: int = 100_000) -> AsyncIterator[Bench]:
    """A bench with an outbox, in a database that is empty before."""
    with psycopg.connect(dsn) as conn:
        conn.execute("TRUNCATE routes.lane, routes.outbox, routes.dead_letter, routes.sent")
    async with pool_of(dsn) as pool, bench(*plugins, at=here(dsn, pool), outbox=Outbox(pool, cap)) as at:
        yield at


def rows(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(statement).fetchall()  # type: ignore[call-overload,no-any-return]


def waiting(dsn: str) -> list[Any]:
    """What is in the outboxes, in order."""
    return [row[0]["payload"] for row in rows(dsn, "SELECT message FROM routes.outbox ORDER BY hash, seq")]


def letters(dsn: str) -> list[tuple[str, str, str]]:
    return rows(dsn, "SELECT route, step, reason FROM routes.dead_letter ORDER BY id")  # type: ignore[return-value]


def sink(of: str) -> dict[str, Any]:
    return {"plugin": "sink", "config": {"of": of}}


def refuses(again: bool, reason: str = "no") -> Callable[[Sendable], Undelivered | None]:
    return lambda _: Undelivered(reason, again)


async def test_s24_a_route_that_fails_costs_another_nothing_and_recovers_in_order(site: str) -> None:
    async with kept(site) as at:
        await at.add("a", sender=sink("a"))
        await at.add("b", sender=sink("b"))
        at.shop.sink("b").broken = AWAY
        done = [one for n in range(20) for one in await at.shop.tap().pour({"n": 2 * n}, {"n": 2 * n + 1})]
        assert outcomes(done) == [Outcome.ACKED] * 40
        assert [one["n"] for one in at.shop.sink("a").got] == list(range(40))
        assert [one["n"] for one in waiting(site)] == list(range(40))
        assert at.shop.sink("b").got == []
        at.shop.sink("b").broken = None
        await until(lambda: len(at.shop.sink("b").got) == 40)
        assert [one["n"] for one in at.shop.sink("b").got] == list(range(40))
        assert [one["n"] for one in at.shop.sink("a").got] == list(range(40))
        await until(lambda: rows(site, "SELECT 1 FROM routes.lane") == [])


async def test_h33_a_route_with_messages_in_its_outbox_only_appends(site: str) -> None:
    async with kept(site) as at:
        route = await at.add("r")
        at.shop.sink().broken = AWAY
        await at.shop.tap().pour({"n": 0})
        at.shop.sink().refuses = lambda payloads: {"n": 0} in payloads
        at.shop.sink().broken = None
        await at.shop.tap().pour({"n": 1}, {"n": 2})
        assert at.shop.sink().got == []
        at.shop.sink().refuses = lambda _: False
        await until(lambda: len(at.shop.sink().got) == 3)
        assert [one["n"] for one in at.shop.sink().got] == [0, 1, 2]
        await until(lambda: rows(site, "SELECT 1 FROM routes.lane") == [])
        counts = at.runner.counts(route)
        assert counts is not None

        async def sent_directly() -> bool:
            kept = counts.kept
            await at.shop.tap().pour({"n": 3})
            return counts.kept == kept

        await until(sent_directly)


async def test_h33_what_a_sender_does_not_answer_in_time_is_kept_before_its_source_gives_up(site: str) -> None:
    async with kept(site) as at:
        await at.add("r")
        at.shop.sink().gate = gate = asyncio.Event()
        assert outcomes(await at.shop.tap().pour({"n": 1}, seconds=4.0)) == [Outcome.ACKED]
        assert at.shop.sink().got == []
        gate.set()
        await until(lambda: at.shop.sink().got)


async def test_h33_a_slow_sender_is_drained_by_as_many_at_a_time_as_it_can_take(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says nothing of a call that takes too long: so that must not happen for ever."""
    monkeypatch.setattr(draining, "SEND_SECONDS", 0.2)
    monkeypatch.setattr(draining, "QUICK_SECONDS", 0.05)
    async with kept(site) as at:
        await at.add("a", sender=sink("a"))
        slow = at.shop.sink("a")
        slow.broken = AWAY
        assert outcomes(await at.shop.tap().pour(*range(200))) == [Outcome.ACKED] * 200
        slow.broken, slow.slow = None, 0.002
        await until(lambda: slow.got == list(range(200)), 20)
        await until(lambda: not waiting(site))


async def test_h33_what_was_sent_of_a_call_is_progress_and_the_rest_is_tried_at_once(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "FIRST_PAUSE", 1000.0)
    monkeypatch.setattr(draining, "LONGEST_PAUSE", 1000.0)
    async with kept(site) as at:
        await at.add("a", sender=sink("a"))
        half = at.shop.sink("a")
        first_of_call = {1: 0, 2: 10}  # that is refused; the second call is the drainer's

        def answer(one: Sendable) -> Undelivered | None:
            return Undelivered("later", True) if one.message.payload >= first_of_call.get(half.calls, 20) else None

        half.answer = answer
        await at.shop.tap().pour(*range(20))
        await until(lambda: half.got == list(range(20)), 20)


async def test_h33_beyond_the_cap_messages_are_dead_letters(site: str) -> None:
    async with kept(site, cap=3) as at:
        await at.add("r")
        at.shop.sink().broken = AWAY
        assert outcomes(await at.shop.tap().pour(*({"n": n} for n in range(5)))) == [Outcome.ACKED] * 5
        assert [one["n"] for one in waiting(site)] == [0, 1, 2]
        assert [(route, step) for route, step, _ in letters(site)] == [("r", "sender")] * 2
        assert all("outbox is full" in reason and "it is away" in reason for _, _, reason in letters(site))


async def test_h33_two_instances_drain_a_lane_one_at_a_time(site: str) -> None:
    async with kept(site) as one, pool_of(site) as pool:
        route = await one.add("r")
        one.shop.sink().broken = AWAY
        await one.shop.tap().pour(*({"n": n} for n in range(50)))
        await one.runner.rest()
        with psycopg.connect(site) as conn:
            conn.execute("UPDATE routes.lane SET next_at = '-infinity', holder = '', held_until = '-infinity'")
        outbox, names = Outbox(pool), [f"i{n}" for n in range(2, 12)]
        claims = dict(zip(names, await asyncio.gather(*[outbox.claim(route.hash, name) for name in names]), strict=True))
        (holder,) = [name for name, tries in claims.items() if tries is not None]
        first = [row.seq for row in await outbox.first(route.hash, 10)]
        other = next(name for name in names if name != holder)
        assert await outbox.drained(route.hash, other, Drained(first, {})) == -1, "it does not hold the lane"
        assert await outbox.drained(route.hash, holder, Drained(first, {})) == 40
        assert [one["n"] for one in waiting(site)] == list(range(10, 50))


async def test_what_a_sender_never_takes_is_a_dead_letter_at_once(site: str) -> None:
    async with kept(site) as at:
        await at.add("r")
        at.shop.sink().answer = refuses(again=False, reason="404")
        assert outcomes(await at.shop.tap().pour({"n": 1})) == [Outcome.ACKED]
        assert letters(site) == [("r", "sender", "404")]
        assert waiting(site) == []
        assert at.runner.counts(at.running[f"{TENANT}/r"]).dead == 1  # type: ignore[union-attr]


async def test_what_a_filter_cannot_process_is_a_dead_letter_with_its_step(site: str) -> None:
    async with kept(site) as at:
        await at.add("r", filterChain=[{"plugin": "pass"}, {"plugin": "split"}])
        assert outcomes(await at.shop.tap().pour({"n": 1}, [1, 2])) == [Outcome.ACKED] * 2
        (letter,) = letters(site)
        assert letter[:2] == ("r", "filterChain[1] split")
        assert at.shop.sink().got == [1, 2]


def unsendable() -> SenderPlugin[Named]:
    def message(config: Named, around: object) -> Callable[[Event], Event]:
        def make(event: Event) -> Event:
            if "bad" in event.payload:
                raise Invalid("message", "it has no address", "give it one")
            return event

        return make

    async def open(config: Named, place: object) -> Any:
        raise NotImplementedError

    return SenderPlugin("picky", Named, Runs.LOCAL, message, open=open)


async def test_an_event_of_which_no_message_can_be_made_is_a_dead_letter(site: str) -> None:
    picky = unsendable()
    async with kept(site, picky) as at:
        object.__setattr__(picky, "open", at.shop._sink)
        await at.add("r", sender={"plugin": "picky"})
        assert outcomes(await at.shop.tap().pour({"bad": 1}, {"n": 1})) == [Outcome.ACKED] * 2
        assert letters(site) == [("r", "message", "message: it has no address")]
        assert at.shop.sink().got == [{"n": 1}]


async def test_an_event_is_not_done_before_what_became_of_it_is_committed(site: str) -> None:
    async with kept(site) as at:
        await at.add("kept")
        await at.add("dead", receiver={"plugin": "tap", "config": {"of": "dead"}}, filterChain=[{"plugin": "split"}])
        at.shop.sink().broken = AWAY
        with psycopg.connect(site) as conn:
            conn.execute("LOCK TABLE routes.lane, routes.dead_letter")
            given = [await at.shop.tap(of).poured({"n": 1}, seconds=60.0) for of in ("", "dead")]
            late = [await at.shop.tap(of).poured({"n": 2}, seconds=0.3) for of in ("", "dead")]
            assert [outcomes(await one) for one in late] == [[Outcome.TIMED_OUT]] * 2
            assert not any(one.done() for one in given)
            conn.rollback()
        assert [outcomes(await one) for one in given] == [[Outcome.ACKED]] * 2
        assert {"n": 1} in waiting(site)
        assert "dead" in [route for route, _, _ in letters(site)]


async def test_a_message_that_was_given_up_is_replayed_to_its_sender(site: str) -> None:
    async with kept(site) as at, pool_of(site) as pool:
        api = DeadLetters(pool)
        await at.add("r")
        at.shop.sink().answer = refuses(again=False)
        await at.shop.tap().pour({"n": 1}, {"n": 2}, {"n": 3}, ids=["x", "y", "z"])
        first, second, third = await api.list(TENANT, "r")
        assert [one.message_id for one in (first, second, third)] == [f"{id}:{TENANT}/r:0" for id in "xyz"]
        assert (await api.show(first.id))[1]["payload"] == {"n": 1}
        at.shop.sink().answer = lambda _: None
        assert await api.replay([first.id, third.id, 999_999]) == 2
        await until(lambda: len(at.shop.sink().got) == 2)
        assert at.shop.sink().got == [{"n": 1}, {"n": 3}]
        assert at.shop.sink().ids == [first.message_id, third.message_id]
        assert await api.drop([second.id]) == 1
        assert await api.list() == []
        with pytest.raises(NoSuchLetter):
            await api.show(second.id)


async def test_an_event_that_was_given_up_is_replayed_through_the_filters_that_are_left(site: str) -> None:
    async with kept(site) as at, pool_of(site) as pool:
        api = DeadLetters(pool)
        counting = {"plugin": "transform", "config": {"transformation": {"was": "{.}"}}}
        await at.add(
            "r",
            filterChain=[
                counting,
                {"plugin": "match", "config": {"matcher": "pattern", "pattern": {"was": "*"}}},
                {"plugin": "split"},
            ],
        )
        await at.shop.tap().pour({"n": 1})
        (letter,) = await api.list()
        assert letter.step == "filterChain[2] split"
        await at.add(
            "r",
            filterChain=[
                counting,
                {"plugin": "match", "config": {"matcher": "pattern", "pattern": {"was": "*"}}},
                {"plugin": "pass"},
            ],
        )
        assert await api.replay([letter.id]) == 1
        await until(lambda: at.shop.sink().got)
        assert at.shop.sink().got == [{"was": {"n": 1}}], "the step is gone, so it went through all filters"


async def test_a_replay_begins_at_the_filter_that_could_not_process_it(site: str) -> None:
    async with kept(site, raising_filter()) as at, pool_of(site) as pool:
        api = DeadLetters(pool)
        wrap = {"plugin": "transform", "config": {"transformation": {"was": "{.}"}}}
        await at.add("r", filterChain=[wrap, {"plugin": "split"}])
        await at.shop.tap().pour({"n": 1})
        (letter,) = await api.list()
        await at.add("r", filterChain=[wrap, {"plugin": "split", "config": {"path": ".was.n"}}, {"plugin": "pass"}])
        await api.replay([letter.id])
        await until(lambda: len(letters(site)) == 1 and letters(site)[0][2] != letter.reason)
        (again,) = await api.list()
        assert (await api.show(again.id))[1]["payload"] == {"was": {"n": 1}}, "it was not wrapped twice"


async def test_a_removed_routes_outbox_becomes_dead_letters(site: str) -> None:
    async with kept(site) as at:
        await at.add("r")
        at.shop.sink().broken = AWAY
        await at.shop.tap().pour({"n": 1}, {"n": 2})
        await at.remove("r")
        await until(lambda: len(letters(site)) == 2)
        assert waiting(site) == []
        assert all("the route was removed" in reason for _, _, reason in letters(site))


async def test_an_updated_routes_outbox_goes_to_its_new_sender_in_front_of_what_is_new(site: str) -> None:
    async with kept(site) as at:
        await at.add("r", sender=sink("old"))
        at.shop.sink("old").broken = AWAY
        await at.shop.tap().pour({"n": 1}, {"n": 2})
        await at.add("r", sender=sink("new"))
        assert outcomes(await at.shop.tap().pour({"n": 3})) == [Outcome.ACKED]
        await until(lambda: len(at.shop.sink("new").got) == 3)
        assert [one["n"] for one in at.shop.sink("new").got] == [1, 2, 3]
        assert letters(site) == []


async def test_an_updated_routes_outbox_becomes_dead_letters_if_its_sender_is_of_another_plugin(site: str) -> None:
    async with kept(site) as at:
        await at.add("r")
        at.shop.sink().broken = AWAY
        await at.shop.tap().pour({"n": 1})
        await at.add("r", sender={"plugin": "once", "config": {"of": "new"}})
        await at.shop.tap().pour({"n": 2})
        await until(lambda: len(letters(site)) == 1)
        await until(lambda: at.shop.sink("new").got == [{"n": 2}])
        assert "the route's sender is once now" in letters(site)[0][2]


async def test_fire_and_forget_is_done_when_it_is_handed_over(site: str) -> None:
    async with kept(site) as at:
        route = await at.add("r", deliveryMode="fire_and_forget")
        at.shop.sink().broken = AWAY
        assert outcomes(await at.shop.tap().pour({"n": 1})) == [Outcome.ACKED]
        counts = at.runner.counts(route)
        assert counts is not None
        await until(lambda: counts.failed == 1)
        assert (waiting(site), letters(site)) == ([], [])


async def test_what_nobody_keeps_holds_no_other_route_up_for_a_sender_that_is_away(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "FULL", 10)
    monkeypatch.setattr(lane, "SEND_SECONDS", 0.5)
    monkeypatch.setattr(leaves, "HOLDS_UP", 0.2)
    monkeypatch.setattr(leaves, "FIRST_LEAVE", 1000.0)
    monkeypatch.setattr(leaves, "LONGEST_LEAVE", 1000.0)
    async with kept(site) as at:
        loose = await at.add("loose", deliveryMode="fire_and_forget", sender=sink("hangs"))
        await at.add("sure")
        hangs = at.shop.sink("hangs")
        hangs.gate = asyncio.Event()
        for n in range(0, 2_000, 20):
            assert outcomes(await at.shop.tap().pour(*range(n, n + 20))) == [Outcome.ACKED] * 20
        assert at.shop.sink().got == list(range(2_000))
        counts = at.runner.counts(loose)
        assert counts is not None
        await until(lambda: counts.failed == 2_000)
        assert hangs.calls == 1, "after it that was known"


async def test_what_nobody_keeps_goes_to_a_sender_that_is_back(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "SEND_SECONDS", 0.2)
    monkeypatch.setattr(leaves, "HOLDS_UP", 0.1)
    monkeypatch.setattr(leaves, "FIRST_LEAVE", 0.1)
    async with kept(site) as at:
        loose = await at.add("loose", deliveryMode="fire_and_forget")
        at.shop.sink().gate = gate = asyncio.Event()
        await at.shop.tap().pour("lost")
        counts = at.runner.counts(loose)
        assert counts is not None
        await until(lambda: counts.failed == 1)
        gate.set()

        async def arrives() -> bool:
            await at.shop.tap().pour("again")
            return bool(counts.sent)

        await until(arrives)
        await at.shop.tap().pour(1, 2, 3)
        await until(lambda: at.shop.sink().got[-3:] == [1, 2, 3])


async def test_effectively_once_says_so_to_its_sender_and_needs_one_that_can(site: str) -> None:
    asked: list[bool] = []

    def ask(one: Sendable) -> None:
        asked.append(one.once)

    async with kept(site) as at:
        await at.add("r", deliveryMode="effectively_once", sender={"plugin": "once"})
        at.shop.sink().answer = ask
        await at.shop.tap().pour({"n": 1})
        assert asked == [True]
    (route,) = parse_routes(
        {"id": "r", "receiver": {"plugin": "nop"}, "sender": {"plugin": "debug"}, "deliveryMode": "exactly_once"}, "routes"
    )
    with pytest.raises(Invalid, match=r"deliveryMode.*cannot send a message effectively once"):
        compile_route(route)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_h33_whatever_fails_all_messages_arrive_and_in_order(site: str, seed: int) -> None:
    asyncio.run(_random_failures(site, random.Random(seed)))


async def _random_failures(site: str, chance: random.Random) -> None:
    """A model: the numbers poured into each route come out of its sender, in order."""
    async with kept(site) as at:
        names = ["a", "b"]
        for name in names:
            await at.add(name, sender=sink(name))
        poured = 0
        for _ in range(chance.randint(5, 15)):
            for name in names:
                at.shop.sink(name).broken = AWAY if chance.random() < 0.4 else None
            count = chance.randint(1, 20)
            done = await at.shop.tap().pour(*range(poured, poured + count))
            assert outcomes(done) == [Outcome.ACKED] * count
            poured += count
            if chance.random() < 0.3:
                name = chance.choice(names)
                await at.add(name, sender=sink(name), name=f"v{poured}")
            await asyncio.sleep(chance.random() * 0.05)
        for name in names:
            at.shop.sink(name).broken = None
        await until(lambda: all(len(at.shop.sink(name).got) == poured for name in names))
        assert [at.shop.sink(name).got for name in names] == [list(range(poured))] * 2
        assert letters(site) == []
